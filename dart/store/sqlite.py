"""SQLite as the database of a record: connections, definitions of tables, and errors with remedies.

Statements elsewhere are in the SQL that SQLite and PostgreSQL share (docs/decisions/0019-one-sql-layer.md);
what only SQLite understands is here and in `dart.store.sqlite_checks`.

With synchronous=NORMAL in WAL mode a commit is a write into the page cache of the operating system. It
survives any death of the process without an fsync. Only a crash of the machine can lose the last commits.
Then the record stays consistent, and the lost episodes are played again. The commit of an update is synced
(`sync`), because its checkpoint is synced, too, and must not be newer than the record.
"""

import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dart.store.errors import StoreBusy, StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from dart.store.database import Checks

Connection = sqlite3.Connection

DatabaseError = sqlite3.DatabaseError

BUSY_TIMEOUT_S = 5.0
"""Seconds that a statement waits for the database's lock. Only a migration in another process, or a
checkpoint of the write-ahead log there, can hold the lock."""

LOG_BYTES = 64 << 20
"""Size to which SQLite cuts a write-ahead log that grew beyond it, because a transaction read for long."""

ROOM_BYTES = 64 << 10
"""Free space below this counts as a full disk: the index of the write-ahead log alone takes 32 KiB."""

REMEDIES = {
    "SQLITE_FULL": "the disk is full: free space there, then continue (nothing half-written was kept)",
    "SQLITE_IOERR": "the disk refused to write or read: check free space, file-size limits and the device",
    "SQLITE_BUSY": f"another process held its lock for {BUSY_TIMEOUT_S:g} s: stop the other writer",
    "SQLITE_LOCKED": "another connection of this process holds its lock: this is a bug, please report it",
    "SQLITE_READONLY": "it is read-only: check the owner and mode of the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened: check that the folder exists and may be written",
    "SQLITE_CORRUPT": "it is damaged: put a copy of it back, or start a new run in another directory",
    "SQLITE_ERROR": "its tables are not those of this version of dartrl, or hold values that cannot be read: "
    "`dartrl doctor --data --full` names the damage that it finds; put a copy of the record back, or start a "
    "new run in another directory",
    "SQLITE_NOTADB": "it is no SQLite database: put a copy of the record back, or start a new run in another "
    "directory",
}


class SqliteDatabase:
    """A record in a file (`dart.store.database.Database`)."""

    begin_reading = "BEGIN"
    enter_epoch = last_write = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    def connect(self, *, read_only: bool, create: bool = True) -> sqlite3.Connection:
        """Open a connection without SQLAlchemy; threads may use it one at a time.

        create   whether to create the file if it does not exist; never with `read_only`
        """
        mode = "ro" if read_only else "rwc" if create else "rw"
        immutable = "&immutable=1" if read_only and self._cannot_change() else ""
        connection = sqlite3.connect(
            f"{self._path.resolve().as_uri()}?mode={mode}{immutable}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,  # the driver begins no transactions: `BEGIN` is executed explicitly
            check_same_thread=False,
        )
        connection.text_factory = shown_text
        with ExitStack() as on_failure:
            on_failure.callback(connection.close)
            connection.execute("PRAGMA foreign_keys=ON")
            if not read_only:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
            _see_to_floor(connection)
            on_failure.pop_all()
        return connection

    def _cannot_change(self) -> bool:
        """Whether the file is the whole record and on a read-only file system, for example in an archive.

        SQLite reads it there only if it need not make the files beside it.
        """
        is_whole = self._path.is_file() and not beside(self._path, "wal").exists()
        return is_whole and bool(os.statvfs(self._path).f_flag & os.ST_RDONLY)

    def open_engine(self, *, create: bool = True) -> "Engine":
        """Make a SQLAlchemy engine for the file; each transaction takes the write lock when it begins."""
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import NullPool

        creator = partial(self.connect, read_only=False, create=create)
        engine = create_engine("sqlite://", creator=creator, poolclass=NullPool)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        return engine

    def connection_of(self, driver_connection: Any) -> sqlite3.Connection:
        assert isinstance(driver_connection, sqlite3.Connection)
        return driver_connection

    def is_lost(self, connection: object) -> bool:
        """Always False: a connection to a file never ends by itself."""
        return False

    def end_other_writers(self, connection: object) -> None:
        raise NotImplementedError("SQLite has no other writers: the lock of the run directory excludes them")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """In this context, raise the driver's errors as StoreUnavailable or StoreBusy, with the remedy."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "")
            for prefix, remedy in REMEDIES.items():
                if name.startswith(prefix):
                    kind = StoreBusy if passes(name, self._path) else StoreUnavailable
                    raise kind(f"store {self._path}: {remedy} ({name}: {error})") from error
            raise
        except UnicodeDecodeError as error:  # the message quotes a damaged definition that is no text
            raise StoreUnavailable(f"store {self._path}: {REMEDIES['SQLITE_CORRUPT']} ({error})") from error

    def refuse_absent(self) -> None:
        """Raise StoreUnavailable for a missing or empty file.

        Opening such a file would make SQLite delete the write-ahead log, which may hold the lost content.
        """
        again = "put a copy of it back, or start a new run elsewhere"
        if not self._path.is_file():
            raise StoreUnavailable(f"store {self._path} does not exist: {again}")
        if not self._path.stat().st_size:
            raise StoreUnavailable(f"store {self._path} is empty: {again}")

    def own_host(self) -> str:
        return "127.0.0.1"

    @staticmethod
    def found_version(connection: sqlite3.Connection) -> str | None:
        """The newest migration that a database has, such as `0012`; None for an empty database."""
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchall():
            return None
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        return str(rows[0][0]) if rows else None

    @staticmethod
    def schema_of(connection: sqlite3.Connection) -> dict[str, str]:
        """The definitions of tables, indexes and triggers by name, with single spaces for all white space."""
        rows = connection.execute("SELECT name, type, tbl_name, coalesce(sql, '') FROM sqlite_master")
        return {name: " ".join((kind, table, *sql.split())) for name, kind, table, sql in rows}

    def sync(self) -> None:
        """Write every committed transaction to the disk itself (fsync). Raises OSError.

        This opens and closes the write-ahead log, which is safe because SQLite holds no lock on the log.
        """
        log = os.open(beside(self._path, "wal"), os.O_RDONLY)
        try:
            os.fsync(log)
        finally:
            os.close(log)

    def clear(self) -> None:
        """Delete the record: the database file and SQLite's files beside it."""
        self._path.unlink(missing_ok=True)
        for what in ("wal", "shm", "journal"):
            beside(self._path, what).unlink(missing_ok=True)

    def references(self) -> "Checks":
        from dart.store.sqlite_checks import broken_references

        return {"the references": broken_references}

    def checks(self) -> "Checks":
        from dart.store import sqlite_checks

        return {
            "the database file": sqlite_checks.damaged_pages,
            "the tables": sqlite_checks.strange_tables,
            "the last numbers of tables": sqlite_checks.strange_sequences,
            "the types of values": sqlite_checks.strange_types,
        }


