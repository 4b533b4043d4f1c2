"""Sidecars: processes beside a run that serve its page, its inspection endpoint and its tracking data.

A sidecar only reads the board and the record, so it can neither slow nor end the run. It is a separate Python
process with a low priority and a session of its own. The kernel kills it when the main process ends.

The main process supervises the sidecars, not the tree: they have to work while the tree hangs, and they end
after the tree (docs/decisions/0020-sidecars.md). `supervision.core` decides about restarts by the limits in
the child specs, and `SidecarSupervisor` carries the decisions out.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from actors.lateness import Lateness
from actors.log import log_to, take_over_logging
from actors.process import die_with_parent, exit_reason_of
from dart.config.config import Config
from dart.core.module_command import module_command
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import (
    INSPECTION,
    TRACKING,
    WEB,
    Sidecar,
    last_beat_unix_s,
    read_sidecar,
    remove_sidecar,
    write_sidecar,
)
from dart.telemetry.emit import EventEmitter, emit
from dart.telemetry.events import SIDECAR_DOWN, SIDECAR_UP
from supervision.actions import Action, AskToStop, Ended, Kill, Spawn
from supervision.child_spec import COUNT_MOST, Backoff, ChildSpec, SupervisorFlags
from supervision.core import SupervisorCore

BACKOFF = Backoff(initial_s=1.0, factor=3.0, max_s=300.0, jitter=0.0, reset_after_s=120.0)
"""Waits before restarts of a sidecar. A sidecar that can never work is started every five minutes."""

NICENESS = 10
"""How much higher the niceness of a sidecar is than that of the main process, because training comes
first."""

HANG_DEADLINE_S = 120.0
"""A sidecar without a sign of life for this long is killed and started again."""

POLLS_EVERY_S = HANG_DEADLINE_S / 4
"""Longest time between two polls. If the next poll comes later, the main process was suspended, and its
sidecars probably with it: no silence counts from the poll before until that one."""

REASON_BYTES = 4096
"""How many bytes from the end of a sidecar's standard error are searched for the reason of its end."""

STOP_POLL_S = 0.01

_FLAGS = SupervisorFlags(ordered=False, max_restarts=COUNT_MOST)
"""Flags with a restart budget that is never spent: no failure of a sidecar ends the run."""


def sidecar_specs(config: Config, *, serves_page: bool) -> Iterator[ChildSpec]:
    """Yield the child specs of the sidecars that a configuration asks for.

    serves_page   whether the run may have the page, if `web.enabled` is set
    """
    if config.web.enabled and serves_page:
        yield sidecar_spec(WEB, "dart.web.__main__", shutdown_s=3.0)
    if config.run.record:  # on a server, so that other machines can ask for the run
        yield sidecar_spec(INSPECTION, "dart.web.inspection", shutdown_s=3.0)
    if config.tracking.writers:
        yield sidecar_spec(TRACKING, "dart.tracking.__main__", shutdown_s=30.0)


def sidecar_spec(name: str, module: str, shutdown_s: float) -> ChildSpec:
    """Return the child spec of a sidecar that runs `python -m MODULE`.

    shutdown_s   seconds that the sidecar has to end after SIGTERM
    """
    return ChildSpec(
        id=name,
        actor=f"{module}:main",
        shutdown_s=shutdown_s,
        hang_deadline_s=HANG_DEADLINE_S,
        backoff=BACKOFF,
    )


