"""Processes beside the tree of a run: they look at it, and can neither slow nor end it.

Each is a Python process of its own, at a low priority and in a session of its own, that the kernel ends with
the main process. It is no actor: a tree that starts again would take it along at the very moment at which it
is to be looked at. The main process, which only waits for its root, starts it again, each time later. What
happens here is an event, and nothing waits for it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from actors.log import log_to, take_over_logging
from actors.process import die_with_parent
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import Sidecar, forget, read_sidecar, say, silent_s
from dart.telemetry.emit import EventEmitter, emit
from dart.telemetry.events import SIDECAR_DOWN, SIDECAR_UP
from supervision.backoff import backoff_s
from supervision.child_spec import Backoff

AGAIN = Backoff(initial_s=1.0, factor=3.0, max_s=300.0, jitter=0.0, reset_after_s=120.0)
"""One that can never work costs a start every five minutes."""

NICENESS = 10
"""Added to that of the main process: whoever trains comes first."""

HANG_DEADLINE_S = 120.0
"""Without a sign of life for this long one is killed, and started again."""

REASON_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is to run beside the tree."""

    name: str
    module: str
    """Started as `python -m MODULE RUN_DIR PID`, where PID is the process it ends with."""
    shutdown_s: float
    """Time to end by itself once the run is over."""


class Sidecars:
    """Keeps processes beside a run while the block lasts. Made in the thread that the tree is started from.

    speaker   through whom events are told
    """

    def __init__(
        self,
        paths: RunPaths,
        wanted: Iterable[Beside],
        speaker: EventEmitter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept = [_Kept(paths, one, speaker, clock) for one in wanted]

    def __enter__(self) -> Self:
        return self

    def look(self) -> None:
        """Start who is due, and tell what has changed. To be called about every second; never waits."""
        for kept in self._kept:
            kept.look()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """All are told to end before one is waited for; who does not end is killed."""
        for kept in self._kept:
            kept.stop()
        for kept in self._kept:
            kept.reap()


class _Kept:
    """One of them."""

    def __init__(
        self, paths: RunPaths, wanted: Beside, speaker: EventEmitter, clock: Callable[[], float]
    ) -> None:
        self._paths, self._wanted, self._speaker = paths, wanted, speaker
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = Restarts(clock)
        self._told: Sidecar | None = None
        self._last_words = paths.logs / f"{wanted.name}.stderr"

    def look(self) -> None:
        if self._process is None:
            if self._restarts.is_due:
                self._start()
        elif self._process.poll() is not None:
            self._ended(self._how_it_ended(self._process.returncode))
        elif silent_s(self._paths, self._wanted.name, time.time()) > HANG_DEADLINE_S:
            self._process.kill()
        else:
            self._tell_how_it_is()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def reap(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(self._wanted.shutdown_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        forget(self._paths, self._wanted.name)

    def _start(self) -> None:
        self._restarts.started()
        forget(self._paths, self._wanted.name)
        command = [sys.executable, "-m", self._wanted.module, str(self._paths.root), str(os.getpid())]
        try:
            with self._last_words.open("wb") as last_words, _ends_held_back():
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=last_words,
                    start_new_session=True,  # Ctrl-C is for the run, which tells it when it is over
                )
        except OSError as error:  # no memory, no disk: the run goes on
            self._ended(f"could not be started: {error}")

    def _tell_how_it_is(self) -> None:
        now = read_sidecar(self._paths, self._wanted.name)
        if now is not None and now != self._told:
            self._told = now
            tell(self._speaker, now)

    def _ended(self, how: str) -> None:
        self._process = None
        text = f"{how}; it is started again in {self._restarts.ended():.0f} s"
        self._told = Sidecar(name=self._wanted.name, is_well=False, text=text)
        tell_down(self._speaker, self._paths, self._told)

    def _how_it_ended(self, code: int) -> str:
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        ended = f"ended with exit code {code}"
        with suppress(OSError):
            said = self._last_words.read_bytes()[-REASON_BYTES:].decode(errors="replace").strip()
            return f"{ended}: {said.splitlines()[-1]}" if said else ended
        return ended


class Restarts:
    """When one that ended is due again: each time later, and soon again once it has lasted."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._started_s = 0.0
        self._due_s = clock()

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._due_s

    def started(self) -> None:
        self._started_s = self._clock()

    def ended(self) -> float:
        """Seconds until it is due."""
        if self._clock() - self._started_s >= AGAIN.reset_after_s:
            self._failures = 0
        self._failures += 1
        wait_s = backoff_s(AGAIN, self._failures, draw=0.5)
        self._due_s = self._clock() + wait_s
        return wait_s


def tell(speaker: EventEmitter, sidecar: Sidecar) -> None:
    """An event: how it is now."""
    data = {"text": sidecar.text}
    if sidecar.is_well:
        emit(speaker, SIDECAR_UP, sidecar.name, data)
    else:
        emit(speaker, SIDECAR_DOWN, sidecar.name, data)


def tell_down(speaker: EventEmitter, paths: RunPaths, sidecar: Sidecar) -> None:
    """An event, and for `status`: what cannot say it itself has ended."""
    tell(speaker, sidecar)
    with suppress(OSError):  # the event says it too
        say(paths, sidecar)


@contextmanager
def _ends_held_back() -> Iterator[None]:
    """What is started now is told to end only once it listens (`begin_beside`): it may have work left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True, slots=True)
class MainProcess:
    """The main process of a run as one who tells events: its log, and a way into the tree."""

    log: Any
    tell: Callable[[str, Any], bool]


def begin_beside(name: str, arguments: list[str], on_end: Callable[[], None] | None = None) -> RunPaths:
    """What such a process does first: end with its parent, make way for others, log into its own file.

    arguments   as `Sidecars` gives them: the directory of the run and the parent's pid
    on_end      called when the run is over; None: it ends at once then
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
