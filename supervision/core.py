"""The supervisor's decisions: a state machine without processes, time or I/O of its own.

Feed it what happened (`ready`, `exited`, `hung`, `stop`, `tick`), each with the
time; it answers with what to do (`Spawn`, `Stop`, `Kill`, `Report`, `Finish`).
Every child has a target (up, down, or bounce: down and up again) and a status;
after each event the machine reconciles the two in the order OTP demands: start
left to right, stop right to left, one at a time unless the children are equals.

Source of the semantics: OTP `supervisor` (restart types, strategies, restart
intensity, shutdown), Elixir `Supervisor` (names and defaults).
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from supervision.backoff import backoff_s
from supervision.budget import add_restart
from supervision.child_spec import ChildSpec, Restart, Strategy, SupervisorFlags, check_unique_ids


class Status(StrEnum):
    """Where a child's process is."""

    DOWN = "down"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Target(StrEnum):
    """Where a child should be."""

    UP = "up"
    DOWN = "down"
    BOUNCE = "bounce"
    """Down first, then up: a sibling's failure takes it along."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process for the child."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Tell the child to end by itself."""

    id: str


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL the child's process."""

    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """OTP's supervisor report: context, reason, offender (the supervisor adds itself)."""

    context: str
    reason: str
    offender: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The supervisor itself ends; all children are down. normal: it was told to, or its work is done."""

    normal: bool
    reason: str


Action = Spawn | AskToStop | Kill | Report | Finish


@dataclass(slots=True)
class Child:
    """One child as the machine knows it."""

    spec: ChildSpec
    target: Target = Target.UP
    status: Status = Status.DOWN
    incarnation: int = 0
    restarts: int = 0
    failures_in_row: int = 0
    since_s: float = 0.0
    """When the status began."""
    start_at_s: float = 0.0
    """Not to be started before (backoff)."""
    stop_by_s: float = 0.0
    last_reason: str = ""
    was_ready: bool = False
    """It has been up at least once in this supervisor's life."""


