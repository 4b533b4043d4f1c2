"""The supervisor in the main process of a run, for children that are no actors of the tree.

These are the sidecars (`dart.run.sidecars`) and the control endpoint (`dart.run.control_endpoint`): both have
to work while the tree hangs, and the sidecars outlive it (docs/decisions/0020-sidecars.md).
`supervision.core` decides, by the limits in child specs; this module carries its decisions out.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self

from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import Sidecar, remove_sidecar, write_sidecar
from dart.telemetry.emit import EventEmitter, emit
from dart.telemetry.events import SIDECAR_DOWN, SIDECAR_UP
from supervision.actions import Action, AskToStop, Ended, Kill, Spawn
from supervision.child_spec import COUNT_MOST, Backoff, ChildSpec, SupervisorFlags
from supervision.core import SupervisorCore

BACKOFF = Backoff(initial_s=1.0, factor=3.0, max_s=300.0, jitter=0.0, reset_after_s=120.0)
"""A child that can never work costs a start every five minutes."""

STOP_POLL_S = 0.01

_FLAGS = SupervisorFlags(ordered=False, max_restarts=COUNT_MOST)
"""The budget is never spent: no failure of these children ends the run."""


class MainChild(Protocol):
    """One incarnation of a child: a process or a thread."""

    def end_reason(self) -> str:
        """Why it has ended; empty while it runs."""

    def silent_s(self) -> float:
        """Seconds since its last sign of life."""

    def status(self) -> Sidecar | None:
        """What it reports of itself; None for nothing."""

    def stop(self) -> None:
        """Ask it to end. Returns at once."""

    def kill(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True)
class MainProcess:
    """The main process as an emitter of events."""

    log: Any
    tell: Callable[[str, Any], bool]


class MainSupervisor:
    """Supervises children for as long as the block lasts, and emits an event when the status of one changes.

    start   starts an incarnation of a child; raises OSError if it cannot
    Make it in the thread that starts the tree: the kernel ends a child process when that thread ends.
    """

    def __init__(
        self,
        paths: RunPaths,
        specs: Iterable[ChildSpec],
        start: Callable[[ChildSpec], MainChild],
        emitter: EventEmitter,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._paths, self._start, self._emitter = paths, start, emitter
        self._clock, self._sleep = clock, sleep
        self._core = SupervisorCore(_FLAGS, tuple(specs))
        self._running: dict[str, MainChild] = {}
        self._kill_reasons: dict[str, str] = {}
        self._reported: dict[str, Sidecar] = {}

    def __enter__(self) -> Self:
        return self

    def poll(self) -> None:
        """Notice what has ended, hangs or reports something new, and start what is due.

        Call it about every second; it never waits.
        """
        self._note_ends()
        for id_, running in self._running.items():
            self._examine(id_, running)
        self._carry_out(self._core.tick(self._clock()))

    def __exit__(self, *_: object) -> None:
        """Ask all children to end, and kill those that do not within their `shutdown_s`."""
        self._carry_out(self._core.stop("the run is over", self._clock()))
        while not self._core.is_finished:
            self._sleep(STOP_POLL_S)
            self._note_ends()
            self._carry_out(self._core.tick(self._clock()))
        for id_ in self._core.children:
            remove_sidecar(self._paths, id_)

    def _note_ends(self) -> None:
        for id_, running in list(self._running.items()):
            if reason := running.end_reason():
                del self._running[id_]
                self._ended(id_, self._kill_reasons.pop(id_, reason))

    def _examine(self, id_: str, running: MainChild) -> None:
        child, silent_s = self._core.children[id_], running.silent_s()
        if silent_s > child.spec.hang_deadline_s:
            why = f"no sign of life for {silent_s:.0f} s"
            self._carry_out(self._core.hung(id_, child.incarnation, why))
        elif (status := running.status()) is not None:
            self._report(status)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn():
                    self._spawn(action)
                case AskToStop():
                    self._running[action.id].stop()
                case Kill():
                    self._kill_reasons[action.id] = f"killed: {action.why}"
                    self._running[action.id].kill()

    def _spawn(self, child: Spawn) -> None:
        remove_sidecar(self._paths, child.id)
        try:
            self._running[child.id] = self._start(self._core.children[child.id].spec)
        except OSError as error:  # no memory, no descriptor, no disk: the run goes on
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
            with suppress(OSError):  # the event says it, too
                write_sidecar(self._paths, down)

    def _report(self, status: Sidecar) -> None:
        if status == self._reported.get(status.name):
            return
        self._reported[status.name] = status
        kind = SIDECAR_UP if status.is_well else SIDECAR_DOWN
        emit(self._emitter, kind, status.name, {"text": status.text})
