"""A record whose steps are in its rows: opening it moves them into blobs and loses nothing."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from dart.core.record_address import RecordAddress
from dart.core.types import Step
from dart.store import migrations
from dart.store.blobs import BlobStore, FolderBlobs
from dart.store.database import database_at
from dart.store.errors import StoreUnavailable
from dart.store.migrations.versions.v0010_steps_as_blobs import MOVED
from dart.store.reader import StoreReader
from dart.store.run_blobs import local_blobs
from dart.store.serialization import checksum, pack_steps
from dart.store.store import Store
from dart.testing.trajectories import step_at
from tests.record_places import RecordPlaces

PLAYED: dict[int, tuple[Step, ...]] = {1: (step_at(0, 1), step_at(0, 2)), 2: (step_at(0, 3),)}
PARKED = (step_at(0, 4), step_at(0, 5), step_at(0, 6))
SHOWN = (step_at(0, 7),)

TRAJECTORY = {
    "group_id": 1,
    "task_id": "click-test",
    "seed": 7,
    "environment": "env-000",
    "fence": 1,
    "instruction": "Click.",
    "outcome": "finished",
    "reward": 1.0,
    "oldest_version": 0,
    "started_unix_s": 1.5,
    "duration_s": 2.5,
    "stored_unix_s": 4.5,
}
DEMONSTRATION = {
    "task_id": "click-test",
    "seed": 7,
    "origin": "oracle",
    "instruction": "Click.",
    "reward": 1.0,
    "num_steps": 1,
    "content_sha256": "c",
    "uses": 0,
    "dropped": False,
    "added_unix_s": 5.0,
}


@pytest.fixture
def address(places: RecordPlaces) -> RecordAddress:
    """A record at 0009 with two trajectories, a parked episode, a demonstration and a version."""
    address = places.empty()
    engine = database_at(address).open_engine()
    with engine.connect() as connection, connection.begin():
        migrations.upgrade(connection, to="0009")
        insert(connection, "versions", version=0, checkpoint="base", metrics="{}", created_unix_s=1.0)
        group = {"task_id": "click-test", "seed": 7, "rollouts_wanted": 3, "step_cap": 9}
        insert(connection, "groups", **group, policy_version=0, state="open", opened_unix_s=1.0)
        for state in ("stored", "stored", "leased"):
            rollout = {"group_id": 1, "state": state, "attempt": 1, "fence": 1}
            insert(connection, "rollouts", **rollout, deadline_unix_s=60.0, resumes=int(state == "leased"))
        for rollout_id, steps in PLAYED.items():
            row = {**TRAJECTORY, "rollout_id": rollout_id, "num_steps": len(steps)}
            insert(connection, "trajectories", **row, checksum=old_checksum("trajectories", row, steps))
            insert(connection, "steps", rollout_id=rollout_id, steps=pack_steps(steps))
        insert(connection, "pool", **DEMONSTRATION, checksum=old_checksum("pool", DEMONSTRATION, SHOWN))
        insert(connection, "pool_steps", pool_id=1, steps=pack_steps(SHOWN))
        row = {"rollout_id": 3, "fence": 1, "num_steps": 3, "oldest_version": 0, "reason": "it stops"}
        row |= {"parked_unix_s": 6.0, "steps": pack_steps(PARKED)}
        insert(connection, "parked", **row, checksum=old_checksum("parked", row, PARKED))
        connection.exec_driver_sql("UPDATE counters SET value = 3 WHERE name = 'issued'")
        connection.exec_driver_sql("INSERT INTO task_statistics VALUES ('click-test', 1, 2, 3, 2)")
    return address


@pytest.fixture
def steps(tmp_path: Path) -> BlobStore:
    """Where the steps are moved."""
    return local_blobs(tmp_path).steps


def insert(connection: sqlalchemy.Connection, table: str, **values: Any) -> None:
    columns, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
    connection.execute(sqlalchemy.text(f"INSERT INTO {table} ({columns}) VALUES ({marks})"), values)


def old_checksum(table: str, row: dict[str, Any], steps: Sequence[Step]) -> bytes:
    (columns,) = [moved.columns for moved in MOVED if moved.table == table]
    return checksum({**row, "steps": pack_steps(steps)}, columns)


def kept(store: StoreReader) -> Iterator[tuple[Step, ...]]:
    """Every steps of the record."""
    (group,) = store.groups_to_trajectories([1])
    yield from (trajectory.steps for trajectory in group.trajectories)
    yield store.parked_steps(3)
    yield store.demonstration(1).steps


def test_no_step_is_lost_and_the_record_is_sound(address: RecordAddress, steps: BlobStore) -> None:
    with Store(address, steps=steps) as store:
        assert list(kept(store)) == [*PLAYED.values(), PARKED, SHOWN]
        assert store.integrity(0) == ()
        assert store.damaged_rows(full=True) == []
        assert [version.version for version in store.versions()] == [0]


def test_a_row_that_was_damaged_before_stays_visible(
    places: RecordPlaces, address: RecordAddress, steps: BlobStore
) -> None:
    places.run(address, "UPDATE trajectories SET reward = 0.5 WHERE rollout_id = 1")
    places.run(address, "DELETE FROM steps WHERE rollout_id = 2")
    with Store(address, steps=steps) as store:
        damaged = [str(finding) for finding in store.damaged_rows(full=True)]
        assert [line.partition(":")[0] for line in damaged] == [
            "trajectory of rollout 1",
            "trajectory of rollout 2",
        ]
        assert any("its steps are named ''" in str(finding) for finding in store.integrity(0))


def test_a_migration_that_was_interrupted_is_repeated(
    places: RecordPlaces, address: RecordAddress, steps: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts = []
    put = FolderBlobs.put

    def put_some(blobs: FolderBlobs, content: bytes) -> str:
        puts.append(content)
        if len(puts) == 3:
            raise StoreUnavailable("the disk is full")
        return put(blobs, content)

    monkeypatch.setattr(FolderBlobs, "put", put_some)
    before = dump(places, address)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        Store(address, steps=steps)
    assert dump(places, address) == before
    with Store(address, steps=steps) as store:
        assert list(kept(store)) == [*PLAYED.values(), PARKED, SHOWN]
        assert store.damaged_rows(full=True) == []


def dump(places: RecordPlaces, address: RecordAddress) -> dict[str, object]:
    """Every row that has or names steps, and the migration."""
    tables = ("trajectories", "steps", "pool", "pool_steps", "parked", "versions", "alembic_version")
    return {table: places.run(address, f"SELECT * FROM {table}") for table in tables}


@pytest.mark.only_sqlite
def test_the_steps_of_a_copied_run_move_into_its_own_folder(address: RecordAddress, tmp_path: Path) -> None:
    """A record in a file has its steps beside it."""
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(str(address), copy / "store.db")
    with Store(copy / "store.db") as store:
        assert len(list(kept(store))) == 4
    assert not (tmp_path / "blobs").exists()
    assert len(list((copy / "blobs" / "steps").glob("*/*.steps"))) == 4
