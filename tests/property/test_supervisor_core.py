"""The supervisor's decisions in a world of processes that do what they like.

Invariants: never two processes of one child; order is kept, up and down; the restart budget holds; nothing
happens after the end. Liveness: as soon as the world behaves, everything that should run runs, or the
supervisor has ended with all its children down.
"""

import math
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervision.actions import Action, AskToStop, Ended, Finish, Kill, Report, Spawn, Status, Target
from supervision.child_spec import AutoShutdown, Backoff, ChildSpec, Restart, Strategy, SupervisorFlags
from supervision.core import SupervisorCore
from tests.examples import examples

CALM_TICKS = 200
"""Far more than a calm world needs for five children, each stopped, killed, backed off and started."""

seconds = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 10.0, 60.0, 1000.0])
deadlines = st.sampled_from([0.5, 1.0, 5.0, 30.0])


@st.composite
def child_specs(draw: st.DrawFn, id_: str) -> ChildSpec:
    restart = draw(st.sampled_from(Restart))
    initial_s = draw(st.sampled_from([0.0, 0.5, 2.0]))
    return ChildSpec(
        id=id_,
        actor="module:Class",
        restart=restart,
        significant=restart is not Restart.PERMANENT and draw(st.booleans()),
        shutdown_s=draw(st.sampled_from([0.0, 1.0, 5.0])),
        start_deadline_s=draw(deadlines),
        backoff=Backoff(
            initial_s=initial_s, max_s=draw(st.sampled_from([2.0, 8.0])), reset_after_s=draw(deadlines)
        ),
    )


@st.composite
def supervisor_flags(draw: st.DrawFn) -> SupervisorFlags:
    strategy = draw(st.sampled_from(Strategy))
    return SupervisorFlags(
        strategy=strategy,
        max_restarts=draw(st.integers(0, 4)),
        max_seconds=draw(st.sampled_from([1.0, 5.0, 60.0])),
        ordered=strategy is Strategy.REST_FOR_ONE or draw(st.booleans()),
        auto_shutdown=draw(st.sampled_from([AutoShutdown.ANY_SIGNIFICANT, AutoShutdown.ALL_SIGNIFICANT])),
    )


@dataclass
class Process:
    """One process of the world."""

    incarnation: int
    is_ready: bool = False
    is_told: bool = False
    is_killed: bool = False


