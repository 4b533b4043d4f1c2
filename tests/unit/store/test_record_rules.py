"""The rules of the record find what the store itself never writes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dart.core.records import Conservation, DecisionKind, TaskDecision
from dart.store.record_rules import is_well_formed
from dart.store.store import Store
from dart.testing.trajectories import demonstration_of, step_at, trajectory_for
from tests.record_places import RecordPlaces


def sound_record(store: Store) -> None:
    """A record with one trained group of two rollouts (1, 2), one leased rollout (3) and all the rest."""
    store.add_version()
    group_id = store.open_group("click-test", 7, 2, 10, 0)
    for reward in (0.0, 1.0):
        lease = store.lease_rollout(group_id, "env-000", 60.0)
        store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, reward))
    store.commit_update(store.lease_batch([group_id], 60.0).batch_id, 1, 1, {})
    store.lease_rollout(store.open_group("click-test", 8, 2, 10, 1), "env-000", 60.0)
    record_all_the_rest(store)


def record_all_the_rest(store: Store) -> None:
    """A parked rollout (4), a failed group with a demonstration (3), a decision."""
    parked = store.lease_rollout(2, "env-001", 60.0)
    store.park_rollout(parked.rollout_id, 1, (step_at(1),), "the run is stopped", 8)
    steps = (replace(step_at(0), logprobs=(), entropies=()),)
    store.add_demonstrations([demonstration_of("login-user", 7, steps)])
    failed = store.open_group("login-user", 9, 2, 10, 1)
    for _ in range(2):
        lease = store.lease_rollout(failed, "env-000", 60.0)
        store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, 0.0, [1]))
    store.use_demonstration(failed, 1)
    decision = TaskDecision(
        task_id="click-test",
        kind=DecisionKind.ROLLOUTS,
        before="8",
        after="4",
        reason="success 0.80 over the last 8",
        policy_version=1,
        unix_s=1.0,
    )
    store.record_decisions((decision,))


@pytest.fixture
def store(places: RecordPlaces) -> Iterator[Store]:
    with Store(places.copy_of(sound_record), steps=places.steps) as opened:
        yield opened


def test_a_sound_record_has_no_violations(store: Store) -> None:
    assert store.integrity(0) == ()
    assert store.conservation() == Conservation(issued=6, trained=2, dropped=0, stored=2, leased=2)


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE counters SET value = 7 WHERE name = 'issued'", "conservation is broken"),
        ("UPDATE rollouts SET batch_id = NULL WHERE rollout_id = 1", "rollout 1: it has batch None"),
        ("UPDATE rollouts SET batch_id = 1 WHERE rollout_id = 3", "rollout 3: it has batch 1"),
        ("UPDATE batches SET state = 'leased'", "rollout 1: it has batch 1 (leased)"),
        (
            "UPDATE trajectories SET steps_sha256 = '' WHERE rollout_id = 2",
            "rollout 2: its steps are named '', which is no sha256",
        ),
        ("UPDATE rollouts SET state = 'stored' WHERE rollout_id = 3", "rollout 3: it is stored"),
        ("UPDATE versions SET version = 2 WHERE version = 1", "version 2: it follows 0"),
        ("UPDATE batches SET version = NULL", "version 1: it was made by no consumed batch"),
        ("UPDATE rollouts SET group_id = 77 WHERE rollout_id = 3", "it refers to a missing row of groups"),
        (
            "UPDATE trajectories SET oldest_version = -1 WHERE rollout_id = 1",
            "rollout 1: its oldest step is of version -1",
        ),
    ],
)
def test_the_audit_names_each_contradiction(
    places: RecordPlaces, store: Store, statement: str, finding: str
) -> None:
    places.run(store.address, statement)
    assert any(finding in str(violation) for violation in store.integrity(0)), store.integrity(0)


@pytest.mark.parametrize(("trained", "holds"), [(2, True), (1, False), (3, False)])
def test_conservation_holds_only_when_the_books_meet(trained: int, holds: bool) -> None:
    assert Conservation(issued=5, trained=trained, dropped=1, stored=1, leased=1).holds is holds


def test_freshness_counts_from_a_version_on(places: RecordPlaces, store: Store) -> None:
    places.run(store.address, "UPDATE trajectories SET oldest_version = -1 WHERE rollout_id = 1")
    assert len(store.integrity(0)) == 1
    assert store.integrity(1) == ()
    assert store.integrity(0, since_version=1) == ()


@pytest.mark.parametrize(
    ("kind", "after", "is_good"),
    [
        ("rollouts", "2", True),
        ("rollouts", "0", False),
        ("step_cap", "-3", False),
        ("quarantine", "", True),
        ("quarantine", "1700000000.5", True),
        ("quarantine", "nan", False),
        ("quarantine", "soon", False),
        ("mood", "2", False),
    ],
)
def test_a_decision_can_be_read_back(kind: str, after: str, is_good: bool) -> None:
    assert is_well_formed(kind, after, "because") is is_good
