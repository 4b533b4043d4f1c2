"""Opening a record: new, old, newer, none, and not a database.

Only SQLite's are: the hash of its first record, the characters of a path, a file that is missing or
is no database, and a missing folder. A database that is missing, refused or empty is in
tests/cluster/test_record_on_postgresql.py.
"""

import hashlib
import shutil
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from dart.core.errors import DiskError, RunDirectoryError
from dart.core.record_address import RecordAddress
from dart.store import migrations
from dart.store.database import database_at
from dart.store.errors import StoreTooNew, StoreTooOld, StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.schema import metadata
from dart.store.sqlite import SqliteDatabase
from dart.store.store import Store
from tests.record_places import RecordPlaces

FIRST_RECORD = "102f146233eec665eec390efd2c71377c1ae8c64cdf0331cf3e69909b37264c9"
"""The sha256 of the schema that the first migration makes, frozen: records have it."""

NEXT_MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("versions", sa.Column("note", sa.String))
"""


def test_the_migrations_build_exactly_the_tables_of_the_schema(places: RecordPlaces) -> None:
    address = places.empty()
    Store(address, steps=places.steps).close()
    with database_at(address).open_engine().connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": partial(has, connection)})
        assert list(changes(compare_metadata(context, metadata))) == []


def has(connection: Connection, _: object, name: str | None, *__: object) -> bool:
    """Whether a database has such a part: PostgreSQL has no second copies of tables."""
    return connection.dialect.name == "sqlite" or not str(name).startswith("copy_of_")


def changes(found: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Differences of tables and columns; their comments are for readers of the schema, and in no database."""
    for one in found:
        yield from (
            change for change in (one if isinstance(one, list) else [one]) if "comment" not in change[0]
        )


def test_the_first_migration_makes_what_it_always_made(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with SqliteDatabase(path).open_engine().connect() as connection, connection.begin():
        migrations.upgrade(connection, to=migrations.FIRST_VERSION)
    with closing(sqlite3.connect(path)) as made:
        found = SqliteDatabase.schema_of(made)
    kept = sorted((name, found[name]) for name in found if "alembic" not in name)
    is_as_frozen = hashlib.sha256(repr(kept).encode()).hexdigest() == FIRST_RECORD
    assert is_as_frozen, "dart/store/migrations/first_tables.py is frozen: put back what changed there"


def test_the_first_and_the_newest_migration_have_the_versions_that_are_compared() -> None:
    scripts = ScriptDirectory(str(migrations.HERE))
    assert scripts.get_base() == migrations.FIRST_VERSION
    assert scripts.get_current_head() == migrations.SCHEMA_VERSION


def test_a_path_with_characters_of_an_address_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1?mode=ro" / "store.db"
    path.parent.mkdir()
    with Store(path) as store:
        store.add_version()
    assert path.is_file()


def test_what_was_committed_is_there_after_opening_again(places: RecordPlaces) -> None:
    address = places.empty()
    with Store(address) as store:
        store.add_version()
    with Store(address) as store:
        newest = store.latest_version()
    assert newest is not None
    assert newest.version == 0


def test_opening_a_current_record_does_not_load_alembic(
    new_record: RecordAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "alembic.command", None)
    monkeypatch.setitem(sys.modules, "alembic", None)
    Store(new_record).close()


@pytest.mark.parametrize("open_record", [Store, StoreReader])
def test_a_record_of_newer_code_is_refused_with_the_remedy(
    places: RecordPlaces, new_record: RecordAddress, open_record: type[StoreReader]
) -> None:
    places.run(new_record, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreTooNew, match=r"is at schema '9999'.*upgrade dartrl") as refused:
        open_record(new_record)
    assert str(new_record) in str(refused.value)
    assert isinstance(refused.value, RunDirectoryError)


def test_a_reader_of_no_record_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"store\.db does not exist"):
        StoreReader(tmp_path / "store.db")
    assert not (tmp_path / "store.db").exists()


@pytest.fixture
def with_a_next_migration(new_record: RecordAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This version of dartrl as if it had one migration more, once `new_record` was made without it."""
    scripts = tmp_path / "migrations"
    shutil.copytree(migrations.HERE, scripts)
    (scripts / "versions" / "v0014_next.py").write_text(NEXT_MIGRATION)
    monkeypatch.setattr(migrations, "HERE", scripts)
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", "0014")


@pytest.mark.parametrize("version", ["0001", "0007"])
def test_a_record_from_before_the_first_migration_is_refused_and_not_changed(
    places: RecordPlaces, new_record: RecordAddress, version: str
) -> None:
    places.run(new_record, f"UPDATE alembic_version SET version_num = '{version}'")
    before = content_of(places, new_record)
    for open_record in (StoreReader, Store, lambda address: Store(address, create=False)):
        with pytest.raises(StoreTooOld, match=rf"is at schema '{version}'.*'0009' and later") as refused:
            open_record(new_record)
        assert isinstance(refused.value, RunDirectoryError)
        assert str(new_record) in str(refused.value)
        assert "continue the run with the version of dartrl that began it" in str(refused.value)
    assert content_of(places, new_record) == before


def content_of(places: RecordPlaces, address: RecordAddress) -> object:
    """Every byte of a file, or every row of a database."""
    if isinstance(address, Path):
        return address.read_bytes()
    tables = [*metadata.tables, "alembic_version"]
    return {table: places.run(address, f"SELECT * FROM {table}") for table in tables}


@pytest.mark.usefixtures("with_a_next_migration")
def test_a_record_of_the_first_migration_gets_the_next_ones(
    places: RecordPlaces, new_record: RecordAddress
) -> None:
    with Store(new_record) as store:
        assert [version.version for version in store.versions()] == [0]
    assert places.run(new_record, "SELECT version, note FROM versions") == [(0, None)]
    assert places.run(new_record, "SELECT version_num FROM alembic_version") == [("0014",)]


@pytest.mark.usefixtures("with_a_next_migration")
def test_a_reader_does_not_migrate(new_record: RecordAddress) -> None:
    remedy = r"is at schema '0013'.*; end the run if it is running, and start or resume it once"
    with pytest.raises(StoreUnavailable, match=remedy):
        StoreReader(new_record)


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
    places: RecordPlaces, new_record: RecordAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places.lock_timeout, 0.05)
    with Store(new_record) as store:
        lock = places.lock(new_record)
        with pytest.raises(StoreUnavailable, match=r"stop the other writer|end it, or wait"):
            store.record_event("restart", "env-000")
        lock.release()
        store.record_event("restart", "env-000")
        assert len(store.find_events()) == 1
