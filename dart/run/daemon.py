"""The listener of `dartrl up`: logs the progress of a run and reports to its service manager (sd_notify(3)).

The listener feeds the watchdog of the service manager only after the root supervisor answered a `Ping`
through the control endpoint. So main process, control endpoint and root supervisor must all work.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Self

from rich.console import Console

from actors.log import LOG_BYTES, cut
from dart.core.errors import DartError
from dart.core.run_directory import RunPaths
from dart.inspect.result import TrainResult, publish
from dart.inspect.snapshot import RunSnapshot
from dart.run.control_protocol import ControlAnswer, ControlOutcome, Ping, Reload, Request
from dart.run.control_socket import request
from dart.run.listener import RunListener
from dart.run.run_record import RunHistory
from dart.run.signal_counter import has_terminal

PROGRESS_EVERY_S = 60.0
"""Seconds between two log lines on progress while the phase and the notices stay the same."""

START_STEP_S = 120.0
"""Seconds that systemd is asked for, about every second, until the tree is up."""

CONCLUDE_S = 900.0
"""How much time the service manager is asked to allow for the check of the data and the report, or for the
other nodes of a cluster to stop after an error."""

RELOAD_WAIT_MS = 5000
"""Longest time, in milliseconds, that the main process waits until a reloaded configuration is applied."""


class Daemon(RunListener):
    """Logs the progress of one run as events, one a line, and notifies the service manager."""

    takes_hangups = True
    serves_page = True

    def __init__(
        self,
        paths: RunPaths,
        log: Any,
        clock: Callable[[], float] = time.monotonic,
        *,
        outlives_terminal: bool = False,
        output_bytes: int = LOG_BYTES,
    ) -> None:
        """Make the listener of a run.

        log                 the logger of the main process
        outlives_terminal   whether the run continues when its terminal closes, as with `nohup`
        output_bytes        largest size of the file that has the standard output and error of all processes
        """
        super().__init__(log=log)
        self._output_bytes = output_bytes
        self._ends_with_terminal = has_terminal() and not outlives_terminal
        self._paths, self._clock = paths, clock
        self._watchdog_every_s = watchdog_every_s()
        self._fed_s = self._logged_s = -float("inf")
        self._is_up = False
        self._silent_since_s: float | None = None
        """When the first of the pings without an answer was sent; None while pings are answered."""
        self._logged: tuple[object, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        """If an error ends the run, log the end with the error as its reason.

        No request feeds the watchdog any more, and the other nodes of a cluster take minutes to stop."""
        if error is not None:
            if self._is_up:
                notify(STOPPING=1, EXTEND_TIMEOUT_USEC=round(CONCLUDE_S * 1e6))
            self.log.error("daemon_ended", reason=str(error) or type(error).__name__)

    def found(self, found: RunHistory) -> None:
        self.log.info("run_taken_up", text=found.text(), **asdict(found))

    def show(self, snapshot: RunSnapshot) -> None:
        if not self._is_up and any(actor.name == "root" and actor.is_well for actor in snapshot.actors):
            self._is_up = True
            self.log.info("run_is_up", actors=len(snapshot.actors), run_dir=snapshot.run_dir)
            notify(READY=1)
        notify(STATUS=status_line(snapshot))
        self._log_progress(snapshot)

    def record_away(self, reason: str) -> None:
        notify(STATUS=f"waits for its record: {reason}")
        if self._is_news("record_away"):
            self.log.warning("record_away", reason=reason)

    def turn(self) -> None:
        """Show the service manager a sign of life, also while the record is away: the actors wait for it."""
        cut(self._paths.daemon_output, self._output_bytes)
        if self._is_up:
            self._feed()
        else:  # a root that is starting its children answers no request; they have deadlines of their own
            notify(EXTEND_TIMEOUT_USEC=round(START_STEP_S * 1e6))

    def stopping(self, number: int, deadline_s: float) -> None:
        notify(STOPPING=1, STATUS="draining", EXTEND_TIMEOUT_USEC=round(deadline_s * 1e6))
        self.log.warning("drain_began", signal=signal.Signals(number).name)

    def giving_back(self, found: Sequence[str], deadline_s: float) -> None:
        if self._is_up:  # the run has ended, perhaps by itself: no request feeds the watchdog any more
            notify(STOPPING=1)
        notify(STATUS="giving back machines", EXTEND_TIMEOUT_USEC=round(deadline_s * 1e6))
        self.log.info("giving_back", machines=list(found), deadline_s=deadline_s)

    def gave_back(self, count: int, left: Sequence[str]) -> None:
        self.log.info("gave_back", machines=count)
        for one in left:
            self.log.error("may_still_run", machines=one)

    def ended(self) -> None:
        # No request feeds the watchdog any more, and the check of a large record takes minutes.
        notify(STOPPING=1, STATUS="checking the data", EXTEND_TIMEOUT_USEC=round(CONCLUDE_S * 1e6))

    def concluded(self, result: TrainResult) -> None:
        """Write the report and the learning curve, as `dartrl train` does, and log the end."""
        publish(result, Console(quiet=not sys.stdout.isatty()), self._paths)
        level = self.log.error if result.failure else self.log.info
        level(
            "daemon_ended",
            updates=result.snapshot.updates,
            stopped_by=result.stopped_by,
            is_drained=result.is_drained,
            violations=list(result.violations),
            lost_screenshots=list(result.lost_screenshots),
            reason=result.failure,
        )

    def hung_up(self) -> bool:
        """Return True, to drain, if the terminal of the run has closed; else reload the configuration."""
        if self._ends_with_terminal and not has_terminal():
            return True
        answer = self._asked(Reload(wait_ms=RELOAD_WAIT_MS))
        is_well = answer.outcome in (ControlOutcome.DONE, ControlOutcome.UNDER_WAY)
        level = self.log.info if is_well else self.log.error
        level("configuration_read", outcome=answer.outcome.value, text=answer.text)
        return False

    def _feed(self) -> None:
        """Feed the service manager's watchdog if it is time to, and if the root supervisor answers."""
        if self._watchdog_every_s is None or self._clock() - self._fed_s < self._watchdog_every_s:
            return
        answer = self._asked(Ping())
        if answer.outcome is ControlOutcome.DONE:
            self._fed_s = self._clock()
            notify(WATCHDOG=1)
        self._note_silence(answer)

    def _note_silence(self, answer: ControlAnswer) -> None:
        """Log once when pings begin to fail, and once when a ping is answered again."""
        if answer.outcome is ControlOutcome.DONE and self._silent_since_s is not None:
            silent_s = round(self._clock() - self._silent_since_s, 1)
            self.log.warning("root_answers_again", silent_s=silent_s)
            self._silent_since_s = None
        elif answer.outcome is not ControlOutcome.DONE and self._silent_since_s is None:
            self._silent_since_s = self._clock()
            self.log.error("root_does_not_answer", text=answer.text)

    def _asked(self, call: Request) -> ControlAnswer:
        """Send a request to the run's control endpoint. Return its answer; `SILENT` if none came."""
        try:
            return request(self._paths.root, call)
        except DartError as error:
            return ControlAnswer(ControlOutcome.SILENT, str(error))

    def _log_progress(self, snapshot: RunSnapshot) -> None:
        """Log progress once a minute, and when the phase or the notices have changed."""
        if not self._is_news(snapshot.phase, snapshot.notices):
            return
        self.log.info(
            "run_stands",
            phase=snapshot.phase.value,
            elapsed_s=round(snapshot.elapsed_s, 1),
            updates=snapshot.updates,
            trajectories=snapshot.trajectories,
            success_rate=snapshot.success_rate,
            actions_per_minute=snapshot.actions_per_minute,
            staleness_mean=snapshot.staleness_mean,
            actors_well=snapshot.well,
            actors=len(snapshot.actors),
            restarts=snapshot.restarts,
            notices=list(snapshot.notices),
        )

    def _is_news(self, *said: object) -> bool:
        """Whether the state of the run has to be logged: it is not the last one, or a minute has passed."""
        if said == self._logged and self._clock() - self._logged_s < PROGRESS_EVERY_S:
            return False
        self._logged, self._logged_s = said, self._clock()
        return True


