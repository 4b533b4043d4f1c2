"""Adaptive curation carried out: what is decided is in the record with its reason, and survives a restart."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dart.config.sections import TaskQuarantineSettings
from dart.core.messages import Call, NoWorkYet, RecordDecisions
from dart.core.records import Batch, DecisionKind, GroupRecord, SeedReward, TaskDecision
from dart.core.types import FaultKind, RolloutLease
from dart.curation.admission import Scheduling
from dart.curation.experience_pool import PoolRule
from dart.curation.quota import Quota, fixed_quota
from dart.curation.service import CurationService, open_service
from dart.curation.settings import CuratorSettings
from dart.curation.step_cap import StepCap
from dart.curation.task_selection import RoundRobin, expected_spread
from dart.curation.task_state import TaskTable
from dart.store.store import Store
from dart.testing.local_record import at_once
from tests.scratch_record import ScratchRecord

ROLLOUTS = 4
SETTINGS = CuratorSettings(
    tasks=("click-test",),
    seeds=range(10),
    quota=fixed_quota(ROLLOUTS),
    largest_step_cap=10,
    groups_per_update=1,
    staleness_bound=3,
    max_attempts=3,
    lease_s=60.0,
)
DYNAMIC = replace(SETTINGS, quota=Quota(most=ROLLOUTS, minimum=2, threshold=0.6))
SHORT = replace(SETTINGS, step_cap=StepCap(largest=10, slack=1, probe_share=0.0))
POOL = replace(SETTINGS, pool=PoolRule(max_uses=1))
LIMITS = TaskQuarantineSettings(
    groups_without_success=2, failed_attempts=4, lost_environments=2, duration_s=100.0
)
RESTS = replace(SETTINGS, task_quarantine=LIMITS, tasks=("click-test", "login-user"))


class World:
    """A service over a record in memory, and the time."""

    def __init__(self, settings: CuratorSettings) -> None:
        self.settings = settings
        self.now_unix_s = 1000.0
        self.record = ScratchRecord(lambda: self.now_unix_s, settings.success_above)
        self.told: list[TaskDecision] = []
        self.service = self.restarted()

    def restarted(self) -> CurationService:
        self.service = at_once(
            open_service(self.settings, self.record, lambda: self.now_unix_s, self.told.append)
        )
        self.service.serving(0)
        return self.service

    def work(self, environment: str = "env-000") -> RolloutLease | NoWorkYet:
        return at_once(self.service.work(environment))

    def lease(self, environment: str = "env-000") -> RolloutLease:
        answer = self.work(environment)
        assert isinstance(answer, RolloutLease), answer
        return answer

    def stores(self, lease: RolloutLease, reward: float, steps: int = 3) -> None:
        self.now_unix_s += 1 / 1024  # no two episodes are stored at the same moment
        self.record.finish(lease, reward, steps, 0)
        at_once(self.service.look(lease.rollout_id))

    def plays(self, *rewards: float, steps: int = 3) -> RolloutLease:
        for reward in rewards:
            lease = self.lease()
            self.stores(lease, reward, steps)
        return lease

    def group_of(self, lease: RolloutLease) -> GroupRecord:
        return self.record.store.group(lease.group_id)

    def decided(self, kind: DecisionKind, task_id: str = "click-test") -> TaskDecision | None:
        known = {task.task_id: task for task in self.record.snapshot().tasks}
        return known[task_id].decided.get(kind)


# ---- number and length ----


def test_a_task_that_succeeds_gets_fewer_rollouts_and_the_reason_is_in_the_record() -> None:
    world = World(DYNAMIC)
    world.plays(1.0, 1.0, 1.0)
    assert world.decided(DecisionKind.ROLLOUTS) is None
    world.plays(1.0)
    decision = world.decided(DecisionKind.ROLLOUTS)
    assert decision is not None
    assert (decision.before, decision.after) == ("4", "2")
    assert decision.reason == "success 1.00 over the last 4"
    assert world.told == [decision]
    assert world.group_of(world.lease()).rollouts_wanted == 2


def test_the_number_is_back_at_its_largest_when_success_falls() -> None:
    world = World(DYNAMIC)
    world.plays(1.0, 1.0, 1.0, 1.0, 0.0)
    decision = world.decided(DecisionKind.ROLLOUTS)
    assert decision is not None
    assert (decision.before, decision.after) == ("2", "4")
    assert decision.reason == "success 0.50 over the last 2"


def test_a_group_keeps_what_it_was_opened_with() -> None:
    world = World(replace(DYNAMIC, step_cap=SHORT.step_cap))
    first = [world.lease(f"env-{number:03d}") for number in range(4)]
    later = world.lease("env-004")
    for lease in first:
        world.stores(lease, 1.0)
    again = world.lease("env-005")
    assert again.group_id == later.group_id
    assert (world.group_of(again).rollouts_wanted, again.step_cap) == (4, 10)


def test_the_cap_follows_the_longest_success_and_grows_with_it() -> None:
    world = World(SHORT)
    for steps, cap in ((1, 2), (3, 4), (2, 4), (6, 7), (10, 10)):
        world.plays(1.0, 1.0, 1.0, 1.0, steps=steps)
        assert world.lease().step_cap == cap
        world.restarted()
        assert world.service.curator.tasks["click-test"].step_cap == cap
    decision = world.decided(DecisionKind.STEP_CAP)
    assert decision is not None
    assert decision.reason == "longest success 10 steps + slack 1, at most 10"


@pytest.mark.parametrize(("success_above", "cap"), [(0.5, 4), (0.4, 4), (0.2, 7)])
def test_a_partial_score_sets_the_cap_only_above_the_threshold(success_above: float, cap: int) -> None:
    world = World(replace(SHORT, success_above=success_above))
    world.plays(0.4, 0.0, 0.0, 0.0, steps=6)
    world.plays(1.0, 0.0, 0.0, 0.0, steps=3)
    assert world.lease().step_cap == cap
    world.restarted()
    assert world.service.curator.tasks["click-test"].step_cap == cap


def test_a_task_whose_successes_are_none_by_a_raised_threshold_has_the_global_cap_again() -> None:
    world = World(SHORT)
    world.plays(0.6, 0.0, 0.0, 0.0, steps=2)
    assert world.lease().step_cap == 3
    with Store(world.record.store.address, success_above=0.9) as goes_on:
        goes_on.recount_successes()
    world.settings = replace(SHORT, success_above=0.9)
    world.restarted()
    decision = world.decided(DecisionKind.STEP_CAP)
    assert decision is not None
    assert (decision.after, decision.reason) == ("10", "no episode counts as a success any more")


def test_a_failure_however_long_says_nothing_about_the_cap() -> None:
    world = World(SHORT)
    world.plays(0.0, 0.0, 0.0, 0.0, steps=2)
    assert world.lease().step_cap == 10


def test_a_group_that_probes_runs_at_the_global_cap_and_says_so() -> None:
    world = World(replace(SETTINGS, step_cap=StepCap(largest=10, slack=1, probe_share=1.0)))
    world.plays(1.0, 1.0, 1.0, 1.0)
    lease = world.lease()
    assert (lease.step_cap, world.group_of(lease).probes_length) == (10, True)


def test_nothing_probes_before_there_is_a_cap_to_probe() -> None:
    world = World(replace(SETTINGS, step_cap=StepCap(largest=10, slack=1, probe_share=1.0)))
    assert not world.group_of(world.lease()).probes_length


@pytest.mark.parametrize("switched_off", [SETTINGS, replace(DYNAMIC, quota=fixed_quota(ROLLOUTS))])
def test_a_restarted_desk_goes_by_what_was_decided_unless_it_is_switched_off(
    switched_off: CuratorSettings,
) -> None:
    world = World(replace(DYNAMIC, step_cap=SHORT.step_cap))
    world.plays(1.0, 1.0, 1.0, 1.0)
    world.restarted()
    lease = world.lease()
    assert (world.group_of(lease).rollouts_wanted, lease.step_cap) == (2, 4)
    world.settings = switched_off
    world.restarted()
    world.stores(lease, 1.0)
    world.plays(1.0)
    lease = world.lease()
    assert (world.group_of(lease).rollouts_wanted, lease.step_cap) == (4, 10)


def test_a_decision_that_a_crash_prevented_is_made_by_the_next_desk() -> None:
    world = World(SHORT)
    lease = world.lease()
    world.record.finish(lease, 1.0, 3, 0)
    world.restarted()
    decision = world.decided(DecisionKind.STEP_CAP)
    assert decision is not None
    assert decision.after == "4"


@pytest.mark.parametrize("decides_before", [False, True])
def test_a_number_that_a_crash_left_undecided_is_decided_by_the_next_curator(decides_before: bool) -> None:
    world = World(DYNAMIC)
    world.plays(*((0.0, 1.0, 1.0, 1.0) if decides_before else (1.0, 1.0, 1.0)))
    before, after = ("3", "2") if decides_before else ("4", "2")
    world.now_unix_s += 1
    world.record.finish(world.lease(), 1.0, 3, 0)
    world.restarted()
    decision = world.decided(DecisionKind.ROLLOUTS)
    assert decision is not None
    assert (decision.before, decision.after) == (before, after)


@pytest.mark.parametrize("step_cap", [None, SHORT.step_cap])
def test_an_episode_that_was_judged_is_not_judged_again_by_the_next_curator(
    step_cap: StepCap | None,
) -> None:
    """Over the last 4 success is 0.75, which gives 3 rollouts; the last 3 alone would give 2."""
    world = World(DYNAMIC)
    world.plays(0.0, 1.0, 1.0, 1.0)
    world.settings = replace(DYNAMIC, step_cap=step_cap)
    world.restarted()
    decision = world.decided(DecisionKind.ROLLOUTS)
    assert decision is not None
    assert (decision.before, decision.after) == ("4", "3")


def test_an_episode_that_was_judged_is_not_judged_again_when_an_attempt_fails() -> None:
    world = World(replace(DYNAMIC, task_quarantine=LIMITS))
    world.plays(0.0, 1.0, 1.0, 1.0)
    fails(world, FaultKind.INFRASTRUCTURE)
    decision = world.decided(DecisionKind.ROLLOUTS)
    assert decision is not None
    assert (decision.before, decision.after) == ("4", "3")


# ---- experience pool ----


def test_a_group_in_which_all_failed_is_trained_with_a_demonstration() -> None:
    world = World(POOL)
    pool_id = world.record.add_demonstration("click-test", 3, num_steps=2)
    world.restarted()
    lease = world.plays(0.0, 0.0, 0.0, 0.0)
    assert world.group_of(lease).demonstrations == (pool_id,)
    batch = at_once(world.service.batch())
    assert isinstance(batch, Batch)
    assert batch.group_ids == (lease.group_id,)


def test_a_group_whose_rewards_differ_without_a_success_gets_a_demonstration_and_a_guide_too() -> None:
    world, pool_id = guiding(PoolRule(max_uses=1, guided_attempts=1))
    lease = world.plays(0.0, 0.0, 0.0, 0.4)
    assert world.group_of(lease).demonstrations == (pool_id,)
    assert guide_of(world) == pool_id


def test_a_group_whose_rewards_differ_without_a_success_is_trained_where_the_pool_has_nothing_for_it() -> (
    None
):
    world, _ = guiding(PoolRule(max_uses=1))
    world.plays(0.0, 0.0, 0.0, 0.0)
    lease = world.plays(0.0, 0.0, 0.0, 0.4)
    assert world.group_of(lease).demonstrations == ()
    assert world.record.drops == {}
    assert len(world.service.curator._live_groups.ready) == 2


def test_no_demonstration_joins_a_group_that_was_ready_before_a_restart() -> None:
    """The trainer may have computed an update on it ahead of its lease."""
    world, _ = guiding(PoolRule(max_uses=1))
    world.settings = replace(SETTINGS, pool=None)
    world.restarted()
    lease = world.plays(0.0, 0.0, 0.0, 0.4)
    world.settings = replace(SETTINGS, pool=PoolRule(max_uses=1))
    world.restarted()
    assert world.group_of(lease).demonstrations == ()


def test_a_group_whose_demonstration_was_dropped_meanwhile_gets_another_one() -> None:
    world, first = guiding(PoolRule(max_uses=1))
    second = world.record.add_demonstration("click-test", 3, num_steps=3)
    world.restarted()
    chosen = world.group_of(world.plays(0.0, 0.0, 0.0, 0.4)).demonstrations
    world, first = guiding(PoolRule(max_uses=1))
    world.record.add_demonstration("click-test", 3, num_steps=3)
    world.restarted()
    world.record.store.drop_demonstration(chosen[0])
    (other,) = {first, second} - set(chosen)
    assert world.group_of(world.plays(0.0, 0.0, 0.0, 0.4)).demonstrations == (other,)


@pytest.mark.parametrize("rewards", [(1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0)])
def test_a_group_with_a_success_of_its_own_gets_none(rewards: tuple[float, ...]) -> None:
    world = World(POOL)
    world.record.add_demonstration("click-test", 3, num_steps=2)
    world.restarted()
    assert world.group_of(world.plays(*rewards)).demonstrations == ()


def test_what_is_used_up_is_not_used_again_also_after_a_restart() -> None:
    world = World(POOL)
    world.record.add_demonstration("click-test", 3, num_steps=2)
    world.restarted()
    world.plays(0.0, 0.0, 0.0, 0.0)
    world.plays(0.0, 0.0, 0.0, 0.0)
    world.restarted()
    world.plays(0.0, 0.0, 0.0, 0.0)
    assert world.record.drops == {"no_spread": 8}


def test_a_demonstration_that_somebody_dropped_meanwhile_is_not_used() -> None:
    world = World(POOL)
    pool_id = world.record.add_demonstration("click-test", 3, num_steps=2)
    world.restarted()
    world.record.store.drop_demonstration(pool_id)
    world.plays(0.0, 0.0, 0.0, 0.0)
    assert world.record.drops == {"no_spread": 4}


def guiding(pool: PoolRule) -> tuple[World, int]:
    world = World(replace(SETTINGS, pool=pool))
    pool_id = world.record.add_demonstration("click-test", 3, num_steps=2)
    world.restarted()
    return world, pool_id


def guide_of(world: World) -> int | None:
    found = world.service.curator.next_guide(())
    return None if found is None else found.pool_id


def test_a_group_that_failed_asks_for_an_episode_under_its_demonstration_until_the_policy_did_it() -> None:
    world, pool_id = guiding(PoolRule(max_uses=9, guided_attempts=3))
    assert guide_of(world) is None
    world.plays(0.0, 0.0, 0.0, 0.0)
    assert guide_of(world) == pool_id
    assert world.service.curator.next_guide({pool_id}) is None  # an environment plays it
    world.record.record_guided(pool_id, 1, succeeded=False)
    world.service.pool_changed("click-test")
    assert guide_of(world) == pool_id
    world.record.record_guided(pool_id, 2, succeeded=True)
    world.service.pool_changed("click-test")
    assert guide_of(world) is None
    own = pool_id + 1
    assert world.group_of(world.plays(0.0, 0.0, 0.0, 0.0)).demonstrations == (own,)


def test_a_demonstration_that_the_policy_cannot_do_costs_so_many_episodes_and_no_more() -> None:
    world, pool_id = guiding(PoolRule(max_uses=9, guided_attempts=2))
    for attempt in (1, 2):
        world.plays(0.0, 0.0, 0.0, 0.0)
        assert guide_of(world) == pool_id
        world.record.record_guided(pool_id, attempt, succeeded=False)
        world.service.pool_changed("click-test")
    world.plays(0.0, 0.0, 0.0, 0.0)
    assert guide_of(world) is None


def test_where_screens_follow_from_seeds_failing_groups_are_opened_where_a_demonstration_can_join() -> None:
    world, pool_id = guiding(PoolRule(max_uses=2, matches_seeds=True))
    groups = [world.group_of(world.plays(0.0, 0.0, 0.0, 0.0)) for _ in range(2)]
    assert [(group.seed, group.demonstrations) for group in groups] == [(3, (pool_id,))] * 2
    seeds = {world.plays(0.0, 0.0, 0.0, 0.0).seed for _ in range(9)}  # it is used up
    assert len(seeds) > 3


def test_a_failed_group_asks_for_a_guided_episode_also_where_its_demonstration_is_used_up() -> None:
    world, pool_id = guiding(PoolRule(max_uses=1, guided_attempts=3))
    world.plays(0.0, 0.0, 0.0, 0.0)
    world.restarted()
    assert guide_of(world) is None
    world.plays(0.0, 0.0, 0.0, 0.0)
    assert guide_of(world) == pool_id


def test_the_episodes_of_a_task_are_known_with_their_seeds_also_after_a_restart() -> None:
    world = World(SETTINGS)
    rewards = (0.0, 1.0, 0.0, 1.0)
    seeds = [world.plays(*rewards).seed for _ in range(2)]
    for _ in range(2):
        played = list(world.service.curator.tasks["click-test"].played)
        assert played == [SeedReward(seed, reward) for seed in seeds for reward in rewards]
        world.restarted()


class NotedSpreads(RoundRobin):
    """Round robin that keeps the expected spread of each task."""

    def __init__(self, tasks: Sequence[str], order_seed: int) -> None:
        super().__init__(tasks, order_seed)
        self.spreads: dict[str, float] = {}

    def place(self, task_id: str, opened: int, spread: float, *, is_allowed: bool) -> None:
        self.spreads[task_id] = spread
        super().place(task_id, opened, spread, is_allowed=is_allowed)


def test_the_order_of_tasks_follows_their_newest_rewards_though_more_are_kept_for_the_pool() -> None:
    order = NotedSpreads(SETTINGS.tasks, 0)
    pool = PoolRule(max_uses=0, matches_seeds=True)
    settings = replace(SETTINGS, quota=fixed_quota(8), pool=pool, task_order=lambda *_: order)
    tasks, newest = TaskTable(settings, ()), [0.0] * settings.kept_rewards
    for reward in [1.0] * settings.kept_rewards + newest:
        tasks.episode_ended("click-test", 3, reward, None)
    assert order.spreads == {"click-test": expected_spread(newest, 8)}
    tasks.decided(
        TaskDecision(
            task_id="click-test",
            kind=DecisionKind.ROLLOUTS,
            before="8",
            after="2",
            reason="made up",
            policy_version=0,
            unix_s=0.0,
        )
    )
    assert order.spreads == {"click-test": expected_spread(newest, 2)}


# ---- quarantine ----


def loses(world: World, task_id: str) -> None:
    """Whoever plays this task dies and comes back, until something is decided about it."""
    names = (f"env-{number:03d}" for number in range(100))
    name = next(names)
    while not world.told:
        answer = world.work(name)
        if isinstance(answer, RolloutLease) and answer.task_id != task_id:
            name = next(names)  # this one plays on


def test_a_task_that_kills_environments_rests_and_its_group_is_not_played_on() -> None:
    world = World(RESTS)
    loses(world, "click-test")
    decision = world.decided(DecisionKind.QUARANTINE)
    assert decision is not None
    assert decision.reason == "2 environments in a row died while playing it"
    assert float(decision.after) == 1100.0
    assert world.record.drops == {"task_quarantined": 1}
    others = {world.lease(f"other-{number}").task_id for number in range(7)}
    assert others == {"login-user"}
    assert world.service.curator.tasks.quarantined(world.now_unix_s) == {"click-test": decision.reason}


def test_a_curator_that_dies_once_a_quarantine_is_recorded_leaves_no_group_of_the_task_to_play(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(replace(RESTS, tasks=("click-test",)))
    write = world.record.write

    async def dies_after_a_decision(call: Call[Any]) -> Any:
        result = await write(call)
        if isinstance(call, RecordDecisions):
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(world.record, "write", dies_after_a_decision)
    with pytest.raises(KeyboardInterrupt):
        fails(world, *[FaultKind.INFRASTRUCTURE] * LIMITS.failed_attempts)
    monkeypatch.undo()
    assert world.decided(DecisionKind.QUARANTINE) is not None
    world.restarted()
    assert isinstance(world.work(), NoWorkYet)
    assert world.record.snapshot().groups == ()


def test_attempts_that_fail_make_a_task_rest_and_engines_that_fail_do_not() -> None:
    for kind, rests in ((FaultKind.INFRASTRUCTURE, True), (FaultKind.TASK, True), (FaultKind.POLICY, False)):
        world = World(replace(RESTS, tasks=("click-test",)))
        for _ in range(4):
            lease = world.lease()
            at_once(world.service.failed(lease.rollout_id, lease.fence, kind, "made up"))
        decision = world.decided(DecisionKind.QUARANTINE)
        assert (decision is not None) is rests, kind
        if decision is not None:
            assert decision.reason == "4 attempts in a row ended by a fault"


def test_where_all_tasks_rest_environments_are_told_why() -> None:
    world = World(replace(RESTS, tasks=("click-test",)))
    loses(world, "click-test")
    world.now_unix_s += 40
    answer = world.work("other")
    assert isinstance(answer, NoWorkYet)
    assert answer.reason == (
        "every task is in quarantine (1); the next one is click-test in 60 s: "
        "2 environments in a row died while playing it"
    )


def quarantined() -> World:
    """One task, whose two groups had no success."""
    world = World(replace(RESTS, tasks=("click-test",)))
    world.plays(*[0.0] * 8)
    return world


def test_a_task_without_success_rests_over_a_restart_and_then_one_group_is_tried() -> None:
    world = quarantined()
    assert world.told[-1].reason == "2 groups in a row had no success"
    world.restarted()
    answer = world.work()
    assert isinstance(answer, NoWorkYet)
    assert answer.reason == (
        "every task is in quarantine (1); the next one is click-test in 100 s: "
        "2 groups in a row had no success"
    )
    world.now_unix_s += 100
    trial = [world.lease(f"env-{number:03d}").group_id for number in range(4)]
    assert len(set(trial)) == 1
    answer = world.work("env-004")
    assert isinstance(answer, NoWorkYet)
    assert answer.reason == "every task is in quarantine (1); those whose quarantine is over are being tried"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_set_back_makes_no_quarantine_longer_than_it_was(restarts: bool) -> None:
    world = quarantined()
    world.now_unix_s = 50.0
    if restarts:
        world.restarted()
    answer = world.work()
    assert isinstance(answer, NoWorkYet)
    assert "click-test in 100 s" in answer.reason
    world.now_unix_s = 149.0
    assert isinstance(world.work(), NoWorkYet)
    world.now_unix_s = 150.0
    world.plays(*[0.0] * 4)
    assert world.told[-1].reason == "the group tried after its quarantine had no success"
    assert float(world.told[-1].after) == world.now_unix_s + 200


def test_a_quarantined_task_is_played_where_quarantines_are_switched_off() -> None:
    world = quarantined()
    world.settings = replace(world.settings, task_quarantine=None)
    world.restarted()
    assert isinstance(world.work(), RolloutLease)


def test_a_quarantine_is_shown_until_it_is_over_and_only_of_a_task_that_is_trained() -> None:
    world = quarantined()
    trained = world.settings
    for tasks, shown in ((("login-user",), set()), (("click-test",), {"click-test"})):
        world.settings = replace(trained, tasks=tasks)
        world.restarted()
        assert set(world.service.curator.tasks.quarantined(world.now_unix_s)) == shown
    world.now_unix_s += 100
    assert world.service.curator.tasks.quarantined(world.now_unix_s) == {}


def test_no_guided_episode_is_played_of_a_task_in_quarantine() -> None:
    pool = PoolRule(max_uses=1, guided_attempts=3)
    world = World(replace(RESTS, tasks=("click-test",), pool=pool))
    pool_id = world.record.add_demonstration("click-test", 3, num_steps=2)
    world.restarted()
    world.plays(0.0, 0.0, 0.0, 0.0)
    assert guide_of(world) == pool_id
    fails(world, *[FaultKind.INFRASTRUCTURE] * 4)
    assert guide_of(world) is None
    world.now_unix_s += 100
    world.plays(1.0)
    assert guide_of(world) == pool_id


def test_a_group_of_successes_that_a_restarted_curator_drops_is_no_failure() -> None:
    limits = LIMITS.model_copy(update={"groups_without_success": 1})
    world = World(replace(RESTS, tasks=("click-test",), task_quarantine=limits))
    for lease in [world.lease(f"env-{number:03d}") for number in range(4)]:
        world.record.finish(lease, 1.0, 3, 0)
    world.restarted()
    assert world.record.drops == {"no_spread": 4}
    assert world.told == []


def test_an_environment_that_could_not_say_that_it_stored_its_episode_is_no_fault() -> None:
    world = World(RESTS)
    lease = world.lease()
    world.record.finish(lease, 0.0, 3, 0)
    world.lease()
    assert world.service.curator.tasks[lease.task_id].health.failed_attempts == 0


def test_groups_whose_rewards_differ_without_a_success_count_once_when_they_are_complete() -> None:
    world = World(replace(RESTS, tasks=("click-test",)))
    world.plays(0.0, 0.0, 0.0, 0.4)
    assert world.told == []
    world.plays(0.0, 0.0, 0.0, 0.4)
    assert world.told[-1].reason == "2 groups in a row had no success"
    assert isinstance(at_once(world.service.batch()), Batch)
    world.now_unix_s += 100
    world.plays(0.0, 0.0, 0.0, 0.4)
    assert world.told[-1].reason == "the group tried after its quarantine had no success"


def test_a_group_that_was_counted_when_it_was_complete_is_not_counted_again_when_it_is_too_old() -> None:
    world = World(replace(RESTS, tasks=("click-test",), groups_per_update=1, staleness_bound=0))
    world.plays(0.0, 0.0, 0.0, 0.4)
    world.service.curator.trainer_version = 1
    at_once(world.service.settle())
    assert world.record.drops == {"stale": 4}
    assert world.told == []


def test_a_trial_without_success_makes_the_next_rest_twice_as_long() -> None:
    world = quarantined()
    for duration_s in (200.0, 400.0):
        world.restarted()
        world.now_unix_s = float(world.told[-1].after)
        world.plays(*[0.0] * 4)
        assert world.told[-1].reason == "the group tried after its quarantine had no success"
        assert float(world.told[-1].after) == world.now_unix_s + duration_s


ATTEMPTS = ROLLOUTS * SETTINGS.max_attempts
"""Number of failed attempts that end a group."""


def fails(world: World, *kinds: FaultKind) -> None:
    """The next attempts end by faults of these kinds."""
    for kind in kinds:
        lease = world.lease()
        at_once(world.service.failed(lease.rollout_id, lease.fence, kind, "made up"))


@pytest.mark.parametrize("kind", [FaultKind.SYSTEM, FaultKind.POLICY])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_trial_that_the_task_did_not_hinder_is_repeated_at_once(kind: FaultKind, restarts: bool) -> None:
    world = quarantined()
    world.now_unix_s += 100
    fails(world, *[kind] * (ATTEMPTS - 1))
    if restarts:
        world.restarted()
    fails(world, kind)
    assert world.record.drops[f"attempts_spent:{kind}"] == ROLLOUTS
    assert [decision.reason for decision in world.told] == ["2 groups in a row had no success"]
    assert isinstance(world.work(), RolloutLease)


def test_a_trial_that_is_not_played_also_for_a_fault_of_the_task_makes_the_next_rest_twice_as_long() -> None:
    world = quarantined()
    world.now_unix_s += 100
    fails(world, FaultKind.INFRASTRUCTURE, *[FaultKind.SYSTEM] * (ATTEMPTS - 1))
    assert world.told[-1].reason == "the group tried after its quarantine had no success"
    assert float(world.told[-1].after) == world.now_unix_s + 200


@pytest.mark.parametrize("restarts", [False, True])
def test_groups_opened_before_a_quarantine_are_no_trial_whenever_they_end(restarts: bool) -> None:
    world = World(replace(RESTS, tasks=("click-test",)))
    opened = [world.lease(f"env-{number:03d}") for number in range(16)]
    for lease in opened[:8]:
        world.stores(lease, 0.0)
    until_unix_s = world.now_unix_s + 100
    for ends_unix_s, of_group in ((until_unix_s - 1, opened[8:12]), (until_unix_s, opened[12:])):
        if restarts:
            world.restarted()
        world.now_unix_s = ends_unix_s
        for lease in of_group:
            world.stores(lease, 0.0)
        assert [float(one.after) for one in world.told] == [until_unix_s]


def test_a_success_releases_a_task_at_once() -> None:
    world = quarantined()
    world.now_unix_s += 100
    world.plays(1.0)
    assert world.told[-1].before == world.told[-2].after
    assert (world.told[-1].after, world.told[-1].reason) == (
        "",
        "a group had a success after 100 s of quarantine",
    )
    for number in range(3):
        world.lease(f"env-{number:03d}")
    assert isinstance(world.work("env-004"), RolloutLease)


def test_a_trial_that_succeeds_after_faults_is_trained_although_its_cap_changes_with_the_release() -> None:
    world = World(replace(RESTS, tasks=("click-test",), step_cap=SHORT.step_cap))
    loses(world, "click-test")
    world.now_unix_s += 100
    world.plays(0.0, 1.0, 0.0, 1.0)
    kinds = [decision.kind for decision in world.told]
    assert kinds == [DecisionKind.QUARANTINE, DecisionKind.STEP_CAP, DecisionKind.QUARANTINE]
    assert isinstance(at_once(world.service.batch()), Batch)
    assert world.record.drops == {"task_quarantined": 1}


def test_a_demonstration_counts_as_a_success() -> None:
    world = World(replace(RESTS, tasks=("click-test",), pool=PoolRule(max_uses=0)))
    world.record.add_demonstration("click-test", 3, num_steps=2)
    world.restarted()
    world.plays(*[0.0] * 16)
    assert world.told == []


# ---- scheduling and admission ----


def test_task_wise_an_environment_waits_for_the_others_of_its_group() -> None:
    world = World(replace(SETTINGS, scheduling=Scheduling.TASK))
    leases = [world.lease(f"env-{number:03d}") for number in range(4)]
    world.stores(leases[0], 1.0)
    answer = world.work("env-000")
    assert isinstance(answer, NoWorkYet)
    assert answer.reason == f"the other rollouts of group {leases[0].group_id} are being played"
    assert world.lease("env-004").group_id != leases[0].group_id, "who played nothing of it is free"
    for lease in leases[1:]:
        world.stores(lease, 0.0)
    assert world.lease("env-000").group_id != leases[0].group_id


def test_task_wise_an_environment_plays_what_its_own_group_still_needs() -> None:
    world = World(replace(SETTINGS, scheduling=Scheduling.TASK))
    first = world.lease("env-000")
    world.stores(first, 1.0)
    assert world.lease("env-000").group_id == first.group_id


def test_batch_wise_groups_are_opened_for_one_update_at_a_time_and_dropped_ones_replaced() -> None:
    world = World(replace(SETTINGS, scheduling=Scheduling.BATCH))
    dropped = world.plays(1.0, 1.0, 1.0, 1.0)
    trained = world.plays(0.0, 1.0, 1.0, 1.0)
    assert trained.group_id != dropped.group_id
    answer = world.work()
    assert isinstance(answer, NoWorkYet)
    assert "have to be trained before new ones are opened" in answer.reason
    batch = at_once(world.service.batch())
    assert isinstance(batch, Batch)
    world.record.commit_update(batch, 1)
    at_once(world.service.committed(1))
    answer = world.work()
    assert isinstance(answer, NoWorkYet)
    assert answer.reason == "the next batch starts when every engine serves version 1"
    world.service.serving(1)
    assert isinstance(world.work(), RolloutLease)


def test_over_provisioning_bounds_the_groups_in_flight_and_carries_the_surplus_on() -> None:
    world = World(replace(SETTINGS, groups_per_update=2, over_provision=1.5))
    leases = [world.lease(f"env-{number:03d}") for number in range(12)]
    answer = world.work("env-012")
    assert isinstance(answer, NoWorkYet)
    assert answer.reason == "3 groups are in flight or ready, over-provisioning allows 3"
    for number, lease in enumerate(leases):
        if number != 4:
            world.stores(lease, float(number % 2))
    batch = at_once(world.service.batch())
    assert isinstance(batch, Batch)
    slow = leases[4].group_id
    assert slow not in batch.group_ids
    world.record.commit_update(batch, 1)
    at_once(world.service.committed(1))
    world.service.serving(1)
    world.stores(leases[4], 0.0)
    assert at_once(world.service.batch()) == NoWorkYet(
        retry_after_s=0.5, reason="1 of 2 groups are ready, 1 are live"
    )
    world.plays(0.0, 1.0, 0.0, 1.0)
    batch = at_once(world.service.batch())
    assert isinstance(batch, Batch)
    assert slow in batch.group_ids


# ---- messages and tasks of before ----


def test_a_message_that_comes_twice_counts_its_episode_and_its_group_once() -> None:
    world = World(SETTINGS)
    lease = world.plays(0.0, 1.0, 0.0, 1.0)
    at_once(world.service.look(lease.rollout_id))
    task = world.service.curator.tasks["click-test"]
    assert (list(task.rewards), task.unfinished) == ([0.0, 1.0, 0.0, 1.0], 0)


def test_the_groups_of_a_task_that_is_trained_no_longer_are_played_to_their_end() -> None:
    world = World(SETTINGS)
    first = world.lease()
    world.settings = replace(SETTINGS, tasks=("login-user",))
    world.restarted()
    world.stores(first, 1.0)
    assert world.plays(0.0, 1.0, 1.0).group_id == first.group_id
    assert world.lease().task_id == "login-user"


# ---- parked episodes ----


def test_a_parked_episode_is_taken_up_before_anything_new_and_costs_no_attempt() -> None:
    world = World(SETTINGS)
    lease = world.lease("env-000")
    world.record.park(lease, 2, 0, max_resumes=3, max_attempts=3)
    at_once(world.service.look(lease.rollout_id))
    again = world.lease("env-001")
    assert (again.rollout_id, again.parked_steps, again.attempt) == (lease.rollout_id, 2, 1)