@dataclass(slots=True)
class SupervisorCore:
    """State of one supervisor. Not thread-safe; one owner."""

    flags: SupervisorFlags
    specs: tuple[ChildSpec, ...]
    draw: Callable[[], float] = random.random
    children: dict[str, Child] = field(init=False)
    restarts: tuple[float, ...] = ()
    finishing: Finish | None = None
    is_finished: bool = False

    def __post_init__(self) -> None:
        check_unique_ids(self.specs)
        self.children = {spec.id: Child(spec) for spec in self.specs}

    # ---- events ----

    def tick(self, now_s: float) -> list[Action]:
        """Time passed: start what is due, kill what is overdue."""
        return [*self._overdue(now_s), *self._reconcile(now_s)]

    def ready(self, id_: str, incarnation: int, now_s: float) -> list[Action]:
        """A child finished its start."""
        child = self.children[id_]
        if child.status is Status.STARTING and child.incarnation == incarnation:
            self._move(child, Status.RUNNING, now_s)
            child.was_ready = True
        return self._reconcile(now_s)

    def hung(self, id_: str, incarnation: int, why: str, now_s: float) -> list[Action]:
        """A child stopped beating or is stuck. Its exit arrives as `exited` like any other."""
        child = self.children[id_]
        if child.status is not Status.RUNNING or child.incarnation != incarnation:
            return []
        child.last_reason = why
        return [Kill(id_, why)]

    def exited(self, id_: str, incarnation: int, reason: str, normal: bool, now_s: float) -> list[Action]:
        """A child's process ended. A late notice of an older incarnation changes nothing."""
        child = self.children[id_]
        if child.incarnation != incarnation or child.status is Status.DOWN:
            return []
        was = child.status
        ran_s = now_s - child.since_s if was is Status.RUNNING else 0.0
        self._move(child, Status.DOWN, now_s)
        if was is Status.STOPPING or child.target is not Target.UP:
            # It was to go down anyway: however it ended, that is no failure of its own.
            if child.target is Target.BOUNCE:
                child.target = Target.UP
            return self._reconcile(now_s)
        if self.flags.ordered and not child.was_ready and not normal:
            return self._failed_to_start(child, reason, now_s)
        actions = self._failed_or_done(child, reason, normal, ran_s, now_s)
        return [*actions, *self._reconcile(now_s)]

    def stop(self, reason: str, now_s: float, *, normal: bool = True) -> list[Action]:
        """Bring every child down, in reverse order, then finish."""
        if self.finishing is None:
            self.finishing = Finish(normal=normal, reason=reason)
        for child in self.children.values():
            child.target = Target.DOWN
        return self._reconcile(now_s)

    def next_wake_s(self) -> float:
        """When `tick` has something to do even if nothing happens."""
        moments = [float("inf")]
        for child in self.children.values():
            if child.status is Status.STARTING:
                moments.append(child.since_s + child.spec.start_deadline_s)
            elif child.status is Status.STOPPING:
                moments.append(child.stop_by_s)
        moments += [child.start_at_s for child in self._next_to_start()]
        return min(moments)

    # ---- decisions ----

    def _failed_or_done(
        self, child: Child, reason: str, normal: bool, ran_s: float, now_s: float
    ) -> list[Action]:
        child.last_reason = reason
        report = Report("child_terminated", reason, child.spec.id)
        if not _is_restarted(child.spec.restart, normal):
            child.target = Target.DOWN
            done = [] if normal else [report]
            if child.spec.significant:
                return [*done, *self.stop(f"significant child {child.spec.id!r} ended: {reason}", now_s)]
            return list(done)
        self.restarts, in_budget = add_restart(
            self.restarts, now_s, max_restarts=self.flags.max_restarts, max_seconds=self.flags.max_seconds
        )
        if not in_budget:
            why = (
                f"child {child.spec.id!r} failed once more ({reason}): "
                f"over {self.flags.max_restarts} restarts in {self.flags.max_seconds:g} s"
            )
            return [report, Report("shutdown", why, child.spec.id), *self.stop(why, now_s, normal=False)]
        self._plan_restart(child, ran_s, now_s)
        return [report]

    def _failed_to_start(self, child: Child, reason: str, now_s: float) -> list[Action]:
        """A first start that fails would fail the same way again: no budget is spent on it (OTP)."""
        child.last_reason = reason
        why = f"child {child.spec.id!r} failed to start: {reason}"
        return [Report("start_error", reason, child.spec.id), *self.stop(why, now_s, normal=False)]

    def _plan_restart(self, child: Child, ran_s: float, now_s: float) -> None:
        policy = child.spec.backoff
        child.failures_in_row = 1 if ran_s >= policy.reset_after_s else child.failures_in_row + 1
        child.restarts += 1
        child.start_at_s = now_s + backoff_s(policy, child.failures_in_row, self.draw())
        for sibling in self._taken_along(child):
            if sibling.spec.restart is Restart.TEMPORARY:
                sibling.target = Target.DOWN
            elif sibling.status is not Status.DOWN:
                sibling.target = Target.BOUNCE
                sibling.restarts += 1
                sibling.last_reason = f"restarted along with {child.spec.id!r}"

    def _taken_along(self, failed: Child) -> Iterator[Child]:
        after = False
        for child in self.children.values():
            if child is failed:
                after = True
            elif self.flags.strategy is Strategy.ONE_FOR_ALL or (
                self.flags.strategy is Strategy.REST_FOR_ONE and after
            ):
                yield child

    def _overdue(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for child in self.children.values():
            spec = child.spec
            if child.status is Status.STARTING and now_s >= child.since_s + spec.start_deadline_s:
                actions.append(Kill(spec.id, f"not ready within {spec.start_deadline_s:g} s"))
            elif child.status is Status.STOPPING and now_s >= child.stop_by_s:
                actions.append(Kill(spec.id, f"did not stop within {spec.shutdown_s:g} s"))
        return actions

    # ---- reconciliation ----

    def _reconcile(self, now_s: float) -> list[Action]:
        if self.is_finished:
            return []
        stops = self._stops(now_s)
        if stops:
            return stops
        if self.finishing is not None:
            if all(child.status is Status.DOWN for child in self.children.values()):
                self.is_finished = True
                return [self.finishing]
            return []
        return self._starts(now_s)

    def _stops(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for child in reversed(self.children.values()):
            if self.flags.ordered and child.status is Status.STOPPING:
                break  # one after the other
            if child.target is Target.UP or child.status not in (Status.STARTING, Status.RUNNING):
                continue
            actions.append(self._stop_one(child, now_s))
            if self.flags.ordered:
                break
        return actions

    def _stop_one(self, child: Child, now_s: float) -> Action:
        may_end_by_itself = child.status is Status.RUNNING and child.spec.shutdown_s > 0
        self._move(child, Status.STOPPING, now_s)
        child.stop_by_s = now_s + child.spec.shutdown_s
        if may_end_by_itself:
            return AskToStop(child.spec.id)
        return Kill(child.spec.id, "stopped by its supervisor")

    def _starts(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for child in self._next_to_start():
            if now_s >= child.start_at_s:
                child.incarnation += 1
                self._move(child, Status.STARTING, now_s)
                actions.append(Spawn(child.spec.id, child.incarnation))
        return actions

    def _next_to_start(self) -> Iterator[Child]:
        """Those down that should be up and wait for nobody; at most for their own backoff."""
        are_independent = not self.flags.ordered and self.flags.strategy is Strategy.ONE_FOR_ONE
        if not are_independent and any(c.status is Status.STOPPING for c in self.children.values()):
            return  # nobody starts before all who are taken along are down
        for child in self.children.values():
            if child.target is not Target.UP:
                continue
            if child.status is Status.DOWN:
                yield child
            if self._is_waited_for(child):
                return

    def _is_waited_for(self, child: Child) -> bool:
        """True while those after this child must not start. With one_for_one only its first start counts."""
        if not self.flags.ordered or child.status is Status.RUNNING:
            return False
        return self.flags.strategy is not Strategy.ONE_FOR_ONE or not child.was_ready

    @staticmethod
    def _move(child: Child, status: Status, now_s: float) -> None:
        child.status, child.since_s = status, now_s


def _is_restarted(restart: Restart, normal: bool) -> bool:
    """OTP's table: permanent always, transient when abnormal, temporary never."""
    match restart:
        case Restart.PERMANENT:
            return True
        case Restart.TRANSIENT:
            return not normal
        case Restart.TEMPORARY:
            return False
