"""What a group still needs and what it is worth."""

from dataclasses import replace

import pytest

from dart.core.records import GroupRecord, RolloutRecord
from dart.core.types import RolloutState
from dart.curation.groups import (
    DropReason,
    awaiting,
    is_complete,
    oldest_step,
    rewards,
    unissued,
    version_floor,
    why_untrainable,
)

POLICY_VERSION = 3


def rollout(
    rollout_id: int,
    state: str,
    *,
    reward: float | None = None,
    oldest: int = 5,
    environment: str | None = None,
) -> RolloutRecord:
    return RolloutRecord(
        rollout_id=rollout_id,
        group_id=1,
        state=RolloutState(state),
        environment=environment,
        attempt=1,
        fence=1,
        deadline_unix_s=0.0,
        reward=reward,
        oldest_version=oldest if reward is not None else None,
    )


def played(rollout_id: int) -> RolloutRecord:
    return rollout(rollout_id, "leased", environment="env-000")


def stored(rollout_id: int, reward: float, oldest: int = 5, steps: int = 2) -> RolloutRecord:
    return replace(rollout(rollout_id, "stored", reward=reward, oldest=oldest), num_steps=steps)


def group(*members: RolloutRecord, wanted: int = 3) -> GroupRecord:
    return GroupRecord(
        group_id=1,
        task_id="click-test",
        seed=7,
        rollouts_wanted=wanted,
        step_cap=10,
        policy_version=POLICY_VERSION,
        opened_unix_s=0.0,
        batch_id=None,
        rollouts=members,
    )


def test_what_was_not_issued_is_counted() -> None:
    assert unissued(group(played(1))) == 2


def test_a_rollout_without_an_owner_awaits_another_attempt() -> None:
    failed = rollout(2, "leased")
    assert awaiting(group(played(1), failed)) is failed
    assert awaiting(group(played(1), stored(2, 1.0))) is None


@pytest.mark.parametrize(
    ("members", "complete"),
    [
        ((stored(1, 1.0), stored(2, 0.0)), False),
        ((stored(1, 1.0), stored(2, 0.0), played(3)), False),
        ((stored(1, 1.0), stored(2, 0.0), rollout(3, "leased")), False),
        ((stored(1, 1.0), stored(2, 0.0), rollout(3, "dropped")), True),
        ((stored(1, 1.0), stored(2, 0.0), stored(3, 0.0)), True),
    ],
)
def test_a_group_is_complete_when_all_are_issued_and_none_is_played(
    members: tuple[RolloutRecord, ...], complete: bool
) -> None:
    assert is_complete(group(*members)) is complete


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ((stored(1, 1.0), stored(2, 0.0), stored(3, 0.0)), None),
        ((stored(1, 0.5), stored(2, 0.5), stored(3, 0.6)), None),
        ((stored(1, 1.0), stored(2, 1.0), stored(3, 1.0)), DropReason.NO_SPREAD),
        ((stored(1, 0.0), stored(2, 0.0), rollout(3, "dropped")), DropReason.NO_SPREAD),
        ((stored(1, 0.3), stored(2, 0.3 + 1e-9), rollout(3, "dropped")), DropReason.NO_SPREAD),
        ((stored(1, 0.3), stored(2, 0.3 + 1e-5), rollout(3, "dropped")), None),
        ((stored(1, 1.0), rollout(2, "dropped"), rollout(3, "dropped")), DropReason.TOO_FEW),
        ((rollout(1, "dropped"),) * 3, DropReason.TOO_FEW),
        ((stored(1, 1.0), stored(2, 1.0), played(3)), None),
    ],
)
def test_why_a_group_teaches_nothing(members: tuple[RolloutRecord, ...], reason: DropReason | None) -> None:
    assert why_untrainable(group(*members)) == reason


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ((stored(1, 0.0, steps=1), stored(2, 0.0, steps=3), stored(3, 0.0, steps=1)), None),
        ((stored(1, 0.4, steps=1), stored(2, 0.4, steps=1), rollout(3, "dropped")), None),
        ((stored(1, 0.0, steps=2), stored(2, 0.0, steps=3), stored(3, 0.0, steps=2)), DropReason.NO_SPREAD),
        ((stored(1, 1.0, steps=1), stored(2, 1.0, steps=1), stored(3, 1.0, steps=1)), DropReason.NO_SPREAD),
        ((stored(1, 0.0, steps=1), rollout(2, "dropped"), rollout(3, "dropped")), DropReason.TOO_FEW),
    ],
)
def test_failures_at_once_teach_where_they_get_a_penalty(
    members: tuple[RolloutRecord, ...], reason: DropReason | None
) -> None:
    assert why_untrainable(group(*members), penalised_up_to=0.5) == reason


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ((stored(1, 1.0, steps=1), stored(2, 1.0, steps=3), stored(3, 1.0, steps=1)), None),
        ((stored(1, 0.9, steps=1), stored(2, 0.9, steps=2), rollout(3, "dropped")), None),
        ((stored(1, 1.0, steps=2), stored(2, 1.0, steps=2), rollout(3, "dropped")), DropReason.NO_SPREAD),
        ((stored(1, 0.5, steps=1), stored(2, 0.5, steps=3), stored(3, 0.5, steps=1)), DropReason.NO_SPREAD),
        ((stored(1, 1.0, steps=1), rollout(2, "dropped"), rollout(3, "dropped")), DropReason.TOO_FEW),
    ],
)
def test_equal_successes_of_different_lengths_teach_where_their_steps_are_compared(
    members: tuple[RolloutRecord, ...], reason: DropReason | None
) -> None:
    assert why_untrainable(group(*members), compared_above=0.5) == reason


def test_the_reward_of_a_dropped_rollout_does_not_count() -> None:
    assert rewards(group(stored(1, 1.0), rollout(2, "dropped", reward=0.0))) == (1.0,)


@pytest.mark.parametrize(
    ("members", "oldest", "floor"),
    [
        ((), None, POLICY_VERSION),
        ((stored(1, 1.0, 5),), 5, POLICY_VERSION),  # the others may still sample at 3
        ((stored(1, 1.0, 2), played(2)), 2, 2),
        ((stored(1, 1.0, 5), stored(2, 1.0, 4), stored(3, 1.0, 6)), 4, 4),
        ((stored(1, 1.0, 5), stored(2, 1.0, 6), rollout(3, "dropped", reward=0.0, oldest=1)), 5, 5),
    ],
)
def test_the_floor_bounds_every_step_that_is_or_will_be(
    members: tuple[RolloutRecord, ...], oldest: int | None, floor: int
) -> None:
    assert oldest_step(group(*members)) == oldest
    assert version_floor(group(*members)) == floor