def start_sidecar(paths: RunPaths, spec: ChildSpec) -> "subprocess.Popen[bytes]":
    """Start `python -m MODULE RUN_DIR PID`, where PID is this process. Raises OSError if this fails."""
    module = spec.actor.partition(":")[0]
    with _stderr_of(paths, spec.id).open("wb") as stderr, _sigterm_blocked():
        return subprocess.Popen(
            [*module_command(module), str(paths.root), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for the main process, which stops the sidecar in the end
        )


def _end_reason(paths: RunPaths, name: str, code: int) -> str:
    """Say how a sidecar ended; after an error, with the last line of its standard error.

    code   the exit code; negative for a signal
    """
    if code < 0:
        return f"ended by {exit_reason_of(code)}"
    with suppress(OSError):
        said = _stderr_of(paths, name).read_bytes()[-REASON_BYTES:].decode(errors="replace").strip()
        if said:
            return f"ended with exit code {code}: {said.splitlines()[-1]}"
    return f"ended with exit code {code}"


def _stderr_of(paths: RunPaths, name: str) -> Path:
    return paths.logs / f"{name}.stderr"


class SidecarSupervisor:
    """A context manager that supervises sidecars, and emits an event when the status of a sidecar changes.

    Call `poll` in the thread that starts the tree: it starts the sidecars, and the kernel kills a sidecar
    when the thread that started it ends.
    """

    def __init__(
        self,
        paths: RunPaths,
        specs: Iterable[ChildSpec],
        emitter: EventEmitter,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._paths, self._emitter = paths, emitter
        self._clock, self._sleep = clock, sleep
        self._core = SupervisorCore(_FLAGS, tuple(specs))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._kill_reasons: dict[str, str] = {}
        self._reported: dict[str, Sidecar] = {}
        self._beats: dict[str, tuple[float | None, float]] = {}
        """By sidecar: the time of its last sign of life, and when that was first seen by `clock`."""
        self._lateness = Lateness()
        self._polled_s = clock()

    def __enter__(self) -> Self:
        return self

    def poll(self) -> None:
        """Notice sidecars that ended, hang or have a new status, and start those whose backoff is over.

        Call this about every second. It never waits.
        """
        self._note_lateness()
        self._note_ends()
        for id_ in self._running:
            self._examine(id_)
        self._carry_out(self._core.tick(self._clock()))

    def __exit__(self, *_: object) -> None:
        """Ask all sidecars to end, and kill each one that does not end within its `shutdown_s`."""
        self._carry_out(self._core.stop("the run is over", self._clock()))
        while not self._core.is_finished:
            self._sleep(STOP_POLL_S)
            self._note_ends()
            self._carry_out(self._core.tick(self._clock()))
        for id_ in self._core.children:
            remove_sidecar(self._paths, id_)

    def _note_lateness(self) -> None:
        now_s = self._clock()
        self._lateness.note(self._polled_s, self._polled_s + POLLS_EVERY_S, now_s)
        self._polled_s = now_s

    def _note_ends(self) -> None:
        for id_, running in list(self._running.items()):
            if (code := running.poll()) is not None:
                del self._running[id_]
                self._ended(id_, self._kill_reasons.pop(id_, "") or _end_reason(self._paths, id_, code))

    def _examine(self, id_: str) -> None:
        child, age_s = self._core.children[id_], self._silent_s(id_)
        if age_s > child.spec.hang_deadline_s:
            why = f"no sign of life for {age_s:.0f} s"
            self._carry_out(self._core.hung(id_, child.incarnation, why))
        elif (status := read_sidecar(self._paths, id_)) is not None:
            self._report(status)

    def _silent_s(self, id_: str) -> float:
        """The seconds since a sidecar's last sign of life was seen; 0 before its first.

        A step of the wall clock, by which files are dated, changes nothing. Nor does a time in which this
        process was suspended.
        """
        beat_unix_s, now_s = last_beat_unix_s(self._paths, id_), self._clock()
        if self._beats.get(id_, (None, 0.0))[0] != beat_unix_s:
            self._beats[id_] = beat_unix_s, now_s
        silent_s = now_s - self._beats[id_][1] if beat_unix_s is not None else 0.0
        return self._lateness.counted_s(silent_s, now_s)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn():
                    self._spawn(action)
                case AskToStop():
                    self._running[action.id].terminate()
                case Kill():
                    self._kill_reasons[action.id] = f"killed: {action.why}"
                    self._running[action.id].kill()

    def _spawn(self, child: Spawn) -> None:
        remove_sidecar(self._paths, child.id)
        try:
            self._running[child.id] = start_sidecar(self._paths, self._core.children[child.id].spec)
        except OSError as error:  # no memory, no descriptor, no disk: the run continues
            self._ended(child.id, f"could not be started: {error}")
        else:
            self._carry_out(self._core.ready(child.id, child.incarnation, self._clock()))

    def _ended(self, id_: str, reason: str) -> None:
        child, now_s = self._core.children[id_], self._clock()
        self._carry_out(self._core.exited(id_, child.incarnation, Ended(reason), now_s))
        if self._core.finishing is None:
            text = f"{reason}; it is started again in {child.start_at_s - now_s:.0f} s"
            down = Sidecar(name=id_, is_well=False, text=text)
            self._report(down)
            with suppress(OSError):  # the event has the reason, too
                write_sidecar(self._paths, down)

    def _report(self, status: Sidecar) -> None:
        if status != self._reported.get(status.name):
            self._reported[status.name] = status
            emit_status(self._emitter, status)


def emit_status(emitter: EventEmitter, status: Sidecar) -> None:
    """Emit the event that the status of a sidecar has changed."""
    emit(emitter, SIDECAR_UP if status.is_well else SIDECAR_DOWN, status.name, {"text": status.text})


@contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """Block SIGTERM for processes that start in this block. They unblock it by `begin_sidecar`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_sidecar(name: str, arguments: list[str], on_end: Callable[[], None] | None = None) -> RunPaths:
    """Set up this process as a sidecar: its end with the main process, its priority, its log and SIGTERM.

    Returns the paths of the run.

    name        name of the sidecar, which is also that of its log

    arguments   as `start_sidecar` passes them: the run directory and the pid of the main process
    on_end      called on SIGTERM, when the run is over; None: SIGTERM ends the process at once
    """
    root, parent_pid = arguments
    die_with_parent(int(parent_pid))
    os.nice(NICENESS)
    paths = RunPaths(Path(root))
    log_to(paths.logs / f"{name}.jsonl")
    take_over_logging()
    if on_end is not None:
        signal.signal(signal.SIGTERM, lambda *_: on_end())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    return paths
