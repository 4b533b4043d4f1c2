"""Opening a record: new, old, newer, none, and not a database."""

import sqlite3
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from dart.core.errors import DiskError, RunDirectoryError
from dart.core.records import Park, StoredResult
from dart.store import migrations
from dart.store.errors import StoreTooNew, StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.schema import metadata
from dart.store.sqlite import open_engine
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for


def test_the_migrations_build_exactly_the_tables_of_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store(path).close()
    with open_engine(path).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_the_schema_version_is_the_newest_migration() -> None:
    assert ScriptDirectory(str(migrations.HERE)).get_current_head() == migrations.SCHEMA_VERSION


def test_a_path_with_characters_of_an_address_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1?mode=ro" / "store.db"
    path.parent.mkdir()
    with Store(path) as store:
        store.add_version("checkpoints/0")
    assert path.is_file()


def test_what_was_committed_is_there_after_opening_again(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        store.add_version("checkpoints/0")
    with Store(tmp_path / "store.db") as store:
        newest = store.latest_version()
    assert newest is not None
    assert newest.checkpoint == "checkpoints/0"


def test_opening_a_current_record_does_not_load_alembic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path / "store.db").close()
    monkeypatch.setitem(sys.modules, "alembic.command", None)
    monkeypatch.setitem(sys.modules, "alembic", None)
    Store(tmp_path / "store.db").close()


@pytest.mark.parametrize("open_record", [Store, StoreReader])
def test_a_record_of_newer_code_is_refused_with_the_remedy(
    tmp_path: Path, open_record: type[StoreReader]
) -> None:
    path = tmp_path / "store.db"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(StoreTooNew, match=r"store\.db is at schema '9999'.*upgrade dartrl") as refused:
        open_record(path)
    assert isinstance(refused.value, RunDirectoryError)


def test_a_reader_of_no_record_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"store\.db does not exist"):
        StoreReader(tmp_path / "store.db")
    assert not (tmp_path / "store.db").exists()


def test_a_reader_does_not_migrate(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_engine(path).connect() as connection, connection.begin():
        migrations.upgrade(connection, to="0001")
    with pytest.raises(StoreUnavailable, match=r"is at schema '0001'.*start or resume the run once"):
        StoreReader(path)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"these are not the pages you are looking for" * 100)
    with pytest.raises(StoreUnavailable, match=r"store\.db: it is no SQLite database") as refused:
        Store(path)
    assert isinstance(refused.value, DiskError)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check that the folder exists"):
        Store(tmp_path / "nowhere" / "store.db")


def test_a_locked_record_is_an_error_that_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.sqlite.BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "store.db"
    with Store(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="stop the other writer"):
            store.record_event("restart", "env-000")
        other.execute("ROLLBACK")
        other.close()
        assert store.record_event("restart", "env-000") == 1


@pytest.fixture
def record_of_0001(tmp_path: Path) -> Path:
    """What the first version of the record left: a trained group, a leased batch, a rollout being played."""
    path = tmp_path / "store.db"
    with open_engine(path).connect() as connection, connection.begin():
        migrations.upgrade(connection, to="0001")
    other = sqlite3.connect(path)
    other.executescript(
        """
        UPDATE counters SET value = 3 WHERE name = 'issued';
        INSERT INTO versions VALUES (0, 'checkpoints/0', '{}', 1.0), (1, 'checkpoints/1', '{}', 9.0);
        INSERT INTO batches VALUES (1, 'consumed', 5.0, 1);
        INSERT INTO evaluations VALUES (1, 'before', 0, 'click-test', 1000000, 1.0, 2.0);
        INSERT INTO groups VALUES (1, 'click-test', 7, 2, 10, 0, 'consumed', NULL, 1, 1.0),
                                  (2, 'click-test', 8, 2, 10, 1, 'open', NULL, NULL, 9.0);
        INSERT INTO rollouts VALUES (1, 1, 'trained', NULL, 1, 1, 60.0, NULL, 1),
                                    (2, 1, 'trained', NULL, 1, 1, 60.0, NULL, 1),
                                    (3, 2, 'leased', 'env-000', 1, 1, 60.0, NULL, NULL);
        INSERT INTO trajectories VALUES
            (1, 1, 'click-test', 7, 'env-000', 'click', 'finished', 0.0, 1, 0, 1.0, 1.0, 1, 2.0),
            (2, 1, 'click-test', 7, 'env-000', 'click', 'finished', 1.0, 1, 0, 1.0, 1.0, 1, 3.0);
        INSERT INTO steps VALUES (1, 0, 'ab', x'9101', x'9107', x'9100', x'9100', 'wait', 0, 1.0, 1.0, 1.0),
                                 (2, 0, 'ab', x'9101', x'9107', x'9100', x'9100', 'wait', 0, 1.0, 1.0, 1.0);
        """
    )
    other.close()
    return path


def test_a_record_of_the_first_version_goes_on(record_of_0001: Path) -> None:
    with Store(record_of_0001) as store:
        assert store.integrity(0) == ()
        (statistics,) = store.task_statistics()
        (measured,) = store.evaluations()
        assert (measured.seed, measured.reward, measured.is_greedy) == (1_000_000, 1.0, False)
        assert (statistics.groups_opened, statistics.longest_success_steps) == (2, 1)
        assert statistics.recent_rewards == (0.0, 1.0)
        playing = store.rollout(3)
        assert (playing.environment, playing.resumes, playing.parked_steps) == ("env-000", 0, 0)
        assert store.park_rollout(3, 1, (), "the run is stopped", 8) == Park.PARKED
        assert store.group(2).probes_length is False
        second = store.lease_rollout(2, "env-001", 60.0)
        assert store.finish_rollout(second.rollout_id, 1, trajectory_for(second)) == StoredResult.ACCEPTED
        assert store.integrity(0) == ()
