"""A demonstration for groups in which everything failed, and for no others."""

from dataclasses import replace

import pytest

from dart.curation.pool import Pool
from dart.store.records import DemonstrationSummary, GroupRecord, RolloutRecord
from dart.types import RolloutState

POOL = Pool(max_uses=2)


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


def group(*members: RolloutRecord, group_id: int = 1, injected: tuple[int, ...] = ()) -> GroupRecord:
    return GroupRecord(
        group_id=group_id,
        task_id="click-test",
        seed=7,
        rollouts_wanted=3,
        step_cap=10,
        policy_version=0,
        batch_id=None,
        rollouts=members,
        injected=injected,
    )


def demonstration(pool_id: int = 1, **different: object) -> DemonstrationSummary:
    found = DemonstrationSummary(
        pool_id=pool_id, task_id="click-test", seed=3, origin="oracle", num_steps=2, uses=0, dropped=False
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
        (group(FAILED, FAILED, rollout("stored", 0.01)), False),
        (group(FAILED, FAILED), False),  # one was not issued yet
        (group(FAILED, FAILED, AWAITING), False),
        (group(FAILED, FAILED, FAILED, injected=(9,)), False),
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
    ],
)
def test_what_is_used_up_dropped_or_of_another_task_is_left(
    different: dict[str, object], is_used: bool
) -> None:
    found = POOL.demonstration_for(group(FAILED, FAILED, FAILED), [demonstration(**different)])
    assert (found is not None) is is_used


def test_without_a_limit_nothing_is_ever_used_up() -> None:
    worn = demonstration(uses=10_000)
    assert Pool(max_uses=0).demonstration_for(group(FAILED, FAILED, FAILED), [worn]) is worn


def test_chance_chooses_the_same_for_the_same_group_and_every_one_for_some_group() -> None:
    known = [demonstration(pool_id) for pool_id in range(1, 5)]
    failed = [group(FAILED, FAILED, FAILED, group_id=number) for number in range(1, 60)]
    chosen = [POOL.demonstration_for(one, known) for one in failed]
    assert chosen == [POOL.demonstration_for(one, reversed(known)) for one in failed]
    assert set(chosen) == set(known)
    assert chosen != [Pool(max_uses=2, order_seed=1).demonstration_for(one, known) for one in failed]