class SupervisorInTheWorld(RuleBasedStateMachine):
    """The core against a world that may do anything at any moment."""

    @initialize(flags=supervisor_flags(), count=st.integers(1, 5), data=st.data())
    def begin(self, flags: SupervisorFlags, count: int, data: st.DataObject) -> None:
        self.specs = tuple(data.draw(child_specs(f"child-{number}")) for number in range(count))
        self.flags = flags
        self.core = SupervisorCore(flags, self.specs, draw=lambda: 0.5)
        self.now_s = 1000.0
        self.alive: dict[str, Process] = {}
        self.gone: list[tuple[str, int]] = []
        self.ended_normally: set[str] = set()
        self.starts: dict[str, list[float]] = {spec.id: [] for spec in self.specs}
        self.events: list[float] = []
        self.stop_was_asked = False
        self.finish: Finish | None = None
        self._take(self.core.tick(self.now_s))

    # ---- what may happen ----

    @rule(passed_s=seconds)
    def time_passes(self, passed_s: float) -> None:
        self.now_s += passed_s
        self._take(self.core.tick(self.now_s))

    @precondition(lambda self: any(not p.is_ready for p in self.alive.values()))
    @rule(data=st.data())
    def a_start_succeeds(self, data: st.DataObject) -> None:
        starting = sorted(id_ for id_, process in self.alive.items() if not process.is_ready)
        self._ready(data.draw(st.sampled_from(starting)))

    @precondition(lambda self: bool(self.alive))
    @rule(data=st.data(), normal=st.booleans())
    def a_process_ends(self, data: st.DataObject, normal: bool) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.alive))), normal)

    @precondition(lambda self: len(self.alive) > 1)
    @rule(normal=st.booleans())
    def all_processes_end_at_once(self, normal: bool) -> None:
        for id_ in sorted(self.alive):
            if id_ in self.alive:
                self._end(id_, normal)

    @precondition(lambda self: bool(self.alive))
    @rule(data=st.data())
    def a_process_hangs(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.alive)))
        self._take(self.core.hung(id_, self.alive[id_].incarnation, "no beat"))

    @precondition(lambda self: bool(self.gone))
    @rule(data=st.data(), normal=st.booleans())
    def word_of_a_process_long_gone(self, data: st.DataObject, normal: bool) -> None:
        id_, incarnation = data.draw(st.sampled_from(self.gone))
        before = self._restarts()
        self._take(self.core.exited(id_, incarnation, Ended("late", normal=normal), self.now_s))
        self._take(self.core.ready(id_, incarnation, self.now_s))
        self._take(self.core.hung(id_, incarnation, "late"))
        assert self._restarts() == before

    @rule()
    def it_is_told_to_stop(self) -> None:
        self.stop_was_asked = True
        self._take(self.core.stop("told to stop", self.now_s))

    @rule()
    def the_world_behaves(self) -> None:
        """Liveness: the clock is moved only to when the core asks for it."""
        for _ in range(CALM_TICKS):
            self._behave_once()
            wake_s = self.core.next_wake_s()
            if not self._has_work() and math.isinf(wake_s):
                break
            if not self._has_work():
                self.now_s = max(self.now_s, wake_s)
            self._take(self.core.tick(self.now_s))
        else:
            raise AssertionError(f"no rest after {CALM_TICKS} ticks: {self.core.children}")
        self._assert_at_rest()

    def teardown(self) -> None:
        if hasattr(self, "core"):
            self.the_world_behaves()
            self.it_is_told_to_stop()
            self.the_world_behaves()
            assert self.finish is not None
            assert self.alive == {}

    # ---- what must hold ----

    @invariant()
    def the_core_believes_what_is(self) -> None:
        for id_, child in self.core.children.items():
            process = self.alive.get(id_)
            assert (process is None) == (child.status is Status.DOWN), id_
            if process is not None:
                assert process.incarnation == child.incarnation

    @invariant()
    def only_what_may_stay_down_is_given_up(self) -> None:
        if self.core.finishing is not None:
            return
        for child in self.core.children.values():
            if child.target is Target.DOWN:
                assert child.spec.restart is not Restart.PERMANENT
                if child.spec.restart is Restart.TRANSIENT:
                    assert child.spec.id in self.ended_normally

    @invariant()
    def the_budget_holds(self) -> None:
        window = [moment for moment in self.events if self.now_s - moment <= self.flags.max_seconds]
        assert len(window) <= self.flags.max_restarts or self.core.finishing is not None
        for moments in self.starts.values():
            for first in moments:
                close = [m for m in moments if first <= m <= first + self.flags.max_seconds]
                assert len(close) <= self.flags.max_restarts + 1

    # ---- the world ----

    def _take(self, actions: list[Action]) -> None:
        if self.finish is not None:
            assert actions == [], "something is done after the end"
        for action in actions:
            match action:
                case Spawn(id_, incarnation):
                    self._start(id_, incarnation)
                case AskToStop(id_):
                    self._stop_in_order(id_)
                    self.alive[id_].is_told = True
                case Kill(id_):
                    if id_ in self.core.children and self.core.children[id_].status is Status.STOPPING:
                        self._stop_in_order(id_)
                    self.alive[id_].is_killed = True
                case Finish():
                    assert self.finish is None
                    assert self.alive == {}
                    self.finish = action
                case Report():
                    pass

    def _start(self, id_: str, incarnation: int) -> None:
        assert id_ not in self.alive, f"two processes of {id_}"
        assert self.core.finishing is None
        assert all(incarnation > old for gone, old in self.gone if gone == id_)
        is_first = not self.starts[id_]
        if self.flags.ordered and (is_first or self.flags.strategy is not Strategy.ONE_FOR_ONE):
            for spec in self.specs[: self._index(id_)]:
                before = self.core.children.get(spec.id)
                has_been_ready = before is not None and before.was_ready
                may_be_down = before is None or before.target is Target.DOWN
                is_ready = spec.id in self.alive and self.alive[spec.id].is_ready
                if self.flags.strategy is Strategy.ONE_FOR_ONE:
                    assert has_been_ready or may_be_down, f"{id_} started before {spec.id} was ready"
                else:
                    assert is_ready or may_be_down, f"{id_} started before {spec.id} was ready"
        if self.flags.strategy is not Strategy.ONE_FOR_ONE:
            assert not any(child.status is Status.STOPPING for child in self.core.children.values())
        self.alive[id_] = Process(incarnation)
        self.starts[id_].append(self.now_s)

    def _stop_in_order(self, id_: str) -> None:
        if self.flags.ordered:
            later = {spec.id for spec in self.specs[self._index(id_) + 1 :]}
            assert not later & set(self.alive), f"{id_} is stopped before {later & set(self.alive)}"

    def _ready(self, id_: str) -> None:
        process = self.alive[id_]
        process.is_ready = True
        self._take(self.core.ready(id_, process.incarnation, self.now_s))

    def _end(self, id_: str, normal: bool) -> None:
        child = self.core.children[id_]
        process = self.alive.pop(id_)
        self.gone.append((id_, process.incarnation))
        if normal:
            self.ended_normally.add(id_)
        by_itself = child.status is not Status.STOPPING and child.target is Target.UP
        is_restarted = child.spec.restart is Restart.PERMANENT or (
            child.spec.restart is Restart.TRANSIENT and not normal
        )
        fails_to_start = self.flags.ordered and not child.was_ready and not normal
        if by_itself and is_restarted and not fails_to_start:
            self.events.append(self.now_s)
        ended = Ended("normal" if normal else "SIGKILL", normal=normal, by_signal=not normal)
        self._take(self.core.exited(id_, process.incarnation, ended, self.now_s))

    def _has_work(self) -> bool:
        return any(not p.is_ready or p.is_told or p.is_killed for p in self.alive.values())

    def _behave_once(self) -> None:
        """Whoever is told or killed ends, whoever starts gets ready."""
        for id_ in sorted(self.alive):
            process = self.alive.get(id_)
            if process is None:
                continue
            if process.is_told or process.is_killed:
                self._end(id_, normal=process.is_told and not process.is_killed)
            elif not process.is_ready:
                self._ready(id_)

    def _assert_at_rest(self) -> None:
        if self.core.finishing is not None:
            assert self.finish is not None
            assert self.alive == {}
            return
        assert not self.stop_was_asked
        for id_, child in self.core.children.items():
            assert child.target in (Target.UP, Target.DOWN)
            if child.target is Target.UP:
                assert child.status is Status.RUNNING
                assert self.alive[id_].is_ready
            else:
                assert id_ not in self.alive

    def _index(self, id_: str) -> int:
        return next(number for number, spec in enumerate(self.specs) if spec.id == id_)

    def _restarts(self) -> list[int]:
        return [child.restarts for child in self.core.children.values()]


SupervisorInTheWorld.TestCase.settings = settings(
    max_examples=examples(150),
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
test_a_supervisor_survives_any_world = SupervisorInTheWorld.TestCase
