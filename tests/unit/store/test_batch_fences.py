"""Of several trainers that hold one batch, the last one leased commits it, once."""

from collections.abc import Callable

import pytest

from dart.core.records import Batch, StoredResult
from dart.store.errors import StoreConflict
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for


@pytest.fixture
def batch(record: Store) -> Batch:
    group_id = record.open_group("click-test", 7, 2, 10, 0)
    for reward in (0.0, 1.0):
        lease = record.lease_rollout(group_id, "env-000", 60.0)
        record.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, reward))
    return record.lease_batch([group_id], 60.0)


def test_leasing_a_batch_again_makes_its_fence_grow(record: Store, batch: Batch) -> None:
    assert (batch.fence, batch.deadline_unix_s) == (1, 60.0)
    again = record.reassign_batch(batch.batch_id, 90.0)
    assert (again.batch_id, again.group_ids) == (batch.batch_id, batch.group_ids)
    assert (again.fence, again.deadline_unix_s) == (2, 90.0)
    assert record.open_batch() == again


def test_a_trainer_that_was_replaced_cannot_commit_before_or_after_the_other(
    record: Store, batch: Batch, fenced: Callable[[], int]
) -> None:
    record.reassign_batch(batch.batch_id, 90.0)
    commits = [record.commit_update(batch.batch_id, fence, 1, {}) for fence in (1, 2, 1, 2)]
    assert commits == [
        StoredResult.FENCED,
        StoredResult.ACCEPTED,
        StoredResult.FENCED,
        StoredResult.DUPLICATE,
    ]
    assert [version.version for version in record.versions()] == [0, 1]
    assert fenced() == 2
    assert record.integrity(0) == ()


def test_a_fence_that_was_never_given_out_is_a_conflict(record: Store, batch: Batch) -> None:
    with pytest.raises(StoreConflict, match="expected a fence of at most 1, that of its newest lease, got 2"):
        record.commit_update(batch.batch_id, 2, 1, {})


@pytest.mark.parametrize("settle", ["commit", "release"])
def test_a_settled_batch_is_not_leased_again(record: Store, batch: Batch, settle: str) -> None:
    if settle == "commit":
        record.commit_update(batch.batch_id, 1, 1, {})
    else:
        record.refuse_batch(batch.batch_id, 1, (), (), "test", "")
    with pytest.raises(StoreConflict, match=r"batch 1 cannot be leased again: it is (consumed|released)"):
        record.reassign_batch(batch.batch_id, 90.0)


def test_a_batch_that_cannot_be_trained_costs_the_groups_to_blame_only(record: Store) -> None:
    good, bad = [finished_group(record) for _ in range(2)]
    batch = record.lease_batch((good, bad), 60.0)
    for wanted in (StoredResult.ACCEPTED, StoredResult.DUPLICATE):
        assert (
            record.refuse_batch(batch.batch_id, 1, (bad,), (), "damaged_screenshot", "it is gone") == wanted
        )
    assert [group.group_id for group in record.snapshot().groups] == [good]
    assert (record.conservation().dropped, record.open_batch()) == (1, None)
    assert record.integrity(0) == ()
    again = record.lease_batch((good,), 60.0)
    assert record.commit_update(again.batch_id, 1, 1, {}) == StoredResult.ACCEPTED


def test_a_trainer_that_lost_its_batch_can_refuse_nothing(record: Store) -> None:
    group_id = finished_group(record)
    batch = record.lease_batch((group_id,), 60.0)
    record.reassign_batch(batch.batch_id, 90.0)
    assert record.refuse_batch(batch.batch_id, 1, (group_id,), (), "not_finite", "") == StoredResult.FENCED
    with pytest.raises(StoreConflict, match="got \\[99\\]"):
        record.refuse_batch(batch.batch_id, 2, (99,), (), "not_finite", "")
    assert record.open_batch() is not None


@pytest.mark.parametrize(
    ("recorded", "bound", "is_late"),
    [
        ({}, 0, True),
        ({}, 1, False),
        ({"staleness_bound": 1.0}, 0, False),
        ({"staleness_bound": 0.0}, 1, True),
    ],
)
def test_whether_a_step_was_fresh_follows_from_the_bound_with_which_it_was_trained(
    record: Store, recorded: dict[str, float], bound: int, is_late: bool
) -> None:
    for version, metrics in ((1, {}), (2, recorded)):
        batch = record.lease_batch((finished_group(record),), 60.0)
        record.commit_update(batch.batch_id, 1, version, metrics)
    assert bool(record.integrity(bound)) is is_late


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_update_with_a_metric_that_is_not_finite_is_refused_and_nothing_is_changed(
    record: Store, batch: Batch, value: float
) -> None:
    with pytest.raises(StoreConflict, match=r"version 1: expected finite .* got \{'entropy': (nan|inf)\}"):
        record.commit_update(batch.batch_id, 1, 1, {"loss": 0.1, "entropy": value})
    assert record.open_batch() == batch
    assert record.integrity(0) == ()


def finished_group(record: Store) -> int:
    group_id = record.open_group("click-test", 7, 1, 10, 0)
    lease = record.lease_rollout(group_id, "env-000", 60.0)
    record.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease))
    return group_id
