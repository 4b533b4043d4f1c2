"""Breaker, budgets by kind, retirement, dynamic children and calls in a world that does as it likes.

Invariants: a child has at most one process; incarnations are never used twice; quarantine is kept;
max_children holds; every call is answered once; a death that belongs to a breaker or a budget of its own
never costs the supervisor. Liveness: a world that behaves comes to rest.
"""

import math
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervision import management
from supervision.actions import (
    Action,
    Answer,
    AskToStop,
    Child,
    Ended,
    Finish,
    Forget,
    Kill,
    Spawn,
    Status,
    Target,
)
from supervision.child_spec import (
    Backoff,
    Breaker,
    Budget,
    ChildSpec,
    Failure,
    Restart,
    Retirement,
    SupervisorFlags,
)
from supervision.core import SupervisorCore
from tests.examples import examples

CALM_TICKS = 300
NAMES = ("a", "b", "c", "d")
ENDS = (
    Ended("normal", normal=True),
    Ended("gave up", shutdown=True),
    Ended("exit code 70"),
    Ended("SIGKILL", by_signal=True),
    Ended("ignored", ignored=True),
)


@st.composite
def specs(draw: st.DrawFn, id_: str) -> ChildSpec:
    initial_s = draw(st.sampled_from([0.0, 0.5]))
    kinds = draw(st.sets(st.sampled_from(Failure), max_size=2))
    restart = draw(st.sampled_from(Restart))
    retirement = Retirement(
        max_age_s=draw(st.sampled_from([math.inf, 10.0])),
        max_uses=draw(st.sampled_from([0, 3])),
    )
    return ChildSpec(
        id=id_,
        actor="module:Class",
        restart=restart,
        shutdown_s=draw(st.sampled_from([0.0, 2.0])),
        start_deadline_s=3.0,
        backoff=Backoff(initial_s=initial_s, max_s=2.0),
        budgets={kind: Budget(max_restarts=draw(st.integers(0, 2)), max_seconds=20.0) for kind in kinds},
        breaker=Breaker(max_failures=draw(st.integers(0, 2)), within_s=20.0, open_s=7.0, healthy_s=4.0),
        retirement=Retirement() if restart is Restart.TEMPORARY else retirement,
    )


