"""What is counted as it happens, so that nobody who looks at a run scans it."""

from dart.core.records import Conservation
from dart.core.types import FaultKind, RolloutLease
from dart.store.store import Store
from dart.testing.trajectories import step_at, trajectory_for


def test_every_fate_fault_and_parking_is_counted_as_it_happens(record: Store) -> None:
    kept, dropped = (record.open_group("click-test", seed, 2, 10, 0) for seed in (1, 2))
    first, second = (record.lease_rollout(kept, "env-000", 60.0) for _ in range(2))
    record.finish_rollout(first.rollout_id, 1, trajectory_for(first))
    record.park_rollout(second.rollout_id, 1, (step_at(0),), "the run is stopped", 8)
    again = record.reassign_rollout(second.rollout_id, "env-001", 60.0)
    assert isinstance(again, RolloutLease)
    record.release_rollout(second.rollout_id, 2, FaultKind.INFRASTRUCTURE, "died", 5)
    record.lease_rollout(dropped, "env-002", 60.0)
    record.drop_group(dropped, "stale")

    totals = record.totals()
    assert record.conservation() == Conservation(issued=3, dropped=1, stored=1, leased=1)
    assert (totals.faults, totals.drops) == ({"infrastructure": 1}, {"stale": 1})
    assert totals.outcomes == {"finished": 1}
    assert record.drops_by_task() == {"click-test": {"stale": 1}}
    assert record.parkings() == (1, 0)
    assert record.integrity(0) == ()


def test_the_audit_counts_again_what_was_counted(record: Store) -> None:
    record.lease_rollout(record.open_group("click-test", 1, 2, 10, 0), "env-000", 60.0)
    with record._transaction():
        record._bare.execute("UPDATE tallies SET value = 7 WHERE what = 'state' AND name = 'leased'")
    assert [str(found) for found in record.integrity(0)] == [
        "tally state of 'leased': its value is 7, but there are 1 such rows"
    ]
