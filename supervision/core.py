"""The supervisor's decisions: a state machine without processes, time or I/O of its own.

Feed it what happened (`ready`, `exited`, `hung`, `used`, `stop`, `tick`), each with the time; it answers with
what to do (`supervision.actions`). Every child has a target (up, down, or restart: down and up again) and a
status; after each event the machine reconciles the two in the order OTP demands: start left to right, stop
right to left, one at a time unless the children are equals.

Source of the semantics: OTP `supervisor` (restart types, strategies, restart intensity, shutdown,
auto_shutdown), Elixir `Supervisor` and `DynamicSupervisor` (names and defaults). Management calls are in
`supervision.management`, replacement by age and use in `supervision.replacement`.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from supervision import circuit_breaker, replacement
from supervision.actions import (
    Action,
    Answer,
    AskToStop,
    Child,
    Ended,
    Finish,
    Forget,
    Kill,
    ManagementCall,
    Report,
    Spawn,
    Status,
    Target,
)
from supervision.backoff import backoff_s
from supervision.budget import add_restart, add_restart_of
from supervision.child_spec import (
    AutoShutdown,
    ChildSpec,
    Failure,
    Restart,
    Strategy,
    SupervisorFlags,
    check_fits,
    check_unique_ids,
)
from supervision.circuit_breaker import CircuitState
from supervision.outage import Outage


@dataclass(slots=True)
class SupervisorCore:
    """State of one supervisor. Not thread-safe: one thread owns it."""

    flags: SupervisorFlags
    specs: tuple[ChildSpec, ...]
    draw: Callable[[], float] = random.random
    children: dict[str, Child] = field(init=False)
    restarts: tuple[tuple[Child, float], ...] = ()
    """The restarts within the window of the budget: the child of each, and the moment on its own clock."""
    outage: Outage = field(default_factory=Outage)
    finishing: Finish | None = None
    is_finished: bool = False

    def __post_init__(self) -> None:
        check_unique_ids(self.specs)
        for spec in self.specs:
            check_fits(spec, self.flags)
        self.children = {spec.id: Child(spec) for spec in self.specs}

    # ---- events ----

    def tick(self, now_s: float) -> list[Action]:
        """Do what is due at this time: start children, kill overdue ones, replace old ones."""
        actions = [*self._overdue(now_s), *self._outage_over(now_s)]
        for child in self.children.values():
            self._close_circuit(child, now_s)
            actions += replacement.retire_if_old(child, now_s)
        return [*actions, *self.reconcile(now_s)]

    def resumed(self, lost_s: float, now_s: float) -> None:
        """Give children that start or stop the time that this process lost because it was suspended.

        They were suspended with it. Call this before `tick`.
        """
        for child in self.children.values():
            if child.status is Status.STARTING:
                child.since_s = min(child.since_s + lost_s, now_s)
            elif child.status is Status.STOPPING:
                child.stop_by_s = min(child.stop_by_s + lost_s, now_s + child.spec.shutdown_s)

    def ready(self, id_: str, incarnation: int, now_s: float) -> list[Action]:
        """Take note that a child has finished its start."""
        child = self.children.get(id_)
        if child is None or child.status is not Status.STARTING or child.incarnation != incarnation:
            return []
        move(child, Status.RUNNING, now_s)
        child.was_ready = True
        child.retire_at_s = replacement.retire_at_s(child.spec.retirement, now_s, self.draw())
        return [*answer(child, ok=True), *self.reconcile(now_s)]

    def hung(self, id_: str, incarnation: int, why: str) -> list[Action]:
        """Kill a child that hangs. Its end arrives as `exited`, like any other.

        A child that hangs before it is ready has failed to start.
        """
        child = self.children.get(id_)
        if child is None or child.incarnation != incarnation or child.is_killed:
            return []
        if child.status not in (Status.STARTING, Status.RUNNING):
            return []
        child.is_killed = True
        child.is_hung = child.status is Status.RUNNING
        return [Kill(id_, incarnation, why)]

    def used(self, id_: str, incarnation: int, uses: int, now_s: float) -> list[Action]:
        """Take note of a child's number of uses; a child that reached its limit is replaced."""
        child = self.children.get(id_)
        if child is None or child.incarnation != incarnation:
            return []
        child.uses = uses
        retired = replacement.retire_if_used_up(child, uses)
        return [*self._outage_over(now_s), *retired, *self.reconcile(now_s)]

    def exited(self, id_: str, incarnation: int, ended: Ended, now_s: float) -> list[Action]:
        """Take note that a child's process ended. The end of an older incarnation changes nothing."""
        child = self.children.get(id_)
        if child is None or child.incarnation != incarnation or child.status is Status.DOWN:
            return []
        return [*self._down(child, ended, now_s), *self.reconcile(now_s)]

    def preempted(self, id_: str, incarnation: int, now_s: float) -> list[Action]:
        """Take note that a child's process will be taken away: the child is stopped in order, and restarted.

        That is no failure. It spends the child's budget of preemptions, and no other. A temporary child is
        not restarted, so it spends nothing and takes no sibling along.
        """
        child = self.children.get(id_)
        if child is None or child.incarnation != incarnation or not replacement.preempt(child):
            return []
        report = Report("preempted", child.last_reason, id_)
        if child.target is Target.DOWN:
            return [report, *self.reconcile(now_s)]
        over_budget = self._spend_preemption(child, now_s)
        if self.finishing is None:
            report = replace(report, taken_along=self._take_siblings_along(child))
        return [report, *over_budget, *self.reconcile(now_s)]

    def stop(self, reason: str, now_s: float) -> list[Action]:
        """Bring every child down, in reverse order, then finish."""
        return [*self._stop_all(reason, normal=True), *self.reconcile(now_s)]

    def next_wake_s(self) -> float:
        """The moment at which `tick` has something to do even if nothing happens; infinity for never."""
        wakes = [self._wake_s(child) for child in self.children.values()]
        wakes.append(self.outage.wake_s(self.children))
        return min([*wakes, *(child.start_at_s for child in self._next_to_start())], default=math.inf)

    # ---- a process ended ----

    def _down(self, child: Child, ended: Ended, now_s: float) -> list[Action]:
        was, ran_s = child.status, now_s - child.since_s
        is_normal = ended.normal or (ended.shutdown and child.was_ready)
        kind = _kind_of(child, ended)
        was_killed = child.is_killed
        is_preempted_for_good = child.is_retired and child.spec.restart is Restart.TEMPORARY
        child.is_killed = child.is_hung = child.is_retired = False
        move(child, Status.DOWN, now_s)
        if child.target is not Target.UP:
            actions = self._down_as_wanted(child, ended, is_killed=was_killed, is_normal=is_normal)
            if is_preempted_for_good:
                actions += self._down_for_good(child, by_itself=True)
            return actions
        child.last_reason = ended.reason
        if child.call is not None and was is Status.STARTING and not ended.ignored:
            return self._call_failed(child, ended)
        if ended.ignored and was is Status.STARTING:
            return [*answer(child, ok=True, reason="ignored"), *self._down_for_good(child, by_itself=False)]
        if self.flags.ordered and not child.was_ready and not is_normal:
            return self._failed_to_start(child, ended)
        if not _is_restarted(child.spec.restart, is_normal):
            report = [] if is_normal else [Report("child_terminated", ended.reason, child.spec.id)]
            return [*report, *self._down_for_good(child, by_itself=True)]
        return self._failed(child, kind, ran_s if was is Status.RUNNING else 0.0, now_s)

    def _down_as_wanted(
        self, child: Child, ended: Ended, *, is_killed: bool, is_normal: bool
    ) -> list[Action]:
        """Handle the end of a child that was to go down. However such a child ends, it is no failure."""
        actions: list[Action] = []
        if not is_normal and (not is_killed or "did not stop" in ended.reason):
            actions.append(Report("shutdown_error", ended.reason, child.spec.id))
        if child.target is Target.RESTART:
            child.target = Target.UP
            return actions
        actions += answer(child, ok=False, reason="it was ordered to stop")
        child.is_forgotten = child.is_forgotten or self._forgets(child)
        return actions

    def _call_failed(self, child: Child, ended: Ended) -> list[Action]:
        """Answer start_child or restart_child with the reason why the child did not start.

        As in OTP, the child is not restarted and no budget is spent.
        """
        child.is_forgotten = child.call is ManagementCall.START
        child.target = Target.DOWN
        return answer(child, ok=False, reason=ended.reason)

    def _failed_to_start(self, child: Child, ended: Ended) -> list[Action]:
        """Stop the supervisor after a first start that failed.

        A second try would fail the same way, so none is made and no budget is spent (OTP).
        """
        child.is_forgotten = self._forgets(child)
        why = f"child {child.spec.id!r} failed to start: {ended.reason}"
        return [Report("start_error", ended.reason, child.spec.id), *self._stop_all(why, normal=False)]

    def _down_for_good(self, child: Child, *, by_itself: bool) -> list[Action]:
        child.target = Target.DOWN
        child.is_forgotten = self._forgets(child)
        if not by_itself or not child.spec.significant or not self._shuts_down():
            return []
        why = f"significant child {child.spec.id!r} ended: {child.last_reason}"
        return self._stop_all(why, normal=True)

    def _forgets(self, child: Child) -> bool:
        return self.flags.dynamic or child.spec.restart is Restart.TEMPORARY

    def _shuts_down(self) -> bool:
        if self.flags.auto_shutdown is AutoShutdown.ALL_SIGNIFICANT:
            return not any(c.spec.significant and c.target is not Target.DOWN for c in self.children.values())
        return self.flags.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT

    # ---- a failure ----

    def _failed(self, child: Child, kind: Failure, ran_s: float, now_s: float) -> list[Action]:
        report = Report("child_terminated", child.last_reason, child.spec.id)
        policy = child.spec.backoff
        child.failures_in_row = 1 if ran_s >= policy.reset_after_s else child.failures_in_row + 1
        if self._is_in_outage(child, now_s):
            return self._failed_in_outage(child, report, now_s)
        outcome = self._spend(child, kind, ran_s, now_s)
        if self.finishing is not None:
            return [report, *outcome]
        child.restarts += 1
        if not child.is_quarantined:
            child.start_at_s = now_s + backoff_s(policy, child.failures_in_row, self.draw())
        return [replace(report, taken_along=self._take_siblings_along(child)), *outcome]

    def _is_in_outage(self, child: Child, now_s: float) -> bool:
        """Whether there is an outage, or this failure begins one."""
        if self.flags.max_failing >= 1:
            return False
        self.outage.note(child.spec.id, child.last_reason, now_s)
        return self.outage.is_on or self.outage.begins(self.children, self.flags.max_failing, now_s)

    def _failed_in_outage(self, child: Child, report: Report, now_s: float) -> list[Action]:
        """Have the canary tried again and the others wait. Reports only the beginning of the outage."""
        child.restarts += 1
        reports: list[Action] = []
        if not self.outage.is_on:
            reports = [report, self.outage.begin(child.spec.id, len(self.children), now_s)]
            for other in self._down_by_outage():
                other.start_at_s = math.inf
        is_canary = child.spec.id == self.outage.canary
        wait_s = backoff_s(child.spec.backoff, child.failures_in_row, self.draw()) if is_canary else math.inf
        child.start_at_s = now_s + wait_s
        return reports

    def _outage_over(self, now_s: float) -> list[Action]:
        is_switched_off = self.outage.is_on and self.flags.max_failing >= 1
        survivor = self.outage.survivor(self.children, now_s)
        if not survivor and not is_switched_off:
            self._replace_canary(now_s)
            return []
        for other in self._down_by_outage():
            other.failures_in_row = 1
            start_at_s = now_s + backoff_s(other.spec.backoff, 1, self.draw())
            other.start_at_s = max(start_at_s, other.circuit.open_until_s)
        return [self.outage.end(survivor, now_s)]

    def _replace_canary(self, now_s: float) -> None:
        """Choose another canary if a management call took the last one down."""
        canary, held = self.children.get(self.outage.canary), self._down_by_outage()
        is_tried = canary is not None and canary.target is not Target.DOWN
        if self.outage.is_on and not is_tried and held:
            self.outage.canary, held[0].start_at_s = held[0].spec.id, now_s

    def _down_by_outage(self) -> list[Child]:
        """The children that are down because of the outage."""
        failed = [self.children[id_] for id_ in self.outage.failed if id_ in self.children]
        return [child for child in failed if child.status is Status.DOWN and child.target is Target.UP]

    def _spend(self, child: Child, kind: Failure, ran_s: float, now_s: float) -> list[Action]:
        """Spend one failure from its budget: that of its kind, the breaker's, or the supervisor's."""
        policy, own = child.spec.breaker, child.spec.budgets.get(kind)
        if own is not None:
            child.spent[kind], holds = add_restart(
                child.spent.get(kind, ()),
                child.own_clock_s(now_s),
                max_restarts=own.max_restarts,
                max_seconds=own.max_seconds,
            )
            if holds and not _is_on_probation(child, ran_s):
                return []
            over = f"over {own.max_restarts} failures of kind {kind.value!r} in {own.max_seconds:g} s"
            why = "failed on probation after a quarantine" if holds else over
            return self._over_own_budget(child, why, now_s)
        if policy is None:
            return self._spend_own(child, now_s)
        circuit = circuit_breaker.after_running(child.circuit, policy, ran_s)
        child.circuit = circuit_breaker.failed(circuit, policy, now_s, own_clock_s=child.own_clock_s(now_s))
        why = f"over {policy.max_failures} failures in {policy.within_s:g} s, or one after a quarantine"
        return self._quarantined(child, why) if child.is_quarantined else []

    def _spend_preemption(self, child: Child, now_s: float) -> list[Action]:
        budget = child.spec.preemptions
        child.preemptions, holds = add_restart(
            child.preemptions,
            child.own_clock_s(now_s),
            max_restarts=budget.max_restarts,
            max_seconds=budget.max_seconds,
        )
        why = f"over {budget.max_restarts} preemptions in {budget.max_seconds:g} s"
        return [] if holds else self._over_own_budget(child, why, now_s)

    def _over_own_budget(self, child: Child, why: str, now_s: float) -> list[Action]:
        """Quarantine a child that has spent a budget of its own, or give up if it has no breaker."""
        if child.spec.breaker is None:
            return self._give_up(child, why)
        child.circuit = circuit_breaker.opened(child.spec.breaker, now_s)
        return self._quarantined(child, why)

    def _spend_own(self, child: Child, now_s: float) -> list[Action]:
        flags = self.flags
        self.restarts, holds = add_restart_of(
            child,
            self.restarts,
            lambda one: one.own_clock_s(now_s),
            max_restarts=flags.max_restarts,
            max_seconds=flags.max_seconds,
        )
        if holds:
            return []
        return self._give_up(child, f"over {flags.max_restarts} restarts in {flags.max_seconds:g} s")

    def _quarantined(self, child: Child, why: str) -> list[Action]:
        child.start_at_s = child.circuit.open_until_s
        child.spent.clear()
        child.preemptions = ()
        share = sum(c.is_quarantined for c in self.children.values()) / len(self.children)
        if share > self.flags.max_quarantined:
            return self._give_up(child, f"{share:.0%} of the children are in quarantine")
        return [Report("child_quarantined", f"{child.last_reason}: {why}", child.spec.id)]

    def _give_up(self, child: Child, over: str) -> list[Action]:
        why = f"child {child.spec.id!r} failed once more ({child.last_reason}): {over}"
        return [Report("shutdown", why, child.spec.id), *self._stop_all(why, normal=False)]

    def _take_siblings_along(self, failed: Child) -> tuple[str, ...]:
        """Bring down the siblings that the strategy restarts with a failed child; returns their ids."""
        along: list[str] = []
        for sibling in list(self._siblings_taken_along(failed)):
            is_to_end = sibling.status is not Status.DOWN and sibling.target is not Target.DOWN
            along += [sibling.spec.id] * is_to_end
            if sibling.spec.restart is Restart.TEMPORARY:
                sibling.target, sibling.is_forgotten = Target.DOWN, True
            elif is_to_end:
                sibling.target = Target.RESTART
                sibling.restarts += 1
                sibling.last_reason = f"restarted along with {failed.spec.id!r}: {failed.last_reason}"
        return tuple(along)

    def _siblings_taken_along(self, failed: Child) -> Iterator[Child]:
        after = False
        for child in self.children.values():
            if child is failed:
                after = True
            elif child.spec.independent:
                continue
            elif self.flags.strategy is Strategy.ONE_FOR_ALL or (
                self.flags.strategy is Strategy.REST_FOR_ONE and after
            ):
                yield child

    # ---- time ----

    def _overdue(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for child in self.children.values():
            spec = child.spec
            if child.is_killed:
                pass
            elif child.status is Status.STARTING and now_s >= child.since_s + spec.start_deadline_s:
                child.is_killed = True
                why = f"not ready within {spec.start_deadline_s:g} s"
                actions.append(Kill(spec.id, child.incarnation, why))
            elif child.status is Status.STOPPING and now_s >= child.stop_by_s:
                child.is_killed = True
                why = f"did not stop within {spec.shutdown_s:g} s"
                actions.append(Kill(spec.id, child.incarnation, why))
        return actions

    def _close_circuit(self, child: Child, now_s: float) -> None:
        policy = child.spec.breaker
        if policy is None or child.status is not Status.RUNNING:
            return
        if now_s >= child.since_s + policy.healthy_s:  # the sum of `_wake_s`: no rounding comes between
            child.circuit = circuit_breaker.after_running(child.circuit, policy, policy.healthy_s)

    def _wake_s(self, child: Child) -> float:
        wake_s = replacement.wake_s(child)
        if child.is_killed:
            return wake_s
        if child.status is Status.STARTING:
            return min(wake_s, child.since_s + child.spec.start_deadline_s)
        if child.status is Status.STOPPING:
            return min(wake_s, child.stop_by_s)
        breaker, is_on_probation = child.spec.breaker, child.circuit.state is CircuitState.HALF_OPEN
        if child.status is Status.RUNNING and is_on_probation and breaker is not None:
            return min(wake_s, child.since_s + breaker.healthy_s)
        return wake_s

    # ---- reconciliation ----

    def reconcile(self, now_s: float) -> list[Action]:
        """The actions that bring every child from its status towards its target, in order."""
        if self.is_finished:
            return []
        self._replace_canary(now_s)
        actions = [*self._forget_the_gone(), *self._stops(now_s)]
        if self.finishing is None:
            return [*actions, *self._starts(now_s)]
        if all(child.status is Status.DOWN for child in self.children.values()):
            self.is_finished = True
            actions.append(self.finishing)
        return actions

    def _forget_the_gone(self) -> list[Action]:
        actions: list[Action] = []
        for child in list(self.children.values()):
            if not child.is_forgotten or child.status is not Status.DOWN:
                continue
            del self.children[child.spec.id]
            actions += [*answer(child, ok=False, reason="it was taken down"), Forget(child.spec.id)]
        return actions

    def _stop_all(self, reason: str, *, normal: bool) -> list[Action]:
        if self.finishing is None:
            self.finishing = Finish(normal=normal, reason=reason)
        for child in self.children.values():
            child.target = Target.DOWN
        waiting = [child for child in self.children.values() if child.status is Status.DOWN]
        return [action for child in waiting for action in answer(child, ok=False, reason=reason)]

    def _stops(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for child in reversed(self.children.values()):
            is_waited_for = self.flags.ordered and not self._stops_alone(child)
            if is_waited_for and child.status is Status.STOPPING:
                break  # one after the other
            if child.target is Target.UP or child.status not in (Status.STARTING, Status.RUNNING):
                continue
            actions.append(self._stop_one(child, now_s))
            if is_waited_for:
                break
        return actions

    def _stops_alone(self, child: Child) -> bool:
        """Whether no sibling waits for the end of this child.

        An independent child may take long to stop, and may need a sibling for it that has just failed.
        """
        is_joint = self.flags.strategy is Strategy.ONE_FOR_ALL and child.target is Target.RESTART
        return child.spec.independent and self.finishing is None and not is_joint

    def _stop_one(self, child: Child, now_s: float) -> Action:
        may_end_by_itself = child.status is Status.RUNNING and child.spec.shutdown_s > 0
        move(child, Status.STOPPING, now_s)
        child.stop_by_s = now_s + child.spec.shutdown_s
        if may_end_by_itself:
            within_s = child.spec.shutdown_s
            return AskToStop(child.spec.id, child.incarnation, within_s, finish=child.is_retired)
        child.is_killed = True
        return Kill(child.spec.id, child.incarnation, "stopped by its supervisor")

    def _starts(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for child in self._next_to_start():
            if now_s >= child.start_at_s:
                child.issued += 1
                child.incarnation = child.issued
                child.uses = 0
                child.circuit = circuit_breaker.on_probation(child.circuit)
                child.waited_s = now_s - child.own_clock_s(now_s)
                move(child, Status.STARTING, now_s)
                actions.append(Spawn(child.spec.id, child.incarnation))
        return actions

    def _next_to_start(self) -> Iterator[Child]:
        """The children that may start, now or after their own backoff: no sibling must start before them."""
        if self.finishing is not None:
            return
        is_joint = self.flags.strategy is not Strategy.ONE_FOR_ONE
        stopping = (c for c in self.children.values() if c.status is Status.STOPPING)
        if is_joint and not all(self._stops_alone(c) for c in stopping):
            return  # siblings that are restarted together are all down before the first starts
        for child in self.children.values():
            if is_joint and child.target is Target.RESTART:
                return  # it stops alone, and those after it start after it
            if child.target is not Target.UP:
                continue
            if child.status is Status.DOWN:
                yield child
            if self._is_waited_for(child):
                return

    def _is_waited_for(self, child: Child) -> bool:
        """Whether later children must not start before this one runs.

        With one_for_one that holds for a child's first start only.
        """
        if not self.flags.ordered or child.status is Status.RUNNING:
            return False
        return self.flags.strategy is not Strategy.ONE_FOR_ONE or not (child.was_ready or child.call)


def move(child: Child, status: Status, now_s: float) -> None:
    """Change a child's status, and note the time."""
    child.status, child.since_s = status, now_s


def answer(child: Child, *, ok: bool, reason: str = "") -> list[Action]:
    """Answer the management call that waits for this child, if there is one."""
    if child.call is None:
        return []
    child.call = None
    return [Answer(child.spec.id, ok, reason)]


def _is_on_probation(child: Child, ran_s: float) -> bool:
    policy = child.spec.breaker
    return policy is not None and child.circuit.state is CircuitState.HALF_OPEN and ran_s < policy.healthy_s


def _kind_of(child: Child, ended: Ended) -> Failure:
    if child.is_hung:
        return Failure.HANG
    if child.status is Status.STARTING:
        return Failure.START
    if ended.overdue:
        return Failure.OVERDUE
    return Failure.SIGNAL if ended.by_signal else Failure.CRASH


def _is_restarted(restart: Restart, normal: bool) -> bool:
    """OTP's table: permanent always, transient when abnormal, temporary never."""
    match restart:
        case Restart.PERMANENT:
            return True
        case Restart.TRANSIENT:
            return not normal
        case Restart.TEMPORARY:
            return False
