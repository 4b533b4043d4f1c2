"""A demonstration for groups in which everything failed, and for no others."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from random import Random
from typing import Any

import pytest

from dart.core.records import DemonstrationSummary, GroupRecord, RolloutRecord, SeedReward
from dart.core.types import RolloutState
from dart.curation.experience_pool import PoolRule

POOL = PoolRule(max_uses=2)


def rollout(state: str, reward: float | None = None) -> RolloutRecord:
    return RolloutRecord(
        rollout_id=1,
        group_id=1,
        state=RolloutState(state),
        environment=None,
        attempt=1,
        fence=1,
        deadline_unix_s=0.0,
        reward=reward,
        oldest_version=None,
    )


FAILED, SUCCEEDED, LOST, AWAITING = (
    rollout("stored", 0.0),
    rollout("stored", 1.0),
    rollout("dropped"),
    rollout("leased"),
)


def group(*members: RolloutRecord, group_id: int = 1, demonstrations: tuple[int, ...] = ()) -> GroupRecord:
    return GroupRecord(
        group_id=group_id,
        task_id="click-test",
        seed=7,
        rollouts_wanted=3,
        step_cap=10,
        policy_version=0,
        opened_unix_s=0.0,
        batch_id=None,
        rollouts=members,
        demonstrations=demonstrations,
    )


def demonstration(pool_id: int = 1, **different: object) -> DemonstrationSummary:
    found = DemonstrationSummary(
        pool_id=pool_id,
        task_id="click-test",
        seed=3,
        origin="oracle",
        reward=1.0,
        num_steps=2,
        uses=0,
        dropped=False,
    )
    return replace(found, **different)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of_group", "gets_one"),
    [
        (group(FAILED, FAILED, FAILED), True),
        (group(FAILED, FAILED, LOST), True),
        (group(FAILED, LOST, LOST), True),
        (group(LOST, LOST, LOST), False),  # nobody failed: nobody played
        (group(FAILED, FAILED, SUCCEEDED), False),
        (group(FAILED, FAILED, rollout("stored", 0.01)), True),  # a partial score is no success
        (group(FAILED, FAILED, rollout("stored", 0.5)), True),  # a success is above the threshold
        (group(FAILED, FAILED, rollout("stored", 0.6)), False),
        (group(FAILED, FAILED), False),  # one was not issued yet
        (group(FAILED, FAILED, AWAITING), False),
        (group(FAILED, FAILED, FAILED, demonstrations=(9,)), False),
    ],
)
def test_a_group_gets_one_when_and_only_when_every_rollout_failed(
    of_group: GroupRecord, gets_one: bool
) -> None:
    assert (POOL.demonstration_for(of_group, [demonstration()]) is not None) is gets_one


@pytest.mark.parametrize(
    ("different", "is_used"),
    [
        ({}, True),
        ({"uses": 1}, True),
        ({"uses": 2}, False),
        ({"dropped": True}, False),
        ({"task_id": "login-user"}, False),
        ({"reward": 0.6}, True),
        ({"reward": 0.5}, False),
    ],
)
def test_what_is_used_up_dropped_no_success_or_of_another_task_is_left(
    different: dict[str, object], is_used: bool
) -> None:
    found = POOL.demonstration_for(group(FAILED, FAILED, FAILED), [demonstration(**different)])
    assert (found is not None) is is_used


def test_a_threshold_of_success_that_is_lowered_lets_more_demonstrations_join() -> None:
    partial = demonstration(reward=0.4)
    pool = replace(POOL, success_above=0.3)
    assert pool.demonstration_for(group(FAILED, FAILED, FAILED), [partial]) is partial


def test_without_a_limit_nothing_is_ever_used_up() -> None:
    worn = demonstration(uses=10_000)
    assert PoolRule(max_uses=0).demonstration_for(group(FAILED, FAILED, FAILED), [worn]) is worn


def test_chance_chooses_the_same_for_the_same_group_and_every_one_for_some_group() -> None:
    known = [demonstration(pool_id) for pool_id in range(1, 5)]
    failed = [group(FAILED, FAILED, FAILED, group_id=number) for number in range(1, 60)]
    chosen = [POOL.demonstration_for(one, known) for one in failed]
    assert chosen == [POOL.demonstration_for(one, reversed(known)) for one in failed]
    assert set(chosen) == set(known)
    assert {GUIDING.guide_for(one, known) for one in failed} == set(known)
    assert chosen != [PoolRule(max_uses=2, order_seed=1).demonstration_for(one, known) for one in failed]


# ---- seeds ----

MATCHING = replace(POOL, matches_seeds=True)
ALL_FAILED = group(FAILED, FAILED, FAILED)


def test_where_the_screen_follows_from_the_seed_only_a_demonstration_of_that_seed_joins() -> None:
    other, same = demonstration(1, seed=8), demonstration(2, seed=7)
    assert MATCHING.demonstration_for(ALL_FAILED, [other]) is None
    assert MATCHING.demonstration_for(ALL_FAILED, [other, same]) is same
    assert POOL.demonstration_for(ALL_FAILED, [other]) is other


def episodes(*groups: tuple[int, Sequence[float]]) -> list[SeedReward]:
    """The seeds and rewards of groups, each given by its seed and its rewards."""
    return [SeedReward(seed, reward) for seed, rewards in groups for reward in rewards]


def seeds_for(
    played: Sequence[SeedReward], *known: DemonstrationSummary, pool: PoolRule = MATCHING
) -> list[int | None]:
    return [pool.seed_for(4, Random(number), known, played) for number in range(200)]


FAILS = [0.0] * 4


def test_a_task_that_always_fails_is_played_on_seeds_that_have_a_demonstration() -> None:
    known = [demonstration(1, seed=3), demonstration(2, seed=9)]
    assert set(seeds_for(episodes((1, FAILS), (2, FAILS)), *known)) == {3, 9}
    assert set(seeds_for([], *known)) == {3, 9}
    assert set(seeds_for(episodes((1, [0.5] * 4)), *known)) == {3, 9}


def test_such_a_seed_is_played_as_often_as_groups_fail_altogether() -> None:
    known = demonstration(1, seed=3)
    mixed = [0.0, 0.0, 0.0, 1.0]
    assert set(seeds_for(episodes((1, mixed), (2, mixed), (4, [1.0] * 4)), known)) == {None}
    assert set(seeds_for(episodes((1, mixed[::-1])), known)) == {None}, "whichever of its episodes succeeded"
    one_in_four = seeds_for(episodes((1, FAILS), (2, [1.0] * 4), (4, mixed), (5, mixed)), known)
    assert 30 < one_in_four.count(3) < 70


def test_a_seed_that_failed_counts_once_half_of_a_group_is_known_and_one_that_succeeded_at_once() -> None:
    known = demonstration(1, seed=3)
    assert set(seeds_for(episodes((1, [0.0]), (2, [1.0])), known)) == {None}
    assert set(seeds_for(episodes((1, [0.0, 0.0]), (2, [1.0])), known)) == {None, 3}
    assert set(seeds_for(episodes((1, [0.0])), known)) == {3}, "nothing is known"


def test_seeds_that_were_solved_lately_are_left_out_while_others_have_a_demonstration() -> None:
    known = [demonstration(1, seed=3), demonstration(2, seed=9)]
    lately = episodes((1, FAILS), (2, FAILS), (3, [0.0, 0.0, 0.0, 1.0]))
    assert set(seeds_for(lately, *known)) == {None, 9}
    assert set(seeds_for(lately, known[0])) == {None, 3}
    partly = episodes((1, FAILS), (3, [0.5] * 4))
    assert set(seeds_for(partly, *known)) == {3, 9}, "a partial score is no success"


def test_a_seed_is_the_more_likely_the_more_often_its_demonstrations_were_used() -> None:
    known = [demonstration(1, seed=3), demonstration(2, seed=9, uses=3)]
    drawn = seeds_for(episodes((1, FAILS)), *known, pool=replace(MATCHING, max_uses=0))
    assert 20 < drawn.count(3) < 60  # one in five
    assert drawn.count(3) + drawn.count(9) == len(drawn)


def test_a_demonstration_that_can_only_guide_draws_groups_too() -> None:
    worn = demonstration(1, seed=3, uses=2)
    assert set(seeds_for(episodes((1, FAILS)), worn, pool=replace(MATCHING, guided_attempts=2))) == {3}


def test_used_up_demonstrations_and_tasks_without_seeds_draw_no_group() -> None:
    failing = episodes((1, FAILS))
    assert set(seeds_for(failing, demonstration(1, uses=2))) == {None}
    assert set(seeds_for(failing, demonstration(1, lacks_thought=True))) == {None}
    assert set(seeds_for(failing, demonstration(1, reward=0.4))) == {None}
    assert set(seeds_for(failing, demonstration(1), pool=POOL)) == {None}


# ---- thoughts, and what the policy did itself ----

GUIDING = replace(POOL, guided_attempts=2)


def test_an_action_without_its_thought_is_trained_only_where_that_is_asked_for() -> None:
    bare = demonstration(lacks_thought=True)
    assert POOL.demonstration_for(ALL_FAILED, [bare]) is None
    assert replace(POOL, without_thought=True).demonstration_for(ALL_FAILED, [bare]) is bare


def test_what_the_policy_did_itself_goes_before_everything_and_replaces_its_guide() -> None:
    guide, other = demonstration(1), demonstration(2)
    own = demonstration(3, guide_id=1)
    assert POOL.demonstration_for(ALL_FAILED, [guide, other, own]) is own
    worn = replace(own, uses=2)
    assert POOL.demonstration_for(ALL_FAILED, [guide, other, worn]) is other
    assert POOL.demonstration_for(ALL_FAILED, [guide, worn]) is None
    assert POOL.demonstration_for(ALL_FAILED, [guide, replace(own, dropped=True)]) is guide


@pytest.mark.parametrize(
    ("different", "is_guide"),
    [
        ({}, True),
        ({"lacks_thought": True}, True),
        ({"uses": 2}, True),  # of its steps; its actions are not used up
        ({"rolls": 1}, True),
        ({"rolls": 2}, False),
        ({"dropped": True}, False),
        ({"task_id": "login-user"}, False),
        ({"guide_id": 9}, False),
        ({"reward": 0.4}, False),
    ],
)
def test_a_failed_group_asks_for_a_guide_that_was_not_tried_too_often(
    different: dict[str, object], is_guide: bool
) -> None:
    found = GUIDING.guide_for(ALL_FAILED, [demonstration(**different)])  # type: ignore[arg-type]
    assert (found is not None) is is_guide


@pytest.mark.parametrize(("different", "is_guide"), [({"rolls": 1}, True), ({"rolls": 2}, False)])
def test_a_guide_that_was_leased_is_one_until_it_was_tried_too_often(
    different: dict[str, object], is_guide: bool
) -> None:
    guide = demonstration(**different)  # type: ignore[arg-type]
    assert GUIDING.is_guide(guide, [guide]) is is_guide


def test_nobody_is_guided_where_the_policy_did_it_or_the_group_has_a_success_or_it_is_off() -> None:
    guide = demonstration(1)
    assert GUIDING.guide_for(ALL_FAILED, [guide, demonstration(2, guide_id=1)]) is None
    assert GUIDING.guide_for(group(FAILED, FAILED, SUCCEEDED), [guide]) is None
    assert POOL.guide_for(ALL_FAILED, [guide]) is None


# ---- many demonstrations ----


class Watched(DemonstrationSummary):
    """A demonstration that counts the reads of its fields, of all demonstrations together."""

    reads = 0

    def __getattribute__(self, name: str) -> Any:
        Watched.reads += 1
        return super().__getattribute__(name)


def reads_of(pool: PoolRule, many: int) -> list[int]:
    """How many fields each decision about a task with so many demonstrations reads."""
    known = [Watched(**asdict(demonstration(number, seed=7))) for number in range(1, many + 1)]
    counts = []
    for decide in (
        lambda: pool.demonstration_for(ALL_FAILED, known),
        lambda: pool.guide_for(ALL_FAILED, known),
        lambda: pool.is_guide(known[0], known),
        lambda: pool.seed_for(4, Random(0), known, [SeedReward(7, 0.0)]),
    ):
        before = Watched.reads
        assert decide()
        counts.append(Watched.reads - before)
    return counts


def test_the_work_of_a_decision_grows_no_faster_than_the_demonstrations_of_a_task() -> None:
    pool = replace(MATCHING, guided_attempts=2)
    few, many = reads_of(pool, 20), reads_of(pool, 200)
    assert all(more <= 10 * fewer for fewer, more in zip(few, many, strict=True))
