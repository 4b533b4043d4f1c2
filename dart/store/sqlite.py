"""SQLite as the database of the record: connections, its catalogue, and its errors in our words.

Statements elsewhere are in the SQL that SQLite and PostgreSQL share (docs/decisions/0019-one-sql-layer.md);
what only SQLite understands is here and in `dart.store.sqlite_checks`.

synchronous=NORMAL: in WAL mode a commit is a write() into the operating
system's page cache, which outlives the death of the process by any signal, so
an acknowledged transaction survives SIGKILL without an fsync per commit. Only
the death of the machine can cost the last commits (never consistency), and
then the engines and browsers that made them are gone too. The commit of an
update is synced (`sync_log`): its checkpoint is, and must not be ahead.
"""

import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dart.store.errors import StoreBusy, StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy import Engine

Connection = sqlite3.Connection
"""What statements run on: text with `:names`, and the values of those."""

Cursor = sqlite3.Cursor
"""What a statement found."""

DatabaseError = sqlite3.DatabaseError

BUSY_TIMEOUT_S = 5.0
"""One writer by design; only a checkpoint or a migration of a second process can hold the lock."""

ROOM_BYTES = 64 << 10
"""With less than this the shared index of the write-ahead log (32 KiB) cannot be made."""

REMEDIES = {
    "SQLITE_FULL": "the disk is full: free space there, then go on (nothing half-written was kept)",
    "SQLITE_IOERR": "the disk refused to write or read: check free space, file-size limits and the device",
    "SQLITE_BUSY": f"another process held it for {BUSY_TIMEOUT_S:g} s: stop the other writer",
    "SQLITE_LOCKED": "another connection of this process holds it: this is a bug",
    "SQLITE_READONLY": "it is read-only: check the owner and mode of the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened: check that the folder exists and may be written",
    "SQLITE_CORRUPT": "it is damaged: put a copy of it back, or start a new run in another directory",
    "SQLITE_ERROR": "its tables are not those of this version of dartrl, or hold what cannot be read: "
    "`dartrl doctor --data --full` names what it can; put a copy of it back, or start a new run in another "
    "directory",
    "SQLITE_NOTADB": "it is no SQLite database: put a copy of the record back, or start a new run in another "
    "directory",
}


def connect(path: Path, *, read_only: bool, create: bool = True) -> sqlite3.Connection:
    """A bare connection; it may be used from any one thread at a time."""
    mode = "ro" if read_only else "rwc" if create else "rw"
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,  # we say BEGIN ourselves; the driver's own is lazy and deferred
        check_same_thread=False,
    )
    connection.text_factory = shown_text
    with ExitStack() as on_failure:
        on_failure.callback(connection.close)
        connection.execute("PRAGMA foreign_keys=ON")
        if not read_only:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
        _see_to_floor(connection)
        on_failure.pop_all()
    return connection


def _see_to_floor(connection: sqlite3.Connection) -> None:
    """Add the function `floor` to an SQLite that was built without it."""
    try:
        connection.execute("SELECT floor(0.5)")
    except sqlite3.OperationalError:
        connection.create_function("floor", 1, math.floor, deterministic=True)


def open_engine(path: Path, *, create: bool = True) -> "Engine":
    """An engine on the database file; every transaction begins with the write lock."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    creator = partial(connect, path, read_only=False, create=create)
    engine = create_engine("sqlite://", creator=creator, poolclass=NullPool)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def found_version(connection: sqlite3.Connection) -> str | None:
    """The migration a database is at; None for an empty one."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchall():
        return None
    rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    return str(rows[0][0]) if rows else None


def schema_of(connection: sqlite3.Connection) -> dict[str, str]:
    """What a database says its tables, indexes and triggers are, by name, without the white space."""
    rows = connection.execute("SELECT name, type, tbl_name, coalesce(sql, '') FROM sqlite_master")
    return {name: " ".join((kind, table, *sql.split())) for name, kind, table, sql in rows}


def fold_log(path: Path) -> None:
    """Move what the write-ahead log holds into the database file, which is then the whole record.

    A log in use stays as it is. Raises StoreUnavailable.
    """
    if path.is_file():  # connecting would make one
        with named_errors(path), closing(connect(path, read_only=False)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def shown_text(content: bytes) -> str:
    """Text of the record; bytes that are no text, of a damaged row, are shown by their numbers."""
    return content.decode(errors="backslashreplace")


def sync_log(path: Path) -> None:
    """Have everything that was committed on the disk. Raises OSError.

    SQLite holds no lock on the log, so that closing it here lets go of none.
    """
    log = os.open(path.with_name(f"{path.name}-wal"), os.O_RDONLY)
    try:
        os.fsync(log)
    finally:
        os.close(log)


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn the driver's errors into StoreUnavailable with path and remedy."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        for prefix, remedy in REMEDIES.items():
            if name.startswith(prefix):
                kind = StoreBusy if passes(name, path) else StoreUnavailable
                raise kind(f"store {path}: {remedy} ({name}: {error})") from error
        raise
    except UnicodeDecodeError as error:  # SQLite quotes a damaged definition, which the driver cannot decode
        raise StoreUnavailable(f"store {path}: {REMEDIES['SQLITE_CORRUPT']} ({error})") from error


def passes(name: str, path: Path) -> bool:
    """Whether SQLite's error is one of those that go away by themselves: no room, or a lock."""
    if name.startswith(
        ("SQLITE_IOERR", "SQLITE_CANTOPEN")
    ):  # what a full disk is called beside the data file
        return path.parent.is_dir() and not has_room(path.parent)
    return name.startswith(("SQLITE_FULL", "SQLITE_BUSY"))


def has_room(folder: Path) -> bool:
    """Whether the disk of a folder has more space left than the record's smallest files need."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >= ROOM_BYTES and (disk.f_favail > 0 or disk.f_files == 0)
