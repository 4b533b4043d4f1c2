"""Episodes that are interrupted: what was played is kept, no attempt is spent, and there is a bound."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dart.core.records import Park, Reassignment, Release, StoredResult
from dart.core.types import FaultKind, RolloutLease, RolloutState
from dart.store.errors import StoreConflict
from dart.store.store import Store
from dart.testing.trajectories import step_at, trajectory_for

STEPS = (step_at(0, 0), step_at(1, 1), step_at(1, 2))


@pytest.fixture
def lease(record: Store) -> RolloutLease:
    return record.lease_rollout(record.open_group("click-test", 7, 2, 10, 0), "env-000", 60.0)


def reassigned(record: Store, rollout_id: int) -> RolloutLease:
    answer = record.reassign_rollout(rollout_id, "env-001", 90.0)
    assert isinstance(answer, RolloutLease)
    return answer


def test_a_parked_episode_keeps_its_steps_and_its_attempt(record: Store, lease: RolloutLease) -> None:
    assert record.park_rollout(lease.rollout_id, 1, STEPS, "the run is stopped", 8) == Park.PARKED
    kept = record.rollout(lease.rollout_id)
    assert (kept.environment, kept.attempt, kept.parked_steps, kept.resumes) == (None, 1, 3, 1)
    assert (kept.oldest_version, kept.num_steps, kept.reward) == (0, None, None)
    assert record.parked_steps(lease.rollout_id) == STEPS
    again = reassigned(record, lease.rollout_id)
    assert (again.attempt, again.fence, again.parked_steps) == (1, 2, 3)
    assert record.totals().faults == {}
    assert record.integrity(0) == ()


def test_an_episode_that_was_taken_up_ends_like_any_other(record: Store, lease: RolloutLease) -> None:
    record.park_rollout(lease.rollout_id, 1, STEPS, "", 8)
    again = reassigned(record, lease.rollout_id)
    assert record.finish_rollout(lease.rollout_id, 2, trajectory_for(again)) == StoredResult.ACCEPTED
    assert record.parked_steps(lease.rollout_id) == ()
    assert record.rollout(lease.rollout_id).resumes == 1
    assert record.integrity(0) == ()


def test_an_episode_played_anew_may_be_parked_as_often_as_the_first(
    record: Store, lease: RolloutLease
) -> None:
    assert record.park_rollout(lease.rollout_id, 1, STEPS, "", 1) == Park.PARKED
    reassigned(record, lease.rollout_id)
    record.release_rollout(lease.rollout_id, 2, FaultKind.INFRASTRUCTURE, "the browser died", 5)
    reassigned(record, lease.rollout_id)
    assert record.rollout(lease.rollout_id).resumes == 0
    assert record.park_rollout(lease.rollout_id, 3, STEPS, "", 1) == Park.PARKED
    assert record.integrity(0) == ()


def test_steps_that_cannot_be_replayed_in_the_last_attempt_end_the_rollout(
    record: Store, lease: RolloutLease
) -> None:
    record.park_rollout(lease.rollout_id, 1, STEPS, "", 8)
    reassigned(record, lease.rollout_id)
    assert record.forget_parked(lease.rollout_id, 2, "another picture at step 1", 1) == StoredResult.FENCED
    assert record.rollout(lease.rollout_id).state == RolloutState.DROPPED
    assert record.totals().drops == {"attempts_spent:infrastructure": 1}
    assert record.integrity(0) == ()


def test_parking_twice_under_one_lease_is_parking_once(record: Store, lease: RolloutLease) -> None:
    record.park_rollout(lease.rollout_id, 1, STEPS, "", 8)
    assert record.park_rollout(lease.rollout_id, 1, STEPS[:1], "", 8) == Park.DUPLICATE
    reassigned(record, lease.rollout_id)
    assert record.park_rollout(lease.rollout_id, 1, STEPS[:1], "", 8) == Park.DUPLICATE
    assert record.parked_steps(lease.rollout_id) == STEPS
    assert record.rollout(lease.rollout_id).resumes == 1


def test_an_episode_interrupted_during_its_replay_keeps_what_was_kept(
    record: Store, lease: RolloutLease
) -> None:
    record.park_rollout(lease.rollout_id, 1, STEPS, "", 8)
    reassigned(record, lease.rollout_id)
    assert record.park_rollout(lease.rollout_id, 2, STEPS[:1], "", 8) == Park.PARKED
    assert record.parked_steps(lease.rollout_id) == STEPS
    assert reassigned(record, lease.rollout_id).parked_steps == 3


def test_an_episode_without_a_step_can_be_parked_too(record: Store, lease: RolloutLease) -> None:
    assert record.park_rollout(lease.rollout_id, 1, (), "", 8) == Park.PARKED
    assert record.rollout(lease.rollout_id).oldest_version is None
    again = reassigned(record, lease.rollout_id)
    assert (again.attempt, again.parked_steps) == (1, 0)


@pytest.mark.parametrize(("max_attempts", "awaits"), [(1, False), (2, True), (None, True)])
def test_an_episode_parked_too_often_costs_its_attempt(
    record: Store, lease: RolloutLease, max_attempts: int | None, awaits: bool
) -> None:
    record.park_rollout(lease.rollout_id, 1, STEPS, "", 1)
    reassigned(record, lease.rollout_id)
    answer = record.park_rollout(lease.rollout_id, 2, STEPS, "again", 1, max_attempts)
    assert answer == Park.REFUSED
    assert record.parked_steps(lease.rollout_id) == ()
    assert record.totals().faults == {"infrastructure": 1}
    if awaits:
        again = reassigned(record, lease.rollout_id)
        assert (again.attempt, again.parked_steps) == (2, 0)
    else:
        assert record.reassign_rollout(lease.rollout_id, "env-001", 90.0) == Reassignment.SETTLED
    assert record.integrity(0) == ()


def test_a_report_under_a_lost_lease_changes_nothing_and_is_counted(
    record: Store, lease: RolloutLease, fenced: Callable[[], int]
) -> None:
    record.release_rollout(lease.rollout_id, 1, FaultKind.INFRASTRUCTURE, "overdue", 3)
    reassigned(record, lease.rollout_id)
    assert record.park_rollout(lease.rollout_id, 1, STEPS, "", 8) == Park.FENCED
    assert record.forget_parked(lease.rollout_id, 1, "") == StoredResult.FENCED
    assert record.parked_steps(lease.rollout_id) == ()
    assert fenced() == 2


def test_a_spent_attempt_takes_what_was_parked_with_it(record: Store, lease: RolloutLease) -> None:
    record.park_rollout(lease.rollout_id, 1, STEPS, "", 8)
    reassigned(record, lease.rollout_id)
    released = record.release_rollout(lease.rollout_id, 2, FaultKind.INFRASTRUCTURE, "died", 3)
    assert released == Release.AWAITING
    again = reassigned(record, lease.rollout_id)
    assert (again.attempt, again.parked_steps) == (2, 0)


def test_a_spent_attempt_takes_nothing_of_another_episode(record: Store, lease: RolloutLease) -> None:
    other = record.lease_rollout(lease.group_id, "env-001", 60.0)
    for parked in (lease, other):
        record.park_rollout(parked.rollout_id, 1, STEPS, "", 8)
    reassigned(record, lease.rollout_id)
    record.release_rollout(lease.rollout_id, 2, FaultKind.INFRASTRUCTURE, "died", 3)
    assert record.parked_steps(other.rollout_id) == STEPS


def test_an_episode_that_ended_is_not_parked(
    record: Store, lease: RolloutLease, fenced: Callable[[], int]
) -> None:
    record.finish_rollout(lease.rollout_id, 1, trajectory_for(lease))
    assert record.park_rollout(lease.rollout_id, 1, STEPS, "", 8) == Park.FENCED
    other = record.lease_rollout(lease.group_id, "env-001", 60.0)
    record.release_rollout(other.rollout_id, 1, FaultKind.INFRASTRUCTURE, "overdue", 3)
    assert record.park_rollout(other.rollout_id, 1, STEPS, "", 8) == Park.DUPLICATE
    assert fenced() == 1


def test_what_cannot_be_replayed_is_played_anew_as_a_new_attempt(record: Store, lease: RolloutLease) -> None:
    record.park_rollout(lease.rollout_id, 1, STEPS, "", 8)
    again = reassigned(record, lease.rollout_id)
    assert record.forget_parked(lease.rollout_id, 2, "another picture at step 1") == StoredResult.ACCEPTED
    assert record.forget_parked(lease.rollout_id, 2, "another picture at step 1") == StoredResult.DUPLICATE
    kept = record.rollout(lease.rollout_id)
    assert (kept.environment, kept.attempt, kept.fence, kept.parked_steps) == ("env-001", 2, 2, 0)
    assert record.finish_rollout(lease.rollout_id, 2, trajectory_for(again)) == StoredResult.ACCEPTED


def test_a_dropped_group_forgets_what_was_parked(record: Store, lease: RolloutLease) -> None:
    record.park_rollout(lease.rollout_id, 1, STEPS, "", 8)
    record.drop_group(lease.group_id, "task_quarantined")
    assert record.parked_steps(lease.rollout_id) == ()
    assert record.integrity(0) == ()


def test_steps_nobody_could_train_on_are_refused(record: Store, lease: RolloutLease) -> None:
    broken = replace(STEPS[1], logprobs=())
    with pytest.raises(StoreConflict, match=r"parked rollout 1: step 1: 0 logprobs for 3 tokens"):
        record.park_rollout(lease.rollout_id, 1, (STEPS[0], broken), "", 8)
