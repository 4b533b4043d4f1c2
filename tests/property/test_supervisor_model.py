"""The supervisor actor against a model of what OTP's and Elixir's documentation say.

The actor runs on the bench with children that start, fail, ignore, hang, end and refuse to stop as Hypothesis
says, in an order of events drawn from a seed. The model knows no mail, no processes and no actions: it is
told the same story and must come to the same children, incarnations, restarts, order, answers and end.
"""

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.actor import Actor, Stop
from actors.future import Future
from actors.process import EXIT_SHUTDOWN
from actors.system_messages import ChildReady
from actors.testing import InMemorySystem
from supervision import management
from supervision.actions import Child as CoreChild
from supervision.child_spec import (
    AutoShutdown,
    Backoff,
    Breaker,
    ChildSpec,
    Restart,
    Strategy,
    SupervisorFlags,
)
from supervision.messages import (
    DeleteChild,
    Managed,
    ReleaseChild,
    RestartChild,
    TerminateChild,
    UpdateFlags,
    start_child,
)
from supervision.supervisor import Supervisor, supervisor_args
from tests.examples import examples

HANG_S = 2.001
START_S = 1.701
SHUTDOWN_S = 0.601
OPEN_S = 3.301
WAITS_S = (0.301, 1.301)
"""Time passes in steps of 50 ms; what is due a millisecond after a step is never due at one."""

HEALTHY_S = 2.325
WITHIN_S = 7.125
WINDOWS_S = (1.125, 9.125, 200.125)
"""No two events are this far apart, nor nearly so."""

BREAKER = Breaker(max_failures=1, within_s=WITHIN_S, open_s=OPEN_S, healthy_s=HEALTHY_S)


class Puppet(Actor):
    """Starts and stops as planned. `plans` says how its next starts go; then they go well."""

    plans: ClassVar[dict[str, list[str]]] = {}
    deaf: ClassVar[set[str]] = set()
    log_: ClassVar[list[str]] = []

    def on_start(self) -> Any:
        name = self.identity.name
        self.log_.append(f"start {name}")
        match take(self.plans, name):
            case "crash":
                raise ZeroDivisionError("planned")
            case "ignore":
                self.ignore()
            case "never":
                return self.sleep(1e9)
        return None

    async def on_stop(self) -> None:
        self.log_.append(f"stop {self.identity.name}")
        if self.identity.name in self.deaf:
            await self.sleep(1e9)


def take(plans: dict[str, list[str]], name: str) -> str:
    plan = plans.get(name)
    return plan.pop(0) if plan else "well"


# ---- the model ----


@dataclass
class Kid:
    """A child as the documentation sees it."""

    spec: ChildSpec
    wanted: bool = True
    state: str = "down"
    """down, starting, up, stopping."""
    called: str = ""
    """The management call that waits for its start."""
    incarnation: int = 0
    issued: int = 0
    """The highest incarnation that ever bore the name."""
    restarts: int = 0
    due_s: float = 0.0
    down_since_s: float = 0.0
    waited_s: float = 0.0
    """In its backoffs so far: time in which it could not fail."""
    ends_s: float = math.inf
    """When it will be killed, as it is too slow or hangs."""
    up_since_s: float = 0.0
    was_up: bool = False
    is_hung: bool = False
    is_leaving: bool = False
    """To be stopped; those after it come first."""
    failures: list[float] = field(default_factory=list)
    quarantined: bool = False
    on_probation: bool = False


