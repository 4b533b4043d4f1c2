"""Two worlds for one truth table: a supervision tree on the bench, and the same tree of real processes.

A scenario says what is to happen and what must come of it; it waits with `until`, which moves the manual
clock on the bench and really waits for processes. So nothing in a scenario depends on how fast a machine is.
"""

import contextlib
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from actors.actor import Actor, Sender, Stop, receives
from actors.board import ActorState, Vitals
from actors.codec import message
from actors.future import Future
from actors.process import EXIT_SHUTDOWN, is_alive
from actors.testing import InMemorySystem
from supervision import reports
from supervision.child_spec import Backoff, ChildSpec, SupervisorFlags
from supervision.messages import ChildCounts, ChildInfo, Children, CountChildren, WhichChildren
from supervision.reports import SupervisorReport
from supervision.supervisor import Supervisor, supervisor_args, supervisor_spec
from tests.fault.actors_under_test import PATIENCE_S, eventually, started

F = TypeVar("F", bound=Callable[..., Any])

ROOT = "root"
SUBJECT = f"{__name__}:Subject"
FOR_EVER_S = 1e6
BENCH_PATIENCE_S = 120.0
BENCH_STEP_S = 0.05

SOON = Backoff(initial_s=0.02, factor=1.0, max_s=0.02, jitter=0.0)
"""A restart that fails over and over leaves the rest of the world some air."""


def case(*names: str) -> Callable[[F], F]:
    """Mark a test with the cases of OTP's or Elixir's suite it answers; `docs/conformance.md` lists them."""

    def mark(test: F) -> F:
        test.__dict__["cases"] = names
        return test

    return mark


# ---- the actor under supervision ----


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Answered by itself."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End by itself: normal, shutdown, crash (an exception), or exit (with code 3)."""

    how: str


class Subject(Actor):
    """Writes down its starts and stops.

    args   `starts`: how each of its starts goes, the last one for all that follow: well, crash, exit, ignore,
           never; `stop`: how it takes to being stopped: well, crash, exit, never, or seconds
    """

    def on_start(self) -> Any:
        self.note("starts")
        starts = self.args.get("starts", ["well"])
        match starts[min(self.identity.incarnation, len(starts)) - 1]:
            case "ignore":
                self.ignore()
            case "never":
                return self.sleep(FOR_EVER_S)
            case "crash" | "exit" as how:
                self.perish(how)
        return None

    async def on_stop(self) -> None:
        self.note("stops")
        match self.args.get("stop", "well"):
            case "never":
                await self.sleep(FOR_EVER_S)
            case "crash" | "exit" as how:
                self.perish(how)
            case float(seconds):
                await self.sleep(seconds)
        self.note("stopped")

    @receives(Ping)
    def ping(self, call: Ping, _: Sender) -> Ping:
        return call

    @receives(End)
    def end(self, call: End, _: Sender) -> None:
        self.perish(call.how)

    def perish(self, how: str) -> None:
        match how:
            case "normal":
                self.runtime.exit(0)
            case "shutdown":
                self.runtime.exit(EXIT_SHUTDOWN)
            case "exit":
                self.runtime.exit(3)
        raise ZeroDivisionError("asked to")

    def note(self, what: str) -> None:
        with (self.identity.run_dir / "story").open("a") as file:
            file.write(f"{self.identity.name} {what}\n")


def child(id_: str, *, starts: list[str] | None = None, stop: str | float = "well", **spec: Any) -> ChildSpec:
    """A Subject's spec. It is given time to start and to stop, and restarts at once."""
    args = {"starts": starts or ["well"], "stop": stop}
    defaults = {"shutdown_s": 20.0, "backoff": Backoff(initial_s=0.0, max_s=0.0), "hang_deadline_s": 1000.0}
    return ChildSpec(id=id_, actor=SUBJECT, args=args, **defaults | spec)


def below(id_: str, *children: ChildSpec, spec: dict[str, Any] | None = None, **flags: Any) -> ChildSpec:
    """A supervisor as a child."""
    return supervisor_spec(
        id_, SupervisorFlags(**flags), children, **{"hang_deadline_s": 1000.0} | (spec or {})
    )


# ---- worlds ----