def status_line(snapshot: RunSnapshot) -> str:
    """Describe the run in one line, for `systemctl status`."""
    figures = [
        snapshot.phase.value,
        f"update {snapshot.updates}",
        f"{snapshot.well}/{len(snapshot.actors)} actors",
        f"{snapshot.actions_per_minute:.0f} actions/min",
    ]
    if snapshot.staleness_mean is not None:
        figures.append(f"staleness {snapshot.staleness_mean:.1f}")
    return " · ".join([*figures, *snapshot.notices])


def notify(**fields: str | int) -> None:
    """Send fields such as `READY=1` to the service manager; do nothing if there is none."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    where = "\0" + address[1:] if address.startswith("@") else address  # an abstract name begins with a zero
    lines = (f"{name}={value}" for name, value in fields.items())
    message = "\n".join(line.replace("\n", " ") for line in lines)  # a line break would begin another field
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
        try:
            sender.sendto(message.encode(), where)
        except OSError:
            return


def watchdog_every_s() -> float | None:
    """Return half the watchdog timeout of the service manager; None if this process has no watchdog."""
    limit_us = os.environ.get("WATCHDOG_USEC", "")
    wanted_of = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not limit_us.isdecimal() or int(limit_us) == 0 or wanted_of != str(os.getpid()):
        return None
    return int(limit_us) / 2e6
