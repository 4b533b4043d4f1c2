"""Actors that misbehave on demand, trees to put them in, and a probe that asks them from the test process."""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from thespian.actors import ActorExitRequest

from actors.actor import Actor, Sender, receives
from actors.board import LAUNCHER, ActorState, Board, Vitals
from actors.clock import SystemClock
from actors.codec import message
from actors.future import Future
from actors.mail import Mail
from actors.process import is_alive
from actors.runtime import Identity
from actors.system import ActorSystem, RootSpec
from supervision.child_spec import Backoff, ChildSpec, SupervisorFlags
from supervision.supervisor import supervisor_args, supervisor_spec
from tests.patience import slowness

PATIENCE_S = 20.0
"""For what takes milliseconds on a machine that has nothing else to do; waits stretch it on a busy one."""

WORK_DEADLINE_S = 5.0
"""The deadline of `_work_slowly`."""

WORKER = f"{__name__}:Worker"


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Answered by Me."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    pid: int
    incarnation: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """Answered by itself."""

    text: str = ""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Misbehave:
    how: str


class Worker(Actor):
    """Answers, and dies as asked. args: `starts_that_fail` or `_work`, where they are counted, how."""

    def on_start(self) -> None:
        fail, work = self.args.get("starts_that_fail", 0), self.args.get("starts_that_work", 0)
        if fail or work:
            started = Path(self.args["count_in"])
            with started.open("a") as file:
                file.write("x")
            if len(started.read_text()) <= fail or len(started.read_text()) > work > 0:
                misbehave(self.args["how"])

    @receives(Who)
    def who(self, call: Who, sender: Sender) -> Me:
        return Me(pid=os.getpid(), incarnation=self.identity.incarnation)

    @receives(Echo)
    async def echo(self, call: Echo, sender: Sender) -> Echo:
        if call.text == "slow":
            await self.sleep(1.0)
        return call

    @receives(Misbehave)
    async def misbehave(self, call: Misbehave, sender: Sender) -> None:
        if call.how == "never answer":
            await self.sleep(1e6)
        if call.how == "use":
            self.used()
            return
        if call.how == "overrun":
            await self.in_thread(_work_slowly, name="slow work", deadline_s=0.1)
            return
        if call.how == "work":
            await self.in_thread(_work_slowly, name="slow work", deadline_s=WORK_DEADLINE_S)
            return
        misbehave(call.how)


class Forker(Actor):
    """Stays in Thespian's loop, as supervisors do, until it is told to leave it."""

    forks: ClassVar[bool] = True

    @receives(Misbehave)
    def misbehave(self, call: Misbehave, sender: Sender) -> None:
        shell: Any = self.runtime
        shell.send(shell.myAddress, ActorExitRequest())


class Job(Actor):
    """Ends by itself, normally, at once."""

    def on_start(self) -> None:
        self.after(0.0, self.stop)


def _work_slowly() -> None:
    """Work for about two seconds, and for as much longer as the process is suspended meanwhile."""
    for _ in range(100):
        time.sleep(0.02)


def misbehave(how: str) -> None:
    match how:
        case "raise":
            raise ZeroDivisionError("asked to")
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "loop":
            while True:
                pass
        case "sleep":
            time.sleep(1e6)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case _:
            raise AssertionError(how)


# ---- trees ----


WORKER_LIMITS: dict[str, Any] = {
    "start_deadline_s": 3 * PATIENCE_S,
    "shutdown_s": 2.0,
    "backoff": Backoff(initial_s=0.0, max_s=0.0),  # these tests fail far too often
}


def worker(id_: str, **spec: Any) -> ChildSpec:
    return ChildSpec(**{"id": id_, "actor": WORKER} | WORKER_LIMITS | spec)


def pool(id_: str, *children: ChildSpec, max_restarts: int = 100, **spec: Any) -> ChildSpec:
    flags = SupervisorFlags(ordered=False, max_restarts=max_restarts, max_seconds=60.0)
    return supervisor_spec(id_, flags, children, **spec)


class Running:
    """A system under test with a probe beside it."""

    def __init__(self, system: ActorSystem, mail_dir: Path) -> None:
        self.system = system
        self.mail_dir = mail_dir
        self.probe = Probe(system.run_dir, mail_dir)

    def row(self, name: str) -> Vitals:
        slot = self.system.board.find(name)
        assert slot is not None, f"{name} is not on the board"
        return self.system.board.vitals(slot)

    def pid(self, name: str) -> int:
        return self.row(name).pid

    def is_up(self, name: str) -> bool:
        slot = self.system.board.find(name)
        return slot is not None and self.row(name).state is ActorState.RUNNING and self.row(name).ready

    def await_up(self, *names: str) -> None:
        eventually(lambda: all(self.is_up(name) for name in names), f"{names} are up", self.explain)

    def await_new(self, name: str, old: Vitals, within_s: float = PATIENCE_S) -> Vitals:
        """The next incarnation, up."""
        eventually(
            lambda: self.row(name).incarnation > old.incarnation and self.is_up(name),
            f"{name} is back",
            self.explain,
            within_s,
        )
        return self.row(name)

    def kill(self, name: str, number: int = signal.SIGKILL) -> Vitals:
        before = self.row(name)
        os.kill(before.pid, number)
        return before

    def admin_pid(self) -> int:
        return int((self.system.run_dir / "admin.pid").read_text())

    def explain(self) -> str:
        return "\n".join(
            f"{r.name}: {r.state} ready={r.ready} pid={r.pid} inc={r.incarnation} {r.last_reason}"
            for r in self.system.board.rows()
        )


