"""The audit finds what the store itself never writes."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.store.records import Conservation
from dart.store.store import Store
from dart.store.testing import trajectory_for


@pytest.fixture(scope="module")
def sound_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record with one trained group of two rollouts (1, 2) and one leased rollout (3)."""
    path = tmp_path_factory.mktemp("sound") / "store.db"
    with Store(path) as store:
        store.add_version("checkpoints/0")
        group_id = store.open_group("click-test", 7, 2, 10, 0)
        for reward in (0.0, 1.0):
            lease = store.lease_rollout(group_id, "env-000", 60.0)
            store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, reward))
        store.commit_update(store.lease_batch([group_id], 60.0).batch_id, 1, 1, "checkpoints/1", {})
        store.lease_rollout(store.open_group("click-test", 8, 2, 10, 1), "env-000", 60.0)
    return path


@pytest.fixture
def path(tmp_path: Path, sound_record: Path) -> Path:
    return shutil.copy(sound_record, tmp_path / "store.db")


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened


def damage(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


def test_a_sound_record_has_no_violations(store: Store) -> None:
    assert store.integrity(0) == ()
    assert store.conservation() == Conservation(issued=3, trained=2, dropped=0, stored=0, leased=1)


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE counters SET value = 4 WHERE name = 'issued'", "conservation is broken"),
        ("UPDATE rollouts SET batch_id = NULL WHERE rollout_id = 1", "rollout 1: it has batch None"),
        ("UPDATE rollouts SET batch_id = 1 WHERE rollout_id = 3", "rollout 3: it has batch 1"),
        ("UPDATE batches SET state = 'leased'", "rollout 1: it has batch 1 (leased)"),
        ("DELETE FROM steps WHERE rollout_id = 2 AND step = 1", "rollout 2: its trajectory has 1 of 2 steps"),
        ("UPDATE rollouts SET state = 'stored' WHERE rollout_id = 3", "rollout 3: it is stored"),
        ("UPDATE versions SET version = 2 WHERE version = 1", "version 2: it follows 0"),
        ("UPDATE batches SET version = NULL", "version 1: it was made by no consumed batch"),
        ("UPDATE rollouts SET group_id = 77 WHERE rollout_id = 3", "it refers to a missing row of groups"),
        (
            "UPDATE trajectories SET oldest_version = -1 WHERE rollout_id = 1",
            "rollout 1: played at version -1",
        ),
    ],
)
def test_the_audit_names_each_contradiction(path: Path, store: Store, statement: str, finding: str) -> None:
    damage(path, statement)
    assert any(finding in str(violation) for violation in store.integrity(0)), store.integrity(0)


@pytest.mark.parametrize(("trained", "holds"), [(2, True), (1, False), (3, False)])
def test_conservation_holds_only_when_the_books_meet(trained: int, holds: bool) -> None:
    assert Conservation(issued=5, trained=trained, dropped=1, stored=1, leased=1).holds is holds