class Model:
    """A supervisor in the documentation's words."""

    def __init__(
        self, flags: SupervisorFlags, specs: tuple[ChildSpec, ...], plans: dict[str, list[str]]
    ) -> None:
        self.flags = flags
        self.plans = plans
        self.deaf: set[str] = set()
        self.kids = {spec.id: Kid(spec) for spec in specs}
        self.issued: dict[str, int] = {}
        self.budget: list[tuple[Kid, float]] = []
        self.now_s = 0.0
        self.end: str | None = None
        self.is_over = False
        self.log: list[str] = []
        self.go_on()

    # ---- time ----

    def pass_to(self, now_s: float) -> None:
        """Everything that time brings, each at its moment."""
        while (next_s := min(self._moments(), default=math.inf)) <= now_s:
            self.now_s = max(self.now_s, next_s)
            for kid in list(self.kids.values()):
                if kid.ends_s <= self.now_s:
                    self.ended(kid, normal=False)
            self.go_on()
        self.now_s = now_s

    def _moments(self) -> Iterator[float]:
        for kid in self.kids.values():
            yield kid.ends_s
            if kid.due_s > self.now_s and self._may_start(kid):
                yield kid.due_s

    # ---- ends ----

    def ended(self, kid: Kid, *, normal: bool) -> None:
        """A process ended, whoever ended it."""
        was, kid.state, kid.ends_s, kid.is_hung = kid.state, "down", math.inf, False
        kid.down_since_s = self.now_s
        if kid.is_leaving or not kid.wanted:
            kid.is_leaving = False
            return
        if was == "starting" and kid.called:
            kid.wanted, called, kid.called = False, kid.called, ""
            if called == "start":
                self.forget(kid)
            return
        if was == "starting" and not kid.was_up and self.flags.ordered:
            self.finish("abnormal")
            return
        if not self._comes_back(kid, normal):
            self.done(kid)
            return
        self.failed(kid, was)

    def _comes_back(self, kid: Kid, normal: bool) -> bool:
        if kid.spec.restart is Restart.TRANSIENT:
            return not normal
        return kid.spec.restart is Restart.PERMANENT

    def done(self, kid: Kid) -> None:
        """It ended by itself, for good."""
        kid.wanted = False
        if self.flags.dynamic or kid.spec.restart is Restart.TEMPORARY:
            self.forget(kid)
        significant = [k for k in self.kids.values() if k.spec.significant and k.wanted]
        is_any = self.flags.auto_shutdown is AutoShutdown.ANY_SIGNIFICANT
        if kid.spec.significant and (is_any or not significant):
            self.finish("normal")

    def failed(self, kid: Kid, was: str) -> None:
        if kid.spec.breaker is not None:
            self.trip(kid, self.now_s - kid.up_since_s if was == "up" else 0.0)
        else:
            self.budget = [
                (other, t)
                for other, t in self.budget
                if self.could_fail_s(other) - t <= self.flags.max_seconds
            ]
            self.budget.append((kid, self.could_fail_s(kid)))
            if len(self.budget) > self.flags.max_restarts:
                self.finish("abnormal")
                return
        kid.restarts += 1
        if not kid.quarantined:
            kid.due_s = self.now_s + kid.spec.backoff.initial_s
        for other in self._rest(kid):
            if other.wanted and other.state in ("starting", "up"):
                other.is_leaving = True
                other.wanted = other.spec.restart is not Restart.TEMPORARY
                other.restarts += other.wanted
            elif other.spec.restart is Restart.TEMPORARY and other.state == "down":
                self.forget(other)

    def could_fail_s(self, kid: Kid) -> float:
        """Time that was not a wait for its restart."""
        is_waiting = kid.state == "down" and kid.wanted
        return (
            self.now_s - kid.waited_s - max(0.0, min(self.now_s, kid.due_s) - kid.down_since_s) * is_waiting
        )

    def _rest(self, kid: Kid) -> list[Kid]:
        kids = list(self.kids.values())
        if self.flags.strategy is Strategy.ONE_FOR_ALL:
            return [other for other in kids if other is not kid]
        return kids[kids.index(kid) + 1 :] if self.flags.strategy is Strategy.REST_FOR_ONE else []

    def trip(self, kid: Kid, ran_s: float) -> None:
        """Circuit breaker: open after too many failures, half-open for one start, closed when that holds."""
        if kid.on_probation and ran_s >= HEALTHY_S:
            kid.on_probation, kid.failures = False, []
        now_s = self.could_fail_s(kid)
        kid.failures = [t for t in kid.failures if now_s - t <= WITHIN_S] + [now_s]
        if kid.on_probation or len(kid.failures) > BREAKER.max_failures:
            kid.quarantined, kid.failures, kid.due_s = True, [], self.now_s + OPEN_S

    def finish(self, how: str) -> None:
        self.end = self.end or how
        for kid in self.kids.values():
            kid.wanted, kid.called = False, ""
            kid.is_leaving = kid.state in ("starting", "up") or kid.is_leaving

    def forget(self, kid: Kid) -> None:
        self.issued[kid.spec.id] = kid.issued
        del self.kids[kid.spec.id]

    # ---- what follows ----

    def go_on(self) -> None:
        """Stop who has to go, from the right; then start who should be up, from the left."""
        while self._stop_next() or self._start_next():
            pass
        gone = [k for k in self.kids.values() if k.state == "down" and not k.wanted]
        for kid in gone:
            if self.flags.dynamic or kid.spec.restart is Restart.TEMPORARY:
                self.forget(kid)
        self.is_over = self.end is not None and all(k.state == "down" for k in self.kids.values())

    def _stop_next(self) -> bool:
        for kid in reversed(list(self.kids.values())):
            if kid.state == "stopping" and self.flags.ordered:
                return False
            if not kid.is_leaving or kid.state not in ("starting", "up"):
                continue
            if kid.state == "starting" or kid.spec.shutdown_s == 0:
                self.ended(kid, normal=False)
                return True
            if not kid.is_hung:
                self.log.append(f"stop {kid.spec.id}")
            if kid.is_hung or kid.spec.id in self.deaf:
                kid.state, kid.ends_s = "stopping", self.now_s + SHUTDOWN_S
            else:
                self.ended(kid, normal=True)
            return True
        return False

    def _start_next(self) -> bool:
        """Equals start at the same moment, before it is known how any of them does."""
        due = [k for k in self.kids.values() if k.due_s <= self.now_s and self._may_start(k)]
        for kid in due:
            self._start(kid)
        for kid in due:
            self._started(kid)
        return bool(due)

    def _may_start(self, kid: Kid) -> bool:
        if self.end is not None or not kid.wanted or kid.state != "down" or kid.is_leaving:
            return False
        kids = list(self.kids.values())
        if self.flags.strategy is not Strategy.ONE_FOR_ONE and any(k.state == "stopping" for k in kids):
            return False
        before = [k for k in kids[: kids.index(kid)] if k.wanted and k.state != "up"]
        if self.flags.strategy is Strategy.ONE_FOR_ONE:
            before = [k for k in before if self.flags.ordered and not k.was_up and not k.called]
        return not before

    def _start(self, kid: Kid) -> None:
        kid.waited_s = self.now_s - self.could_fail_s(kid)
        kid.issued += 1
        kid.incarnation = kid.issued
        self.log.append(f"start {kid.spec.id}")
        if kid.quarantined:
            kid.quarantined, kid.on_probation = False, True
        kid.state = "starting"

    def _started(self, kid: Kid) -> None:
        if self.end is not None:
            self.ended(kid, normal=False)
            return
        match take(self.plans, kid.spec.id):
            case "well":
                kid.state, kid.was_up, kid.up_since_s, kid.called = "up", True, self.now_s, ""
            case "never":
                kid.ends_s = self.now_s + START_S
            case "crash":
                self.ended(kid, normal=False)
            case "ignore":
                kid.state, kid.wanted, kid.called = "down", False, ""

    # ---- management ----

    def start_child(self, spec: ChildSpec) -> str | None:
        """The refusal, or None: it is started."""
        known = self.kids.get(spec.id)
        if known is not None:
            is_down = known.state == "down" and not known.wanted
            return "already_present" if is_down else "already_started"
        if 0 < self.flags.max_children <= len(self.kids):
            return "max_children"
        self.kids[spec.id] = Kid(spec, issued=self.issued.get(spec.id, 0), called="start")
        self.go_on()
        return None

    def terminate_child(self, id_: str) -> str | None:
        kid = self.kids.get(id_)
        if kid is None:
            return "not_found"
        kid.wanted, kid.called = False, ""
        kid.quarantined = kid.on_probation = False
        kid.failures = []
        kid.is_leaving = kid.state in ("starting", "up", "stopping")
        self.go_on()
        return None

    def restart_child(self, id_: str) -> str | None:
        refusal = self._busy(id_)
        if refusal is None:
            kid = self.kids[id_]
            kid.wanted, kid.called, kid.due_s = True, "restart", self.now_s
            kid.down_since_s = self.now_s
            self.go_on()
        return refusal

    def delete_child(self, id_: str) -> str | None:
        refusal = self._busy(id_)
        if refusal is None:
            self.forget(self.kids[id_])
        return refusal

    def release_child(self, id_: str) -> str | None:
        kid = self.kids.get(id_)
        if kid is None:
            return "not_found"
        if kid.state != "down" or not kid.wanted:
            return "neither in quarantine nor waits for a restart"
        kid.quarantined = kid.on_probation = False
        kid.failures, kid.due_s = [], self.now_s
        self.go_on()
        return None

    def _busy(self, id_: str) -> str | None:
        kid = self.kids.get(id_)
        if kid is None or self.flags.dynamic:
            return "not_found"
        if kid.state == "down":
            return "restarting" if kid.wanted else None
        return "restarting" if kid.state == "starting" and kid.restarts else "running"


