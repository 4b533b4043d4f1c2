"""The rules of the record find what the store itself never writes."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dart.core.records import Conservation, DecisionKind, TaskDecision
from dart.core.types import FaultKind
from dart.store.errors import BlobsBusy, StoreBusy, StoreUnavailable
from dart.store.record_rules import SHOWN_CHARACTERS, Finding, figures_of, findings_of, is_well_formed
from dart.store.store import Store
from dart.testing.trajectories import (
    EVALUATION,
    demonstration_of,
    evaluation_play,
    step_at,
    trajectory_for,
)
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
    """A parked rollout (4), a failed group with a demonstration (3), a dropped one (4), a decision, an
    evaluation."""
    parked = store.lease_rollout(2, "env-001", 60.0)
    store.park_rollout(parked.rollout_id, 1, (step_at(1),), "the run is stopped", 8)
    steps = (replace(step_at(0), logprobs=(), entropies=()),)
    store.add_demonstrations([demonstration_of("login-user", 7, steps)])
    failed = store.open_group("login-user", 9, 2, 10, 1)
    for _ in range(2):
        lease = store.lease_rollout(failed, "env-000", 60.0)
        store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, 0.0, [1]))
    store.use_demonstration(failed, 1)
    dropped = store.open_group("login-user", 10, 2, 10, 1)
    lease = store.lease_rollout(dropped, "env-002", 60.0)
    store.release_rollout(lease.rollout_id, 1, FaultKind.INFRASTRUCTURE, "the browser died", 1)
    store.drop_group(dropped, "stale")
    store.record_evaluation(EVALUATION, evaluation_play())
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
    assert store.conservation() == Conservation(issued=7, trained=2, dropped=1, stored=2, leased=2)


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE counters SET value = 9 WHERE name = 'issued'", "conservation is broken"),
        ("UPDATE rollouts SET batch_id = NULL WHERE rollout_id = 1", "rollout 1: it has batch None"),
        ("UPDATE rollouts SET batch_id = 1 WHERE rollout_id = 3", "rollout 3: it has batch 1"),
        ("UPDATE batches SET state = 'leased'", "rollout 1: it has batch 1 (leased)"),
        (
            "UPDATE groups SET batch_id = NULL WHERE group_id = 1",
            "rollout 1: it has batch 1 (consumed), its group has batch None",
        ),
        ("UPDATE groups SET state = 'open' WHERE group_id = 1", "rollout 1: it has batch 1 (consumed)"),
        ("UPDATE batches SET state = 'released'", "batch 1: it is released and made version 1"),
        ("UPDATE batches SET version = NULL", "batch 1: it is consumed and made version None"),
        (
            "UPDATE groups SET state = 'batched' WHERE group_id = 2",
            "group 2: it is batched, its batch is None",
        ),
        ("UPDATE batches SET state = 'leased'", "group 1: it is consumed, its batch is leased"),
        ("DELETE FROM trajectories WHERE rollout_id = 1", "rollout 1: it is trained; stored and trained"),
        ("UPDATE rollouts SET state = 'leased' WHERE rollout_id = 5", "rollout 5: it is leased; stored and"),
        (
            "UPDATE trajectories SET steps_sha256 = '' WHERE rollout_id = 2",
            "rollout 2: its steps are named '', which is no sha256",
        ),
        ("UPDATE parked SET steps_sha256 = 'x'", "rollout 4: its steps are named 'x'"),
        ("UPDATE pool SET steps_sha256 = 'x'", "demonstration 1: its steps are named 'x'"),
        ("UPDATE evaluation_episodes SET steps_sha256 = ''", "evaluation episode 1: its steps are named ''"),
        ("UPDATE rollouts SET state = 'stored' WHERE rollout_id = 3", "rollout 3: it is stored"),
        ("UPDATE rollouts SET state = 'dropped' WHERE rollout_id = 4", "rollout 4: it has parked steps"),
        ("UPDATE rollouts SET resumes = 0 WHERE rollout_id = 4", "rollout 4: it has parked steps"),
        ("UPDATE pool SET uses = 2", "demonstration 1: it counts 2 uses, but 1 groups have it"),
        ("UPDATE pool SET uses = 0", "demonstration 1: it counts 0 uses, but 1 groups have it"),
        (
            "UPDATE pool SET task_id = 'click-test'",
            "demonstration 1: it is of task click-test but was added to group 3 of task login-user",
        ),
        ("UPDATE task_statistics SET groups_opened = 9", "task login-user: its statistics have 9 groups"),
        (
            "UPDATE task_statistics SET finished = 9",
            "task click-test: its statistics have 2 groups, 9 episodes",
        ),
        ("UPDATE task_statistics SET steps_played = 9", "2 episodes and 9 steps, but the other tables have"),
        (
            "UPDATE tallies SET value = 0 WHERE what = 'outcome'",
            "tally outcome of 'finished': its value is 0",
        ),
        ("UPDATE tallies SET value = 9 WHERE what = 'state'", "tally state of 'stored': its value is 9"),
        ("UPDATE tallies SET value = 9 WHERE what = 'drop'", "tally drop of 'attempts_spent:infrastructure'"),
        ("UPDATE tallies SET value = 0 WHERE what = 'fault'", "tally fault of 'infrastructure'"),
        ("UPDATE tallies SET value = 0 WHERE what = 'group_drop'", "tally group_drop of 'stale'"),
        ("DELETE FROM versions WHERE version = 0", "version 1: it follows -1"),
        (
            "UPDATE task_statistics SET longest_success_steps = NULL WHERE task_id = 'click-test'",
            "task click-test: its longest success is recorded as None steps",
        ),
        (
            "UPDATE task_statistics SET longest_success_steps = 1 WHERE task_id = 'login-user'",
            "task login-user: its longest success is recorded as 1 steps",
        ),
        ("UPDATE decisions SET reason = ''", "decision 1: rollouts of click-test from '8' to '4' because ''"),
        (f"UPDATE versions SET metrics = '{'x' * 99}'", f"no JSON object: '{'x' * SHOWN_CHARACTERS}'"),
        ("UPDATE versions SET metrics = '[1]'", "version 1: its metrics are no JSON object: '[1]'"),
        ("UPDATE versions SET metrics = '{\"loss\": NaN}'", "version 1: its metrics are no JSON object"),
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


@pytest.mark.parametrize(
    ("episodes", "fitting"),
    [
        ([(1.0, 3)], {3}),
        ([(0.9, 3)], {3, None}),  # the threshold may be 0.9 or above
        ([(1.0, 2), (0.4, 5)], {2, 5}),
        ([(1.0, 5), (0.4, 2)], {5}),  # below 0.4 both count
        ([(0.0, 3)], {None}),
    ],
)
def test_a_longest_success_fits_if_some_threshold_gives_it(
    places: RecordPlaces, store: Store, episodes: list[tuple[float, int]], fitting: set[int | None]
) -> None:
    group_id = store.open_group("use-spinner", 1, len(episodes), 10, 1)
    for reward, steps in episodes:
        lease = store.lease_rollout(group_id, "env-000", 60.0)
        store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, reward, [1] * steps))
    for kept in (None, 1, 2, 3, 5, 8):
        value = "NULL" if kept is None else kept
        places.run(
            store.address,
            f"UPDATE task_statistics SET longest_success_steps = {value} WHERE task_id = 'use-spinner'",
        )
        assert (store.integrity(0) == ()) is (kept in fitting), kept


@pytest.mark.parametrize("metrics", [None, 7, b"\xff", "", "7", "[1]"])
def test_a_damaged_row_without_a_json_object_has_no_figures(metrics: Any) -> None:
    assert figures_of(metrics) is None


ONE = Finding("it is odd", "row 1")


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.DatabaseError("malformed"),
        StoreUnavailable("damaged"),
        *(
            kind("of a damaged row")
            for kind in (OverflowError, AttributeError, KeyError, TypeError, ValueError)
        ),
    ],
    ids=repr,
)
def test_a_check_that_cannot_read_its_data_is_a_finding_after_those_that_it_made(error: Exception) -> None:
    def check() -> Iterator[Finding]:
        yield ONE
        raise error

    assert list(findings_of("the rows", check)) == [ONE, Finding(f"it cannot be read: {error}", "the rows")]


@pytest.mark.parametrize(
    "error", [StoreBusy("locked"), BlobsBusy("away"), RuntimeError("a defect")], ids=repr
)
def test_a_busy_database_and_a_defect_are_no_findings(error: Exception) -> None:
    def check() -> Iterator[Finding]:
        raise error
        yield ONE

    with pytest.raises(type(error), match=str(error)):
        list(findings_of("the rows", check))


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
        ("rollouts", "many", False),
        ("step_cap", "-3", False),
        ("quarantine", "", True),
        ("quarantine", "1700000000.5", True),
        ("quarantine", "nan", False),
        ("quarantine", "inf", False),
        ("quarantine", "soon", False),
        ("mood", "2", False),
    ],
)
def test_a_decision_can_be_read_back(kind: str, after: str, is_good: bool) -> None:
    assert is_well_formed(kind, after, "because") is is_good
