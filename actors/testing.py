"""Actors without processes, for tests: memory for mail, a clock moved by hand, one thread.

    with Bench(tmp_path) as bench:
        bench.start(Counter, "counter")
        answer = bench.ask("counter", Increment(by=2))
        bench.settle()
        assert answer.result() == Value(value=2)

What an actor crashes with is raised out of `settle` and `advance`; it is dead then, as its process would be.
"""

import os
import select
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import zmq

from actors.actor import ASK_DEADLINE_S, LAUNCHER, Actor, Identity
from actors.board import ActorState, Board
from actors.clock import ManualClock
from actors.completion import Completion
from actors.mail import QUEUE_MESSAGES, Mail

KEY = b"a key for tests, known to all..."
WORK_DEADLINE_S = 10.0
MAX_TURNS = 100_000

FIRST_PID = 2**22 + 1
"""Above what the kernel gives, so that no real process is ever meant."""

A = TypeVar("A", bound=Actor)


class MemorySocket:
    """Both ends of a mailbox that never leaves the process; full like a real one."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()

    def send(self, frame: bytes, _: int) -> None:
        if len(self.frames) >= QUEUE_MESSAGES:
            raise zmq.Again
        self.frames.append(frame)

    def recv(self, _: int) -> bytes:
        if not self.frames:
            raise zmq.Again
        return self.frames.popleft()


class MemoryMail(Mail):
    """Mail as it is, resolved and signed, carried by memory."""

    def __init__(self, board: Board, sockets: dict[tuple[int, int], MemorySocket]) -> None:
        super().__init__(board, Path(), KEY)
        self._sockets = sockets

    def bind(self, slot: int, incarnation: int) -> int:
        self._inbox = self._outbox(slot, incarnation)
        return -1

    def _outbox(self, slot: int, incarnation: int) -> Any:
        return self._sockets.setdefault((slot, incarnation), MemorySocket())


class BenchChild:
    """A child process that lives and dies as the test says; its pidfd is readable once it ended."""

    def __init__(self, boot: Mapping[str, Any], pid: int) -> None:
        self.boot = boot
        self.pid = pid
        self.pidfd = os.eventfd(0)
        self.was_killed = False
        self._code: int | None = None

    def end(self, code: int | None) -> None:
        """It ended; None: the kernel says so, its exit status is not to be had yet."""
        self._code = code
        os.eventfd_write(self.pidfd, 1)

    def returncode(self) -> int | None:
        return self._code

    def kill(self) -> None:
        self.was_killed = True

    def close(self) -> None:
        os.close(self.pidfd)


class BenchRuntime:
    """Remembers what an actor asked of its process."""

    def __init__(self) -> None:
        self.watched: dict[int, Callable[[], None]] = {}
        self.wake_s = float("inf")
        self.spawned: list[BenchChild] = []
        self.exit_code: int | None = None

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        self.watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def wake_at(self, monotonic_s: float) -> None:
        self.wake_s = min(self.wake_s, monotonic_s)

    def spawn(self, boot: Mapping[str, Any]) -> BenchChild:
        self.spawned.append(BenchChild(boot, pid=FIRST_PID + len(self.spawned)))
        return self.spawned[-1]

    def exit(self, code: int) -> None:
        self.exit_code = code

    def readable(self, timeout_s: float = 0.0) -> list[int]:
        """Watched descriptors of the system that are readable; the mailbox in memory has none."""
        return select.select([fd for fd in self.watched if fd >= 0], [], [], timeout_s)[0]


class Asker(Actor):
    """Asks on behalf of a test."""


class Bench:
    """A few actors, run turn by turn. A context manager: leaving it closes what they held."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.board = Board.create(folder / "board")
        self.runtimes: dict[str, BenchRuntime] = {}
        self._folder = folder
        self._actors: dict[str, Actor] = {}
        self._sockets: dict[tuple[int, int], MemorySocket] = {}
        self._to_close: list[Callable[[], None]] = [self.board.close]
        self._asker = self.start(Asker, "asker")

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        while self._to_close:
            self._to_close.pop()()

    def start(
        self,
        actor: type[A],
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        parent: str = LAUNCHER,
        probe_every_s: float = 0.0,
    ) -> A:
        """A new incarnation under the name."""
        slot = self.board.claim(name, parent)
        incarnation = int(self.board.get(slot, "incarnation")) + 1
        self.board.set_state(slot, ActorState.STARTING, incarnation=incarnation, ready=0)
        mail = MemoryMail(self.board, self._sockets)
        identity = Identity(
            name=name,
            parent=parent,
            slot=slot,
            incarnation=incarnation,
            run_dir=self._folder,
            mail_dir=self._folder,
            probe_every_s=probe_every_s,
        )
        runtime = self.runtimes[name] = BenchRuntime()
        started = actor(identity, args or {}, board=self.board, mail=mail, clock=self.clock, runtime=runtime)
        self._actors[name] = started
        self._to_close += [mail.close, started.close_worker]
        self._run(name, lambda: started.boot(mail.bind(slot, incarnation)))
        self.board.set_state(slot, ActorState.RUNNING)
        return started

    def end(self, name: str) -> None:
        """The actor's process is gone, however it ended."""
        del self._actors[name]
        slot = self.board.find(name)
        assert slot is not None
        self.board.set_state(slot, ActorState.STOPPED, ready=0)

    def ask(self, to: str, content: Any, *, deadline_s: float = ASK_DEADLINE_S) -> Completion[Any]:
        return self._asker.ask(to, content, deadline_s=deadline_s)

    def tell(self, to: str, content: Any) -> bool:
        return self._asker.tell(to, content)

    def settle(self) -> None:
        """Let every actor take its mail and its due timers until nothing is left to do now."""
        for _ in range(MAX_TURNS):
            busy = [name for name in self._actors if self._has_something_to_do(name)]
            if not busy:
                return
            for name in busy:
                self.turn(name)
        raise AssertionError(f"{busy} still had something to do after {MAX_TURNS} turns")

    def turn(self, name: str) -> None:
        """One turn of one actor."""
        runtime = self.runtimes[name]
        runtime.wake_s = float("inf")
        for fd in runtime.readable():
            runtime.watched[fd]()
        self._run(name, self._actors[name].turn)

    def advance(self, seconds: float) -> None:
        """Move the clock from timer to timer; every one is run at its own moment."""
        end_s = self.clock.monotonic_s() + seconds
        self.settle()
        while (due_s := min(self.runtimes[name].wake_s for name in self._actors)) <= end_s:
            self.clock.advance(max(0.0, due_s - self.clock.monotonic_s()))
            self.settle()
        self.clock.advance(end_s - self.clock.monotonic_s())

    def finish_work(self, name: str, is_done: Callable[[], bool]) -> None:
        """Wait (really) for results from the actor's worker threads until it is done."""
        self.settle()
        while not is_done():
            if not self.runtimes[name].readable(WORK_DEADLINE_S):
                raise AssertionError(f"no work of {name!r} was done within {WORK_DEADLINE_S} s")
            self.settle()

    def _has_something_to_do(self, name: str) -> bool:
        identity = self._actors[name].identity
        runtime = self.runtimes[name]
        return bool(
            self._sockets[identity.slot, identity.incarnation].frames
            or runtime.wake_s <= self.clock.monotonic_s()
            or runtime.readable()
        )

    def _run(self, name: str, what: Callable[[], None]) -> None:
        try:
            what()
        except BaseException:
            self._actors[name].crashed(traceback.format_exc())
            self.end(name)
            raise
        if self.runtimes[name].exit_code is not None:
            self.end(name)