class World(ABC):
    """A root supervisor, what is below it, and someone beside it who asks."""

    folder: Path

    def grow(self, *specs: ChildSpec, **flags: Any) -> None:
        """Start the root; return when it is up, or has ended."""
        self.start(SupervisorFlags(**{"max_restarts": 100, "max_seconds": 1000.0} | flags), specs)
        self.until(lambda: self.has_ended() or self.row(ROOT).ready, "the root is up, or at its end")

    @abstractmethod
    def start(self, flags: SupervisorFlags, specs: tuple[ChildSpec, ...]) -> None: ...

    @abstractmethod
    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Let the world go on until something holds."""

    @abstractmethod
    def asked(self, content: Any, to: str = ROOT) -> Future[Any]: ...

    @abstractmethod
    def result(self, answer: Future[Any]) -> Any: ...

    @abstractmethod
    def tell(self, name: str, content: Any) -> None: ...

    @abstractmethod
    def row(self, name: str) -> Vitals: ...

    @abstractmethod
    def kill(self, name: str) -> None: ...

    @abstractmethod
    def hang(self, name: str) -> None:
        """It does nothing any more, without a word."""

    @abstractmethod
    def is_alive(self, name: str) -> bool: ...

    @abstractmethod
    def has_ended(self) -> bool: ...

    @abstractmethod
    def ending(self) -> str:
        """Why the root ended; empty for: it was told to."""

    # ---- in terms of these ----

    def call(self, content: Any, to: str = ROOT) -> Any:
        return self.result(self.asked(content, to))

    def which(self, supervisor: str = ROOT) -> dict[str, ChildInfo]:
        """Newest first, as it was answered."""
        answer: Children = self.call(WhichChildren(), supervisor)
        return {info.id: info for info in answer.children}

    def counts(self, supervisor: str = ROOT) -> ChildCounts:
        answer: ChildCounts = self.call(CountChildren(), supervisor)
        return answer

    def state(self, id_: str, supervisor: str = ROOT) -> str:
        info = self.which(supervisor).get(id_)
        return "gone" if info is None else info.state

    def until_state(self, id_: str, state: str, supervisor: str = ROOT) -> None:
        self.until(lambda: self.state(id_, supervisor) == state, f"{id_} is {state}")

    def is_up(self, name: str) -> bool:
        row = self.row(name)
        return row.ready and row.state is ActorState.RUNNING

    def lives(self, *names: str) -> tuple[int, ...]:
        """Which incarnation each of them is in."""
        return tuple(self.row(name).incarnation for name in names)

    def end(self, name: str, how: str) -> None:
        """It ends by itself, or is killed."""
        if how == "kill":
            self.kill(name)
        else:
            self.tell(name, End(how=how))

    def end_and_await_next(self, name: str, how: str) -> None:
        """It ends and comes back."""
        before = self.row(name).incarnation
        self.end(name, how)
        self.until(lambda: self.row(name).incarnation > before and self.is_up(name), f"{name} is back")

    def end_for_good(self, name: str, how: str, state: str, supervisor: str = ROOT) -> None:
        """It ends and stays down."""
        self.end(name, how)
        self.until_state(name, state, supervisor)

    def until_ended(self) -> str:
        self.until(self.has_ended, "the root has ended")
        return self.ending()

    def stop(self) -> str:
        self.tell(ROOT, Stop())
        return self.until_ended()

    def story(self, *whats: str) -> list[str]:
        """Who started and who stopped, in order."""
        path = self.folder / "story"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.split()[1] in (whats or ("starts", "stops", "stopped"))]

    def new_story(self) -> None:
        (self.folder / "story").unlink(missing_ok=True)

    def reports(self, supervisor: str = ROOT) -> list[SupervisorReport]:
        return list(reports.read(self.folder, supervisor))

    def reported(self, context: str, supervisor: str = ROOT) -> list[tuple[str, str]]:
        """(who, why) of each report of one context."""
        return [(r.offender.id, r.reason) for r in self.reports(supervisor) if r.context == context]


class BenchWorld(World):
    """In one process, under the manual clock."""

    def __init__(self, folder: Path, seed: int | None = None) -> None:
        self.folder = folder
        self.bench = InMemorySystem(folder, seed=seed, live_children=True)

    def start(self, flags: SupervisorFlags, specs: tuple[ChildSpec, ...]) -> None:
        self.bench.start(Supervisor, ROOT, supervisor_args(flags, specs))

    def until(self, holds: Callable[[], bool], what: str) -> None:
        give_up_s = self.bench.clock.monotonic_s() + BENCH_PATIENCE_S
        self.bench.settle()
        while not holds():
            if self.bench.clock.monotonic_s() > give_up_s:
                rows = "\n".join(
                    f"{r.name}.{r.incarnation} {r.state} {r.last_reason}" for r in self.bench.board.rows()
                )
                raise AssertionError(f"not within {BENCH_PATIENCE_S} s of the manual clock: {what}\n{rows}")
            self.bench.advance(BENCH_STEP_S)

    def asked(self, content: Any, to: str = ROOT) -> Future[Any]:
        return self.bench.ask(to, content, deadline_s=BENCH_PATIENCE_S)

    def result(self, answer: Future[Any]) -> Any:
        self.until(lambda: answer.is_done, "the answer is there")
        return answer.result()

    def tell(self, name: str, content: Any) -> None:
        self.bench.tell(name, content)

    def row(self, name: str) -> Vitals:
        return self.bench.row(name)

    def kill(self, name: str) -> None:
        self.bench.kill(name)

    def hang(self, name: str) -> None:
        self.bench.hang(name)

    def is_alive(self, name: str) -> bool:
        return self.bench.is_alive(name)

    def has_ended(self) -> bool:
        return not self.bench.is_alive(ROOT)

    def ending(self) -> str:
        return self.row(ROOT).last_reason

    def close(self) -> None:
        self.bench.__exit__()


class ProcessWorld(World):
    """Real processes, real signals, real time."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()

    def start(self, flags: SupervisorFlags, specs: tuple[ChildSpec, ...]) -> None:
        self.under_test = self._open.enter_context(started(*specs, flags=flags))
        self.folder = self.under_test.system.run_dir

    def until(self, holds: Callable[[], bool], what: str) -> None:
        eventually(holds, what, self.under_test.explain)

    def asked(self, content: Any, to: str = ROOT) -> Future[Any]:
        return self.under_test.probe.actor.ask(to, content, deadline_s=PATIENCE_S)

    def result(self, answer: Future[Any]) -> Any:
        return self.under_test.probe.result(answer)

    def tell(self, name: str, content: Any) -> None:
        self.under_test.probe.tell(name, content)

    def row(self, name: str) -> Vitals:
        return self.under_test.row(name)

    def kill(self, name: str) -> None:
        self.under_test.kill(name)

    def hang(self, name: str) -> None:
        self.under_test.kill(name, signal.SIGSTOP)

    def is_alive(self, name: str) -> bool:
        return is_alive(self.row(name).pid)

    def has_ended(self) -> bool:
        return self.under_test.system.wait(0.0)

    def ending(self) -> str:
        return self.under_test.system.verdict()

    def close(self) -> None:
        self._open.close()