@contextlib.contextmanager
def started(*children: ChildSpec, flags: SupervisorFlags | None = None) -> Iterator[Running]:
    """A system with these children below its root, up or not; every process of it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="fault-", dir="/tmp"))  # the path of a socket is short
    (folder / "mail").mkdir()
    args = supervisor_args(flags or SupervisorFlags(max_restarts=100, max_seconds=60.0), children)
    root = RootSpec(name="root", actor="supervision.supervisor:Supervisor", args=args)
    try:
        system = ActorSystem(folder, folder / "mail", root, prints_reports=False)
        with system:
            under_test = Running(system, folder / "mail")
            try:
                yield under_test
            finally:
                under_test.probe.close()
                pids = [row.pid for row in system.board.rows() if row.pid]
        eventually(lambda: not any(is_alive(pid) for pid in pids), "every process is gone", lambda: str(pids))
        system.board.close()
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def running(*children: ChildSpec, flags: SupervisorFlags | None = None) -> Iterator[Running]:
    """A started system whose children are up."""
    with started(*children, flags=flags) as system:
        system.await_up("root")
        yield system


def eventually(
    holds: Callable[[], bool], what: str, explain: Callable[[], str] = str, within_s: float = PATIENCE_S
) -> float:
    """Wait until it holds; how long that took, in seconds."""
    started = time.monotonic()
    while not holds():
        if (waited_s := time.monotonic() - started) > within_s * slowness():
            raise AssertionError(f"not within {waited_s:.1f} s: {what}\n{explain()}")
        time.sleep(0.005)
    return time.monotonic() - started


# ---- the probe ----


class _LoopRuntime:
    """Just enough of a process around an actor: descriptors and one moment to wake at."""

    def __init__(self) -> None:
        self.fds: dict[int, Callable[[], None]] = {}
        self.wake_s = float("inf")

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        self.fds[fd] = ready

    def unwatch(self, fd: int) -> None:
        self.fds.pop(fd, None)

    def wake_at(self, monotonic_s: float) -> None:
        self.wake_s = min(self.wake_s, monotonic_s)

    def spawn(self, boot: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def pidfd(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def exit(self, code: int) -> None:
        raise NotImplementedError


class Probe:
    """An actor in the test's own process that asks the system under test by mail."""

    def __init__(self, run_dir: Path, mail_dir: Path) -> None:
        self._board = Board(run_dir / "board")
        slot = self._board.claim("probe", "test")
        incarnation = self._board.get(slot, "incarnation") + 1
        self._board.set_state(slot, ActorState.RUNNING, incarnation=incarnation)
        self._runtime = _LoopRuntime()
        self._mail = Mail(self._board, mail_dir, (run_dir / "key").read_bytes())
        identity = Identity(
            name="probe",
            parent=LAUNCHER,
            slot=slot,
            incarnation=incarnation,
            run_dir=run_dir,
            mail_dir=mail_dir,
        )
        self.actor = Actor(
            identity, {}, board=self._board, mail=self._mail, clock=SystemClock(), runtime=self._runtime
        )
        self.actor.boot(self._mail.bind(slot, incarnation))

    def ask(self, to: str, content: Any, deadline_s: float | None = None) -> Any:
        """The answer, or what came instead."""
        patience_s = PATIENCE_S * slowness() if deadline_s is None else deadline_s
        return self.result(self.actor.ask(to, content, deadline_s=patience_s))

    def result(self, completion: Future[Any]) -> Any:
        began = time.monotonic()
        while not completion.is_done:
            assert time.monotonic() - began < 3 * PATIENCE_S * slowness(), "the ask never ended"
            wait_s = max(0.0, min(0.1, self._runtime.wake_s - time.monotonic()))
            self._runtime.wake_s = float("inf")
            ready = select.poll()  # `select.select` takes no descriptor above 1023
            for fd in self._runtime.fds:
                ready.register(fd, select.POLLIN)
            for fd, _ in ready.poll(1000 * wait_s):
                self._runtime.fds[fd]()
            self.actor.turn()
        return completion.result()

    def tell(self, to: str, content: Any) -> bool:
        return self.actor.tell(to, content)

    def close(self) -> None:
        self.actor.let_go()
        self._mail.close()
        self._board.close()