class FlakyPool(RuleBasedStateMachine):
    """A pool or a dynamic supervisor whose children all have a breaker."""

    @initialize(dynamic=st.booleans(), count=st.integers(0, 3), data=st.data())
    def begin(self, dynamic: bool, count: int, data: st.DataObject) -> None:
        children = tuple(data.draw(specs(id_)) for id_ in NAMES[:count]) if not dynamic else ()
        self.flags = SupervisorFlags(
            ordered=False, dynamic=dynamic, max_children=2 if dynamic else 0, max_restarts=0
        )
        self.core = SupervisorCore(self.flags, children, draw=lambda: 0.5)
        self.now_s = 1000.0
        self.alive: dict[tuple[str, int], bool] = {}
        """Whether each process was told or killed."""
        self.killed: set[tuple[str, int]] = set()
        self.issued: dict[str, int] = {}
        self.waiting: set[str] = set()
        self.finish: Finish | None = None
        self.take(self.core.tick(self.now_s))

    # ---- what may happen ----

    @rule(passed_s=st.sampled_from([0.0, 0.5, 2.0, 5.0, 12.0, 100.0]))
    def time_passes(self, passed_s: float) -> None:
        self.now_s += passed_s
        self.take(self.core.tick(self.now_s))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), ended=st.sampled_from(ENDS))
    def a_process_ends(self, data: st.DataObject, ended: Ended) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.alive))), ended)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def a_process_says_it_is_ready(self, data: st.DataObject) -> None:
        id_, incarnation = data.draw(st.sampled_from(sorted(self.alive)))
        self.take(self.core.ready(id_, incarnation, self.now_s))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def a_process_hangs(self, data: st.DataObject) -> None:
        id_, incarnation = data.draw(st.sampled_from(sorted(self.alive)))
        self.take(self.core.hung(id_, incarnation, "no beat"))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), uses=st.integers(0, 5))
    def a_process_was_used(self, data: st.DataObject, uses: int) -> None:
        id_, incarnation = data.draw(st.sampled_from(sorted(self.alive)))
        self.take(self.core.used(id_, incarnation, uses, self.now_s))

    @rule(id_=st.sampled_from(NAMES), data=st.data())
    def a_start_is_asked_for(self, id_: str, data: st.DataObject) -> None:
        before = len(self.core.children)
        issued = self.issued.get(id_, 0)
        spec = data.draw(specs(id_))
        self.called(id_, management.start_child(self.core, spec, self.now_s, issued=lambda: issued))
        if 0 < self.flags.max_children <= before:
            assert len(self.core.children) <= before

    @rule(id_=st.sampled_from(NAMES))
    def a_restart_is_asked_for(self, id_: str) -> None:
        self.called(id_, management.restart_child(self.core, id_, self.now_s))

    @rule(id_=st.sampled_from(NAMES), call=st.sampled_from(["terminate", "delete", "release"]))
    def another_call(self, id_: str, call: str) -> None:
        act = getattr(management, f"{call}_child")
        self.take(act(self.core, id_, self.now_s)[0])

    @rule(id_=st.sampled_from(NAMES), data=st.data())
    def a_policy_is_changed(self, id_: str, data: st.DataObject) -> None:
        self.take(management.update_child(self.core, id_, data.draw(specs(id_)), self.now_s)[0])

    @rule()
    def the_world_behaves(self) -> None:
        """Whoever starts gets ready, whoever is told to ends; the clock goes to where the core wants it."""
        for _ in range(CALM_TICKS):
            for id_, incarnation in sorted(self.alive):
                if self.alive.get((id_, incarnation)):
                    self.end((id_, incarnation), ENDS[0])
                elif (id_, incarnation) in self.alive:
                    self.take(self.core.ready(id_, incarnation, self.now_s))
            if self.is_at_rest():
                return
            wake_s = self.core.next_wake_s()
            assert math.isfinite(wake_s) or any(self.alive.values()), self.core.children
            self.now_s = max(self.now_s, min(wake_s, self.now_s + 100.0))
            self.take(self.core.tick(self.now_s))
        raise AssertionError(f"no rest after {CALM_TICKS} ticks: {self.core.children}")

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.the_world_behaves()
            self.take(self.core.stop("told to stop", self.now_s))
            self.the_world_behaves()
            assert self.finish is not None
            assert self.finish.normal
            assert self.alive == {}
            assert self.waiting == set(), "a call was never answered"

    # ---- what must hold ----

    @invariant()
    def the_core_believes_what_is(self) -> None:
        children = self.core.children.items()
        believed = {(id_, child.incarnation) for id_, child in children if child.status is not Status.DOWN}
        assert believed == set(self.alive)

    @invariant()
    def what_counts_as_killed_was_killed(self) -> None:
        for id_, child in self.core.children.items():
            assert not child.is_killed or (id_, child.incarnation) in self.killed

    @invariant()
    def no_death_here_is_the_supervisors(self) -> None:
        assert self.core.restarts == ()
        assert self.core.finishing is None or self.core.finishing.normal

    # ---- the world ----

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn(id_, incarnation):
                    self.started(id_, incarnation, self.core.children[id_])
                case AskToStop(id_, incarnation) | Kill(id_, incarnation):
                    assert (id_, incarnation) in self.alive
                    self.alive[id_, incarnation] = True
                    if isinstance(action, Kill):
                        self.killed.add((id_, incarnation))
                case Answer(id_):
                    self.waiting.remove(id_)
                case Forget(id_):
                    assert id_ not in {name for name, _ in self.alive}
                case Finish():
                    assert self.finish is None
                    assert self.alive == {}
                    self.finish = action

    def started(self, id_: str, incarnation: int, child: Child) -> None:
        assert incarnation > self.issued.get(id_, 0), "an incarnation is used twice"
        assert self.finish is None
        assert self.now_s >= child.circuit.open_until_s or not child.is_quarantined
        self.issued[id_] = incarnation
        self.alive[id_, incarnation] = False

    def end(self, process: tuple[str, int], ended: Ended) -> None:
        del self.alive[process]
        self.take(self.core.exited(*process, ended, self.now_s))

    def called(self, id_: str, outcome: management.Outcome) -> None:
        actions, refusal = outcome
        if refusal is management.WAITS:
            assert id_ not in self.waiting
            self.waiting.add(id_)
        self.take(actions)

    def is_at_rest(self) -> bool:
        if self.core.finishing is not None:
            return self.core.is_finished
        return all(self._rests(child) for child in self.core.children.values())

    @staticmethod
    def _rests(child: Child) -> bool:
        wanted: dict[Any, Status] = {Target.UP: Status.RUNNING, Target.DOWN: Status.DOWN}
        return wanted.get(child.target) is child.status


FlakyPool.TestCase.settings = settings(
    max_examples=examples(150),
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
test_a_pool_of_flaky_children_survives_any_world = FlakyPool.TestCase
