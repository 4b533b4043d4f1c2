"""Actors without processes, for tests: memory for mail, a clock moved by hand, one thread.

    with InMemorySystem(tmp_path) as bench:
        bench.start(Counter, "counter")
        answer = bench.ask("counter", Increment(by=2))
        bench.settle()
        assert answer.result() == Value(value=2)

Mail is resolved on a real board, encoded, signed and decoded; only the transport is memory. An error that
crashes an actor is raised by `settle` and `advance`; the actor is dead then, as its process would be.

With a `seed` the system draws which actor runs next, how much of its mail it finds and which descriptors are
readable: one seed gives one interleaving, every time. Without one, actors take turns in the order of names.

With `live_children=True` a supervisor's children are actors of the same system, made from the boot maps that
processes would get. They crash, exit, stop and hang (`hang`, `kill`, `exit`) as processes do: the pidfd
becomes readable, the return code is there, their own children die with them, and the board shows what they
last wrote. Otherwise a spawned child is an `InMemoryChild` that does what the test says.
"""

import os
import random
import select
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from actors.actor import Actor
from actors.board import LAUNCHER, ActorState, Board, Vitals
from actors.clock import ManualClock
from actors.errors import WorkOverdue
from actors.future import Future
from actors.last_words import crash_report
from actors.mail import Mail
from actors.process import EXIT_CRASHED, EXIT_OVERDUE, exit_reason_of
from actors.runtime import Identity, identity_of
from actors.thespian_host import actor_class, leave_last_words
from actors.transport import QUEUE_MESSAGES

KEY = b"a key for tests, known to all..."
WORK_DEADLINE_S = 10.0
MAX_TURNS = 100_000

FIRST_PID = 2**22 + 1
"""The first pid of a simulated process, above those of the kernel, so that no real process is ever meant."""

BOARD_EPOCH_NS = 10**12
"""The board's time when the manual clock shows 0, because 0 on the board means 'never'."""

A = TypeVar("A", bound=Actor)


