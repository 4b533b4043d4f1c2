"""Where tests keep their records: in files, or with DARTRL_TEST_RECORD=postgresql on a PostgreSQL server.

A test that takes the fixture `places` runs on both; `make test-cluster` runs them on PostgreSQL.
"""

import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from dart.config.config import load_config
from dart.core.record_address import RecordAddress, ServerAddress
from dart.core.run_directory import RunPaths
from dart.store import migrations
from dart.store.blobs import BlobStore
from dart.store.database import database_at
from dart.store.run_blobs import local_blobs
from dart.store.store import Store
from dart.testing.postgresql_server import PostgresqlServer

ON_POSTGRESQL = os.environ.get("DARTRL_TEST_RECORD") == "postgresql"

Fill = Callable[[Store], object]

_numbers = itertools.count(1)


def make_older_record(address: RecordAddress, migration: str = "0011") -> None:
    """Make a record with version 0, as an earlier version of dartrl left it."""
    with database_at(address).open_engine().connect() as connection, connection.begin():
        migrations.upgrade(connection, to=migration)
        connection.exec_driver_sql(
            "INSERT INTO versions (version, metrics, created_unix_s) VALUES (0, '{}', 1.0)"
        )


class Lock(Protocol):
    """Another process that holds the lock of writers."""

    def release(self) -> None: ...


class RecordPlaces(Protocol):
    """Makes places for records, and looks at records past the store."""

    steps: BlobStore
    """The steps of all these records."""

    lock_timeout: str
    """The name of the constant that says how many seconds a writer waits for a lock."""

    def empty(self) -> RecordAddress:
        """An address at which there is no record."""

    def copy_of(self, fill: Fill) -> RecordAddress:
        """The address of a new copy of the record that `fill` makes, which is made once per session."""

    def run(self, address: RecordAddress, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement past the store, which may break references; returns the rows it finds."""

    def lock(self, address: RecordAddress) -> Lock:
        """Lock a record against every writer; readers go on."""

    def run_in(self, folder: Path) -> RunPaths:
        """The paths of a run in a folder; its record is still to be made."""

    def drop(self) -> None:
        """Remove all records but the originals of copies."""


class Files:
    """Records in files; the originals of copies are in the folder `originals`."""

    lock_timeout = "dart.store.sqlite.BUSY_TIMEOUT_S"

    def __init__(self, folder: Path, originals: Path, made: dict[Fill, Path]) -> None:
        self._folder, self._originals, self._made = folder, originals, made
        self.steps = local_blobs(originals).steps

    def empty(self) -> Path:
        taken = {path.name for path in self._folder.glob("*.db")}
        names = itertools.chain(["store.db"], (f"store-{number}.db" for number in itertools.count(2)))
        return self._folder / next(name for name in names if name not in taken)

    def copy_of(self, fill: Fill) -> Path:
        if fill not in self._made:
            self._made[fill] = self._originals / f"{len(self._made)}.db"
            with Store(self._made[fill], steps=self.steps) as store:
                fill(store)
        return Path(shutil.copy(self._made[fill], self.empty()))

    def run(self, address: RecordAddress, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(str(address))) as connection, connection:
            return connection.execute(statement).fetchall()

    def lock(self, address: RecordAddress) -> "FileLock":
        return FileLock(address)

    def run_in(self, folder: Path) -> RunPaths:
        return RunPaths(folder)

    def drop(self) -> None:
        for path in self._folder.glob("store*.db*"):
            path.unlink()


class FileLock:
    """Another process that writes, as far as SQLite can tell."""

    def __init__(self, address: RecordAddress) -> None:
        self._connection = sqlite3.connect(str(address), isolation_level=None)
        self._connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


class Databases:
    """Records in databases of a server, which are dropped by `drop`."""

    lock_timeout = "dart.store.postgresql.LOCK_TIMEOUT_S"

    def __init__(self, server: PostgresqlServer, originals: Path, made: dict[Fill, str]) -> None:
        self._server, self._made = server, made
        self.steps = local_blobs(originals).steps
        self._names: list[str] = []

    def empty(self, template: str = "template0") -> ServerAddress:
        self._names.append(f"place_{next(_numbers)}")
        return ServerAddress(self._server.make_database(self._names[-1], template))

    def copy_of(self, fill: Fill) -> ServerAddress:
        if fill not in self._made:
            self._made[fill] = f"original_{len(self._made)}"
            address = ServerAddress(self._server.make_database(self._made[fill]))
            with Store(address, steps=self.steps) as store:
                fill(store)
        return self.empty(self._made[fill])

    def run(self, address: RecordAddress, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(str(address), autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")  # no triggers, no references
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    def lock(self, address: RecordAddress) -> "TableLock":
        return TableLock(address)

    def run_in(self, folder: Path) -> RunPaths:
        (folder / "config.toml").write_text(
            load_config(None, [f"run.record={str(self.empty())!r}"]).to_toml()
        )
        return RunPaths(folder)

    def drop(self) -> None:
        while self._names:
            self._server.drop_database(self._names.pop())


class TableLock:
    """Another session that keeps writers out of the table that each of their transactions begins with."""

    def __init__(self, address: RecordAddress) -> None:
        import psycopg

        self._connection = psycopg.connect(str(address))
        self._connection.execute("LOCK TABLE counters IN EXCLUSIVE MODE")

    def release(self) -> None:
        self._connection.close()
