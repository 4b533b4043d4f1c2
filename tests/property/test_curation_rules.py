"""What the curator's rules promise, for any rewards, settings and orders."""

import math
from collections import Counter
from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dart.core.records import DemonstrationSummary, FinishedEpisode, GroupRecord, RolloutRecord, SeedReward
from dart.core.types import Group, RolloutState, Trajectory
from dart.curation.admission import can_all_be_fresh
from dart.curation.experience_pool import PoolRule
from dart.curation.groups import why_untrainable
from dart.curation.play_figures import GroupsInPlay, Streak
from dart.curation.quota import Quota
from dart.curation.task_selection import ByExpectedSpread, expected_spread
from dart.training.batch import step_samples
from dart.training.failure_penalty import FailurePenalty
from dart.training.step_credit import StepCredit
from tests.unit.training.conftest import step_of, trajectory_of

rewards = st.sampled_from((0.0, 0.25, 0.5, 0.75, 1.0))
rates = st.floats(0.0, 1.0)


# ---- how many rollouts ----


@given(
    most=st.integers(2, 64),
    least=st.integers(1, 64),
    threshold=st.floats(0.01, 1.0),
    one=rates,
    other=rates,
)
def test_a_task_that_succeeds_more_gets_no_more_rollouts_within_the_bounds(
    most: int, least: int, threshold: float, one: float, other: float
) -> None:
    quota = Quota(most=most, minimum=min(least, most), threshold=threshold)
    numbers = [quota.for_success(s) for s in sorted((one, other))]
    assert numbers == sorted(numbers, reverse=True)
    assert all(quota.minimum <= number <= most for number in numbers)
    assert quota.for_success(math.nextafter(threshold, 0.0)) == most


# ---- which task ----


@given(found=st.lists(rewards, max_size=32), rollouts=st.integers(2, 16))
def test_expected_spread_is_a_probability_that_grows_with_the_group_and_knows_no_order(
    found: list[float], rollouts: int
) -> None:
    spread = expected_spread(found, rollouts)
    assert 0.0 < spread < 1.0
    assert expected_spread(found, rollouts + 1) > spread
    assert math.isclose(expected_spread(found[::-1], rollouts), spread)


@given(spreads=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6), order_seed=st.integers(0, 99))
def test_no_task_waits_for_its_group_much_longer_than_its_share_says(
    spreads: list[float], order_seed: int
) -> None:
    tasks = [f"task-{number}" for number in range(len(spreads))]
    order, opened = ByExpectedSpread(tasks, order_seed), Counter[str]()
    since = dict.fromkeys(tasks, 0)
    weights = {task: max(0.1, spread) for task, spread in zip(tasks, spreads, strict=True)}
    for task, spread in zip(tasks, spreads, strict=True):
        order.place(task, 0, spread, is_allowed=True)
    for _ in range(150):
        chosen = order.first()
        assert chosen is not None
        opened[chosen] += 1
        order.place(chosen, opened[chosen], spreads[tasks.index(chosen)], is_allowed=True)
        since = {task: 0 if task == chosen else waited + 1 for task, waited in since.items()}
        for task, waited in since.items():
            assert waited <= 3 * sum(weights.values()) / weights[task]


# ---- demonstrations ----


def demonstration(seed: int) -> DemonstrationSummary:
    return DemonstrationSummary(
        pool_id=seed,
        task_id="a",
        seed=seed,
        origin="oracle",
        reward=1.0,
        num_steps=1,
        uses=0,
        dropped=False,
    )


@given(
    played=st.lists(st.builds(SeedReward, st.integers(0, 5), rewards), max_size=40),
    demonstrated=st.sets(st.integers(0, 8), max_size=4),
    rollouts=st.integers(2, 8),
    chance=st.integers(0, 99),
)
def test_a_group_is_sent_to_a_seed_with_a_demonstration_and_never_while_every_seed_succeeds(
    played: list[SeedReward], demonstrated: set[int], rollouts: int, chance: int
) -> None:
    rule = PoolRule(max_uses=0, matches_seeds=True)
    seed = rule.seed_for(rollouts, Random(chance), [demonstration(one) for one in demonstrated], played)
    solved = {seed for seed, reward in played if reward > rule.success_above}
    assert seed is None or seed in demonstrated
    assert seed not in solved or demonstrated <= solved
    if {seed for seed, _ in played} == solved and solved:
        assert seed is None


# ---- admission ----


