"""What `dartrl doctor --data --full` finds in a database that was damaged past the store."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dart.core.record_address import ServerAddress
from dart.store.blobs import BlobStore
from dart.store.reader import StoreReader
from dart.store.run_blobs import local_blobs
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for


@pytest.fixture
def steps(tmp_path: Path) -> BlobStore:
    return local_blobs(tmp_path).steps


@pytest.fixture
def address(database: str, steps: BlobStore) -> ServerAddress:
    """A sound record of two rollouts, one finished."""
    address = ServerAddress(database)
    with Store(address, steps=steps) as store:
        store.add_version()
        group_id = store.open_group("click-test", 7, 2, 10, 0)
        lease = store.lease_rollout(group_id, "env-000", 60.0)
        store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease))
        store.lease_rollout(group_id, "env-001", 60.0)
        store.record_event("restart", "env-000")
    return address


@pytest.fixture
def reader(address: ServerAddress, steps: BlobStore) -> Iterator[StoreReader]:
    with StoreReader(address, steps=steps) as opened:
        yield opened


def run(address: ServerAddress, *statements: str) -> None:
    with psycopg.connect(str(address), autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # no triggers, no references
        for statement in statements:
            connection.execute(statement)


def found_in(reader: StoreReader) -> list[str]:
    return [str(finding) for finding in (*reader.damaged_rows(full=True), *reader.integrity())]


def test_a_sound_record_has_no_findings_with_and_without_the_extension(
    address: ServerAddress, reader: StoreReader
) -> None:
    assert found_in(reader) == []
    run(address, "CREATE EXTENSION amcheck")
    assert found_in(reader) == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("ALTER TABLE groups DISABLE TRIGGER group_dropped", "trigger group_dropped: its definition is not"),
        ("DROP INDEX ix_groups_state", "index ix_groups_state: its definition is missing"),
        ("ALTER TABLE rollouts ALTER COLUMN fence TYPE INTEGER", "table rollouts: its definition is not"),
        ("CREATE TABLE sales (amount BIGINT)", "table sales: its definition is not"),
        (
            "ALTER TABLE groups DROP CONSTRAINT groups_batch_id_fkey",
            "groups.groups_batch_id_fkey: its definition",
        ),
        ("SELECT setval('groups_group_id_seq', 1, false)", "the last number of table groups: it is 0"),
        ("DELETE FROM groups", "a row of rollouts with group_id 1: it refers to a missing row of groups"),
        ("UPDATE trajectories SET reward = 0.5", "trajectory of rollout 1: it is not what was stored"),
        ("UPDATE events SET data = '{}' || ' '", "event 1: it is not what was stored"),
        ("DROP TABLE parked CASCADE", "table parked: its definition is missing"),
        ("UPDATE counters SET value = 7 WHERE name = 'issued'", "conservation is broken"),
    ],
)
def test_each_damage_is_named_and_keeps_no_other_check_from_running(
    address: ServerAddress, reader: StoreReader, statement: str, finding: str
) -> None:
    run(address, statement, "UPDATE counters SET value = value + 5 WHERE name = 'issued'")
    found = found_in(reader)
    assert any(finding in one for one in found), found
    assert any("conservation is broken" in one for one in found), "the last check did not run"


def test_looking_leaves_nothing_behind(address: ServerAddress, reader: StoreReader) -> None:
    reader.damaged_rows(full=True)
    with psycopg.connect(str(address)) as connection:
        schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'dartrl%'")
        assert schemas.fetchall() == []