class MemorySocket:
    """Both ends of a mailbox in memory; it gets full like a real one."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.hidden = 0
        """The number of frames at the end that the reader cannot see yet, as if they had not arrived."""

    def put(self, frame: bytes) -> bool:
        if len(self.frames) >= QUEUE_MESSAGES:
            return False
        self.frames.append(frame)
        return True

    def take(self) -> bytes | None:
        return self.frames.popleft() if len(self.frames) > self.hidden else None


class MemoryCarrier:
    """Carries one actor's signed frames to the mailboxes of the system."""

    lost = 0

    def __init__(self, sockets: dict[tuple[int, int], MemorySocket]) -> None:
        self._sockets = sockets
        self._inbox = MemorySocket()

    def bind(self, slot: int, incarnation: int, listener_fd: int | None = None) -> int:
        self._inbox = self._sockets.setdefault((slot, incarnation), self._inbox)
        return -1

    def put(self, slot: int, incarnation: int, frame: bytes) -> bool:
        return self._sockets.setdefault((slot, incarnation), MemorySocket()).put(frame)

    def take(self) -> bytes | None:
        return self._inbox.take()

    def flush(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class InMemoryChild:
    """A child process that ends when the test says so; its pidfd is readable from then on."""

    def __init__(self, boot: Mapping[str, Any], pid: int) -> None:
        self.boot = boot
        self.pid = pid
        self.pidfd = os.eventfd(0)
        self.was_killed = False
        self._code: int | None = None
        self._is_closed = False

    def end(self, code: int | None) -> None:
        """End the process; with None the exit status is not available yet."""
        self._code = code
        os.eventfd_write(self.pidfd, 1)

    def returncode(self) -> int | None:
        return self._code

    def kill(self) -> None:
        self.was_killed = True

    def close(self) -> None:
        """Close the descriptor, unless it was closed before."""
        if not self._is_closed:
            os.close(self.pidfd)
        self._is_closed = True


class LiveChild(InMemoryChild):
    """A child that is an actor of the system; a kill ends it at once."""

    def __init__(self, boot: Mapping[str, Any], pid: int, killed: Callable[[], None]) -> None:
        super().__init__(boot, pid)
        self._killed = killed

    def kill(self) -> None:
        super().kill()
        self._killed()


class ProcessExit(BaseException):
    """Raised when an actor ends its process: nothing after it runs, as in a real one."""


class InMemoryRuntime:
    """The runtime of an actor in memory: records what the actor asks of its process."""

    def __init__(self, bench: "InMemorySystem", slot: int) -> None:
        self.watched: dict[int, Callable[[], None]] = {}
        self.wake_s = float("inf")
        self.spawned: list[InMemoryChild] = []
        self.exit_code: int | None = None
        self.is_running = False
        self._bench = bench
        self._slot = slot

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        self.watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def wake_at(self, monotonic_s: float) -> None:
        self.wake_s = min(self.wake_s, monotonic_s)

    def spawn(self, boot: Mapping[str, Any]) -> InMemoryChild:
        self.spawned.append(self._bench.spawned(boot))
        return self.spawned[-1]

    def pidfd(self, pid: int) -> int:
        return self._bench.pidfd(pid)

    def exit(self, code: int) -> None:
        self._bench.board.note_own_exit(self._slot, code)
        self.exit_code = code
        if self.is_running:
            raise ProcessExit

    def readable(self, timeout_s: float = 0.0) -> list[int]:
        """Return the watched file descriptors that are readable; the mailbox in memory has none.

        timeout_s   how long to wait until one of them is readable
        """
        return _readable_of(self.watched, timeout_s)


@dataclass(slots=True)
class _Process:
    """One simulated process."""

    pid: int
    identity: Identity
    runtime: InMemoryRuntime
    mail: Mail
    child: InMemoryChild | None
    """The child as its supervisor holds it; None for an actor that the test started itself."""
    make: Callable[[], Actor]
    actor: Actor | None = None
    """The actor; None until its first turn."""
    is_hung: bool = False

    def close(self) -> None:
        self.mail.close()
        if self.actor is not None:
            self.actor.let_go()


class Asker(Actor):
    """Asks on behalf of a test."""


class InMemorySystem:
    """A few actors, run turn by turn. A context manager: leaving it closes what they held.

    folder         an empty folder for the board and the crash files
    seed           seed of the order in which things happen; None: the order of names
    live_children  true: spawned children are actors of this system; false: the test says what each one does
    """

    def __init__(self, folder: Path, *, seed: int | None = None, live_children: bool = False) -> None:
        (folder / "crash").mkdir(exist_ok=True)
        self.clock = ManualClock()
        self.board = Board.create(folder / "board")
        self.board.now_ns = lambda: BOARD_EPOCH_NS + int(self.clock.monotonic_s() * 1e9)
        self.runtimes: dict[str, InMemoryRuntime] = {}
        """The runtime of the latest process started under each name."""
        self._folder = folder
        self._random = None if seed is None else random.Random(seed)
        self._has_live_children = live_children
        self._processes: dict[int, _Process] = {}
        self._pids = 0
        self._ended_fds: dict[int, int] = {}
        """A descriptor by pid; it is readable once that process has ended."""
        self._children: list[InMemoryChild] = []
        """All children that were spawned. Supervisors close those that end; the system closes the others."""
        self._sockets: dict[tuple[int, int], MemorySocket] = {}
        self._asker = self.start(Asker, "asker")

    def __enter__(self) -> "InMemorySystem":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.close()
        for fd in self._ended_fds.values():
            os.close(fd)
        for child in self._children:
            child.close()
        self.board.close()

    # ---- actors come and go ----

    def start(
        self,
        actor: type[A],
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        parent: str = LAUNCHER,
        probe_every_s: float = 0.0,
    ) -> A:
        """Start a new incarnation under the name, and return its actor."""
        slot = self.board.claim(name, parent)
        incarnation = int(self.board.get(slot, "incarnation")) + 1
        self.board.set_state(slot, ActorState.STARTING, incarnation=incarnation, ready=0, own_exit=0)
        boot = {
            "name": name,
            "parent": parent,
            "slot": slot,
            "incarnation": incarnation,
            "run_dir": str(self._folder),
            "mail_dir": str(self._folder),
            "probe_every_s": probe_every_s,
            "args": args or {},
        }
        process = self._fork(boot, lambda: actor, None)
        self._run(process, lambda: self._boot(process))
        if process.pid in self._processes:
            self.board.set_state(slot, ActorState.RUNNING)
        started = process.actor
        assert isinstance(started, actor)
        return started

    def actor(self, name: str) -> Any:
        """The living actor that has the name."""
        return self._process(name).actor

    def is_alive(self, name: str) -> bool:
        """Whether a process has the name, hung or not."""
        slot = self.board.find(name)
        return any(process.identity.slot == slot for process in self._processes.values())

    def row(self, name: str) -> Vitals:
        """The row of a name."""
        slot = self.board.find(name)
        if slot is None:
            raise AssertionError(f"no row has the name {name!r}; the board has {self._names()}")
        return self.board.vitals(slot)

    def end(self, name: str) -> None:
        """End the process that has the name, for a test that does not care how."""
        self.kill(name)

    def kill(self, name: str) -> None:
        """SIGKILL the process that has the name."""
        self._end(self._process(name), -signal.SIGKILL)

    def exit(self, name: str, returncode: int) -> None:
        """End the process as its own runtime would; a negative number is a signal."""
        process = self._process(name)
        if returncode >= 0:
            self.board.note_own_exit(process.identity.slot, returncode)
        self._end(process, returncode)

    def hang(self, name: str, *, handler: str = "") -> None:
        """Suspend the process: it gives no beat or, with `handler`, beats but stays in that handler."""
        process = self._process(name)
        process.is_hung = True
        if handler:
            self.board.set(process.identity.slot, handler=handler, busy_since_ns=self.board.now_ns())

    def resume(self, name: str) -> None:
        """Let a hung process run again."""
        process = self._process(name)
        process.is_hung = False
        self.board.set(process.identity.slot, busy_since_ns=0)

    # ---- mail, turns, time ----

    def ask(self, to: str, content: Any, *, deadline_s: float | None = None) -> Future[Any]:
        return self._asker.ask(to, content, deadline_s=deadline_s)

    def tell(self, to: str, content: Any) -> bool:
        return self._asker.tell(to, content)

    def settle(self) -> None:
        """Run turns until no actor has mail or a due timer left."""
        for _ in range(MAX_TURNS):
            busy = self._busy()
            if not busy:
                return
            for process in busy if self._random is None else [self._random.choice(busy)]:
                if process.pid in self._processes:
                    self._turn(process)
        names = [process.identity.name for process in busy]
        raise AssertionError(f"{names} still had something to do after {MAX_TURNS} turns")

    def turn(self, name: str) -> None:
        """Run one turn of one actor."""
        self._turn(self._process(name))

    def advance(self, seconds: float) -> None:
        """Move the clock from timer to timer, and run each at its own moment."""
        end_s = self.clock.monotonic_s() + seconds
        self.settle()
        while (due_s := self._next_timer_s()) <= end_s:
            self._pass(max(0.0, due_s - self.clock.monotonic_s()))
            self.settle()
        self._pass(end_s - self.clock.monotonic_s())

    def finish_work(self, name: str, is_done: Callable[[], bool]) -> None:
        """Wait in real time for results of the actor's worker threads, until `is_done()` is true."""
        self.settle()
        while not is_done():
            if not self._process(name).runtime.readable(WORK_DEADLINE_S):
                raise AssertionError(f"no work of {name!r} was done within {WORK_DEADLINE_S} s")
            self.settle()

    # ---- called by the runtimes of its actors ----

    def spawned(self, boot: Mapping[str, Any]) -> InMemoryChild:
        """Spawn a child process of an actor; a live one starts in its first turn."""
        pid = self._next_pid()
        if self._has_live_children:
            live = LiveChild(boot, pid, lambda: self._end(process, -signal.SIGKILL))
            process = self._fork(boot, lambda: actor_class(boot["actor"]), live)
            self._children.append(live)
            return live
        child = InMemoryChild(boot, pid)
        self._children.append(child)
        self._ended_fds[pid] = os.dup(child.pidfd)
        return child

    def pidfd(self, pid: int) -> int:
        """A descriptor that is readable once that process has ended."""
        if pid not in self._ended_fds:
            raise ProcessLookupError(f"this in-memory system has no process {pid}")
        return os.dup(self._ended_fds[pid])

    # ---- inside: processes ----

    def _fork(
        self,
        boot: Mapping[str, Any],
        find_class: Callable[[], type[Actor]],
        child: InMemoryChild | None,
    ) -> _Process:
        identity = identity_of(boot)
        runtime = InMemoryRuntime(self, identity.slot)
        mail = Mail(self.board, identity.mail_dir, KEY, carrier=MemoryCarrier(self._sockets))
        process = _Process(
            pid=self._next_pid() if child is None else child.pid,
            identity=identity,
            runtime=runtime,
            mail=mail,
            child=child,
            make=lambda: find_class()(
                identity, boot["args"], board=self.board, mail=mail, clock=self.clock, runtime=runtime
            ),
        )
        self._processes[process.pid] = process
        self._ended_fds[process.pid] = os.eventfd(0) if child is None else os.dup(child.pidfd)
        self.runtimes[identity.name] = runtime
        return process

    def _boot(self, process: _Process) -> None:
        identity = process.identity
        self.board.set(identity.slot, pid=process.pid, beat_ns=self.board.now_ns())
        self.board.clear_gauges(identity.slot)
        process.actor = process.make()
        process.actor.boot(process.mail.bind(identity.slot, identity.incarnation))

    def _end(self, process: _Process, returncode: int) -> None:
        """End a process and, as the kernel does, its children; its pidfd becomes readable."""
        if self._processes.pop(process.pid, None) is None:
            return
        process.close()
        os.eventfd_write(self._ended_fds[process.pid], 1)
        os.close(self._ended_fds.pop(process.pid))
        for child in process.runtime.spawned:
            if child.pid in self._processes:
                self._end(self._processes[child.pid], -signal.SIGKILL)
        if process.child is not None:
            process.child.end(returncode)
        else:
            slot, incarnation = process.identity.slot, process.identity.incarnation
            self.board.note_end(slot, incarnation, str(exit_reason_of(returncode)))
            self.board.set_state(slot, ActorState.STOPPED, ready=0)

    def _process(self, name: str) -> _Process:
        slot = self.board.find(name)
        for process in reversed(self._processes.values()):
            if process.identity.slot == slot:
                return process
        raise AssertionError(f"no process has the name {name!r}; running are {self._names()}")

    def _names(self) -> list[str]:
        return [self.board.get(process.identity.slot, "name") for process in self._processes.values()]

    def _next_pid(self) -> int:
        self._pids += 1
        return FIRST_PID + self._pids

    # ---- inside: turns ----

    def _busy(self) -> list[_Process]:
        """The processes that have something to do now, in the order of names."""
        readable = self._readable()
        now_s = self.clock.monotonic_s()
        busy = [
            process
            for process in self._awake()
            if process.actor is None
            or process.runtime.wake_s <= now_s
            or self._socket(process).frames
            or not readable.isdisjoint(process.runtime.watched)
        ]
        return sorted(busy, key=lambda process: (process.identity.name, process.pid))

    def _readable(self) -> set[int]:
        return set(_readable_of(fd for process in self._processes.values() for fd in process.runtime.watched))

    def _turn(self, process: _Process) -> None:
        if process.actor is None:
            self._run(process, lambda: self._boot(process))
            return
        runtime, socket = process.runtime, self._socket(process)
        runtime.wake_s = float("inf")
        ready = runtime.readable()
        if self._random is not None:
            ready, socket.hidden = self._some_of(ready, len(socket.frames))
        self._run(process, lambda: self._take_turn(process, ready))
        socket.hidden = 0

    def _some_of(self, ready: list[int], frames: int) -> tuple[list[int], int]:
        """Draw which descriptors a turn sees, and how many frames it does not see yet."""
        assert self._random is not None
        seen = [fd for fd in ready if self._random.random() < 0.5]
        return seen, self._random.randint(0, frames)

    @staticmethod
    def _take_turn(process: _Process, ready: list[int]) -> None:
        assert process.actor is not None
        for fd in ready:
            if fd in process.runtime.watched:
                process.runtime.watched[fd]()
        process.actor.turn()

    def _run(self, process: _Process, what: Callable[[], None]) -> None:
        process.runtime.is_running = True
        try:
            what()
        except ProcessExit:
            assert process.runtime.exit_code is not None
            self._end(process, process.runtime.exit_code)
        except BaseException as error:
            self._crash(process, error)
            if process.child is None:
                raise
        finally:
            process.runtime.is_running = False

    def _crash(self, process: _Process, error: BaseException) -> None:
        leave_last_words(process.identity, crash_report(error))
        if isinstance(error, WorkOverdue):
            self.board.note_own_exit(process.identity.slot, EXIT_OVERDUE)
            self._end(process, EXIT_OVERDUE)
        else:
            self._end(process, EXIT_CRASHED)

    def _socket(self, process: _Process) -> MemorySocket:
        return self._sockets.setdefault((process.identity.slot, process.identity.incarnation), MemorySocket())

    # ---- inside: time ----

    def _awake(self) -> Iterator[_Process]:
        return (process for process in self._processes.values() if not process.is_hung)

    def _next_timer_s(self) -> float:
        return min((process.runtime.wake_s for process in self._awake()), default=float("inf"))

    def _pass(self, seconds: float) -> None:
        """Move the clock; every process that is not stopped beats."""
        self.clock.advance(seconds)
        for process in self._processes.values():
            slot = process.identity.slot
            if not process.is_hung or self.board.get(slot, "busy_since_ns"):
                self.board.set(slot, beat_ns=self.board.now_ns())


def _readable_of(fds: Iterable[int], timeout_s: float = 0.0) -> list[int]:
    """The descriptors that are readable. A mailbox in memory has a negative number and is skipped."""
    real = [fd for fd in fds if fd >= 0]
    if not real:
        return []
    poll = select.poll()
    for fd in real:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout_s * 1000)]