@given(
    floors=st.lists(st.integers(0, 4), max_size=6),
    trainer_version=st.integers(0, 5),
    groups_per_update=st.integers(1, 3),
    staleness_bound=st.integers(0, 4),
)
def test_groups_can_be_fresh_exactly_when_some_order_of_training_keeps_the_bound(
    floors: list[int], trainer_version: int, groups_per_update: int, staleness_bound: int
) -> None:
    found = any(
        all(
            trainer_version + place // groups_per_update - floor <= staleness_bound
            for place, floor in enumerate(order)
        )
        for order in permutations(floors)
    )
    assert found == can_all_be_fresh(
        Counter(floors),
        trainer_version=trainer_version,
        groups_per_update=groups_per_update,
        staleness_bound=staleness_bound,
    )


# ---- what is trained ----


def stored(number: int, trajectory: Trajectory) -> RolloutRecord:
    return RolloutRecord(
        rollout_id=number,
        group_id=1,
        state=RolloutState.STORED,
        environment=None,
        attempt=1,
        fence=1,
        deadline_unix_s=0.0,
        reward=trajectory.reward,
        oldest_version=0,
        num_steps=len(trajectory.steps),
    )


@given(
    members=st.lists(st.tuples(rewards, st.integers(1, 3)), min_size=2, max_size=6),
    has_penalty=st.booleans(),
    has_credit=st.booleans(),
)
def test_the_trainer_has_something_to_learn_from_exactly_the_groups_that_are_not_dropped(
    members: list[tuple[float, int]], has_penalty: bool, has_credit: bool
) -> None:
    trajectories = tuple(
        trajectory_of(tuple(step_of(sha256=str(step)) for step in range(length)), reward, number)
        for number, (reward, length) in enumerate(members)
    )
    record = GroupRecord(
        group_id=1,
        task_id="click-test",
        seed=7,
        rollouts_wanted=len(members),
        step_cap=10,
        policy_version=0,
        opened_unix_s=0.0,
        batch_id=None,
        rollouts=tuple(stored(number, one) for number, one in enumerate(trajectories)),
    )
    samples = step_samples(
        [Group(group_id=1, task_id="click-test", seed=7, trajectories=trajectories)],
        credit=StepCredit() if has_credit else None,
        penalty=FailurePenalty(weight=1.0) if has_penalty else None,
    )
    is_dropped = why_untrainable(record, 0.5 if has_penalty else None, 0.5 if has_credit else None)
    assert (is_dropped is None) == bool(samples.kept) == (samples.groups_without_spread == 0)


# ---- what the alarms measure of groups ----


def episodes_of(groups: list[list[float]], order: Random) -> list[FinishedEpisode]:
    """The episodes of groups of which two are played at the same time, in the order of their ends."""
    found: list[FinishedEpisode] = []
    for first in range(0, len(groups), 2):
        both = [
            FinishedEpisode(
                rollout_id=0,
                group_id=number,
                rollouts_wanted=len(groups[number]),
                task_id="a",
                reward=reward,
                num_steps=1,
                steps_sha256="",
                stored_unix_s=0.0,
            )
            for number in range(first, min(first + 2, len(groups)))
            for reward in groups[number]
        ]
        order.shuffle(both)
        found += both
    return found


@given(
    groups=st.lists(st.lists(st.sampled_from((0.0, 1.0)), min_size=2, max_size=4), max_size=30),
    size=st.integers(8, 40),
    order=st.randoms(use_true_random=False),
)
def test_every_group_is_measured_once_and_whole_wherever_windows_begin_and_end(
    groups: list[list[float]], size: int, order: Random
) -> None:
    episodes = episodes_of(groups, order)
    windows = [episodes[first : first + size] for first in range(0, len(episodes), size)]
    in_play, at_once = GroupsInPlay(), GroupsInPlay()
    found = [rewards for window in windows for _, rewards in in_play.ended(window)]
    assert found == [rewards for _, rewards in at_once.ended(episodes)]
    assert Counter(tuple(sorted(one)) for one in found) == Counter(tuple(sorted(one)) for one in groups)


@given(groups=st.lists(st.lists(st.sampled_from((0.0, 1.0)), min_size=2, max_size=3), max_size=120))
def test_the_chance_of_a_streak_is_a_probability_that_falls_with_every_group_of_it(
    groups: list[list[float]],
) -> None:
    streak = Streak()
    for rewards_of_group in groups:
        before, length, reward = streak.chance, streak.length, streak.reward
        streak.add(rewards_of_group)
        assert 0.0 < streak.chance <= 1.0
        if streak.length > length and streak.reward == reward:
            assert streak.chance <= before