# ---- what may happen ----

passes = st.sampled_from([0.05, 0.5, 1.0, 2.5, 4.0, 10.0, 60.0])
outcomes = st.sampled_from(["well", "well", "well", "crash", "never", "ignore"])
names = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def flags_of(draw: st.DrawFn) -> SupervisorFlags:
    kind = draw(st.sampled_from(["ordered", "pool", "dynamic"]))
    return SupervisorFlags(
        strategy=draw(st.sampled_from(Strategy)) if kind == "ordered" else Strategy.ONE_FOR_ONE,
        max_restarts=draw(st.sampled_from([0, 1, 3, 30, 30])),
        max_seconds=draw(st.sampled_from(WINDOWS_S)),
        ordered=kind == "ordered",
        dynamic=kind == "dynamic",
        max_children=2 if kind == "dynamic" else 0,
        auto_shutdown=draw(st.sampled_from([AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT])),
    )


@st.composite
def spec_of(draw: st.DrawFn, id_: str, flags: SupervisorFlags) -> ChildSpec:
    restart = draw(st.sampled_from([Restart.PERMANENT, Restart.PERMANENT, *Restart]))
    wait_s = draw(st.sampled_from(WAITS_S))
    has_breaker = flags.strategy is Strategy.ONE_FOR_ONE and draw(st.booleans())
    return ChildSpec(
        id=id_,
        actor=f"{__name__}:Puppet",
        restart=restart,
        significant=restart is not Restart.PERMANENT and draw(st.booleans()),
        shutdown_s=draw(st.sampled_from([0.0, SHUTDOWN_S, SHUTDOWN_S])),
        start_deadline_s=START_S,
        hang_deadline_s=HANG_S,
        backoff=Backoff(initial_s=wait_s, factor=1.0, max_s=wait_s, jitter=0.0),
        breaker=BREAKER if has_breaker else None,
    )