def undo_interrupted(path: Path) -> None:
    """Undo a transaction that a killed process left half-written, with the journal beside the database file.

    SQLite does this at the first read of a connection that may write; a connection that only reads fails. The
    journal mode stays, because the file may be another program's. Does nothing without a journal. Raises
    StoreUnavailable.
    """
    if beside(path, "journal").exists():
        uri = f"{path.resolve().as_uri()}?mode=rw"
        with (
            SqliteDatabase(path).errors(),
            closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)) as connection,
        ):
            connection.execute("SELECT 1 FROM sqlite_master")


def fold_log(path: Path) -> None:
    """Move the content of the write-ahead log into the database file, so that this file is the whole record.

    Does nothing if the file does not exist. A log that another process uses stays as it is. Raises
    StoreUnavailable.
    """
    if path.is_file():  # connecting would create the file
        database = SqliteDatabase(path)
        with database.errors(), closing(database.connect(read_only=False)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def shown_text(content: bytes) -> str:
    """Decode text. Bytes that are no UTF-8, as in a damaged row, become escapes such as \\xff."""
    return content.decode(errors="backslashreplace")


def beside(path: Path, what: str) -> Path:
    """The path of a file of SQLite beside the database.

    what   `wal` for the write-ahead log, `shm` for the log's index, `journal` for the journal of a
           transaction before the log exists
    """
    return path.with_name(f"{path.name}-{what}")


def _see_to_floor(connection: sqlite3.Connection) -> None:
    """Add the function `floor` to an SQLite that was built without it."""
    try:
        connection.execute("SELECT floor(0.5)")
    except sqlite3.OperationalError:
        connection.create_function("floor", 1, math.floor, deterministic=True)


def passes(name: str, path: Path) -> bool:
    """Whether the cause of SQLite's error `name` may end without repair: a full disk, or a lock."""
    if name.startswith(
        ("SQLITE_IOERR", "SQLITE_CANTOPEN")
    ):  # names of a full disk for files beside the database
        return path.parent.is_dir() and not has_room(path.parent)
    return name.startswith(("SQLITE_FULL", "SQLITE_BUSY"))


def has_room(folder: Path) -> bool:
    """Whether the disk of a folder has at least `ROOM_BYTES` and one inode free."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= ROOM_BYTES and (disk.f_favail > 0 or disk.f_files == 0)