class SupervisorLikeTheModel(RuleBasedStateMachine):
    """One story, told to both."""

    @initialize(
        flags=flags_of(),
        seed=st.none() | st.integers(0, 9),
        count=st.sampled_from([0, 2, 3, 3]),
        data=st.data(),
    )
    def begin(self, flags: SupervisorFlags, seed: int | None, count: int, data: st.DataObject) -> None:
        self.flags = flags
        specs = tuple(data.draw(spec_of(id_, flags)) for id_ in ("a", "b", "c")[:count])
        plans = {spec.id: data.draw(st.lists(outcomes, max_size=2)) for spec in specs}
        Puppet.plans = {id_: list(plan) for id_, plan in plans.items()}
        Puppet.deaf, Puppet.log_ = set(), []
        self.folder = tempfile.TemporaryDirectory()
        self.bench = InMemorySystem(Path(self.folder.name), seed=seed, live_children=True)
        self.model = Model(flags, specs, plans)
        self.answers: list[tuple[Future[Any], str]] = []
        self.bench.start(Supervisor, "root", supervisor_args(flags, specs))
        self.core = self.bench.actor("root")._core
        self.advance(0.0)

    @rule(seconds=passes)
    def time_passes(self, seconds: float) -> None:
        self.advance(seconds)

    @precondition(lambda self: self.up())
    @rule(data=st.data(), normal=st.booleans(), next_start=outcomes)
    def one_ends_by_itself(self, data: st.DataObject, normal: bool, next_start: str) -> None:
        id_ = data.draw(st.sampled_from(self.up()))
        self.plan(id_, next_start)
        self.bench.exit(id_, data.draw(st.sampled_from([0, EXIT_SHUTDOWN])) if normal else 70)
        self.model.ended(self.model.kids[id_], normal=normal)
        self.advance(0.0)

    @precondition(lambda self: len(self.up()) > 1 and self.flags.strategy is Strategy.ONE_FOR_ONE)
    @rule(next_start=outcomes)
    def all_are_killed_at_once(self, next_start: str) -> None:
        ids = self.up()
        for id_ in ids:
            self.plan(id_, next_start)
            self.bench.kill(id_)
        for id_ in ids:
            if id_ in self.model.kids:
                self.model.ended(self.model.kids[id_], normal=False)
        self.advance(0.0)

    @precondition(lambda self: any(k.state == "starting" for k in self.model.kids.values()))
    @rule(data=st.data())
    def one_is_killed_while_it_starts(self, data: st.DataObject) -> None:
        starting = [id_ for id_, k in self.model.kids.items() if k.state == "starting"]
        id_ = data.draw(st.sampled_from(starting))
        self.bench.kill(id_)
        self.model.ended(self.model.kids[id_], normal=False)
        self.advance(0.0)

    @precondition(lambda self: self.up())
    @rule(data=st.data())
    def one_hangs(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(self.up()))
        kid = self.model.kids[id_]
        if not kid.is_hung:
            self.bench.hang(id_)
            kid.is_hung, kid.ends_s = True, self.model.now_s + HANG_S

    @rule(id_=names, is_deaf=st.sampled_from([True, True, False]))
    def one_stops_listening_or_listens_again(self, id_: str, is_deaf: bool) -> None:
        for deaf in (Puppet.deaf, self.model.deaf):
            (deaf.add if is_deaf else deaf.discard)(id_)

    @precondition(lambda self: self.takes_calls())
    @rule(id_=names, data=st.data(), next_start=outcomes)
    def a_start_is_asked_for(self, id_: str, data: st.DataObject, next_start: str) -> None:
        spec = data.draw(spec_of(id_, self.flags))
        refusal = self.model_of_start(spec, next_start)
        self.manage(start_child(spec), refusal)

    @precondition(lambda self: self.takes_calls())
    @rule(id_=names)
    def a_termination_is_asked_for(self, id_: str) -> None:
        self.manage(TerminateChild(id=id_), self.model.terminate_child(id_))

    @precondition(lambda self: self.takes_calls())
    @rule(id_=names, next_start=outcomes)
    def a_restart_is_asked_for(self, id_: str, next_start: str) -> None:
        if self.model._busy(id_) is None:
            self.plan(id_, next_start)
        self.manage(RestartChild(id=id_), self.model.restart_child(id_))

    @precondition(lambda self: self.takes_calls())
    @rule(id_=names)
    def a_deletion_is_asked_for(self, id_: str) -> None:
        self.manage(DeleteChild(id=id_), self.model.delete_child(id_))

    @precondition(lambda self: self.takes_calls())
    @rule(id_=names)
    def a_release_is_asked_for(self, id_: str) -> None:
        self.manage(ReleaseChild(id=id_), self.model.release_child(id_))

    @precondition(lambda self: self.takes_calls())
    @rule(max_restarts=st.integers(0, 9))
    def the_limit_is_changed(self, max_restarts: int) -> None:
        changes = {"max_restarts": max_restarts}
        self.model.flags = SupervisorFlags(
            **{name: getattr(self.model.flags, name) for name in self.model.flags.__slots__} | changes
        )
        self.manage(UpdateFlags(changes=changes), None)

    @rule(incarnation=st.integers(0, 9))
    def a_stranger_says_it_is_ready(self, incarnation: int) -> None:
        if not self.is_over():
            self.bench.tell("root", ChildReady(incarnation=incarnation))
            self.advance(0.0)

    @rule()
    def it_is_told_to_stop(self) -> None:
        if not self.is_over():
            self.bench.tell("root", Stop())
            self.model.finish("told")
            self.advance(0.0)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.it_is_told_to_stop()
            self.advance(10.0)
            assert self.is_over()
            assert self.model.is_over
            code = self.bench.runtimes["root"].exit_code
            assert code == (EXIT_SHUTDOWN if self.model.end == "abnormal" else 0)
            assert all(answer.is_done for answer, _ in self.answers), "a call was never answered"
            self.bench.__exit__()
            self.folder.cleanup()

    # ---- what must hold ----

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "core"):
            return
        if self.flags.strategy is Strategy.ONE_FOR_ONE and self.model.end is not None:
            return  # whether an equal that just starts is stopped or killed is a matter of chance
        assert self.is_over() == self.model.is_over
        if not self.is_over():
            assert {id_: actual(child) for id_, child in self.core.children.items()} == {
                id_: expected(kid) for id_, kid in self.model.kids.items()
            }
        if self.flags.strategy is Strategy.ONE_FOR_ONE:
            assert sorted(Puppet.log_) == sorted(self.model.log)
        else:
            assert Puppet.log_ == self.model.log

    @invariant()
    def answers_are_right(self) -> None:
        for answer, refusal in getattr(self, "answers", []):
            if answer.is_done and refusal:
                managed: Managed = answer.result()
                assert not managed.ok
                assert refusal in managed.reason

    # ---- inside ----

    def advance(self, seconds: float) -> None:
        self.bench.advance(seconds)
        self.model.go_on()
        self.model.pass_to(self.bench.clock.monotonic_s())

    def plan(self, id_: str, outcome: str) -> None:
        for plans in (Puppet.plans, self.model.plans):
            plans.setdefault(id_, []).append(outcome)

    def model_of_start(self, spec: ChildSpec, next_start: str) -> str | None:
        is_full = 0 < self.flags.max_children <= len(self.model.kids)
        if spec.id not in self.model.kids and not is_full:
            self.plan(spec.id, next_start)
        return self.model.start_child(spec)

    def manage(self, call: Any, refusal: str | None) -> None:
        self.answers.append((self.bench.ask("root", call, deadline_s=1e6), refusal or ""))
        self.advance(0.0)

    def up(self) -> list[str]:
        if not hasattr(self, "model") or self.is_over():
            return []
        return [id_ for id_, kid in self.model.kids.items() if kid.state == "up"]

    def takes_calls(self) -> bool:
        return hasattr(self, "model") and not self.is_over() and self.model.end is None and self.is_started()

    def is_started(self) -> bool:
        return bool(self.bench.row("root").ready)

    def is_over(self) -> bool:
        return not self.bench.is_alive("root")


def actual(child: CoreChild) -> tuple[str, int, int]:
    return management.describe(child), child.incarnation, child.restarts


def expected(kid: Kid) -> tuple[str, int, int]:
    state = {"up": "running"}.get(kid.state, kid.state)
    if state == "down":
        state = "restarting" if kid.restarts else "waiting"
        state = "quarantined" if kid.quarantined else state if kid.wanted else "undefined"
    return state, kid.incarnation, kid.restarts


SupervisorLikeTheModel.TestCase.settings = settings(
    max_examples=examples(150),
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
test_the_supervisor_does_what_the_documentation_says = SupervisorLikeTheModel.TestCase
