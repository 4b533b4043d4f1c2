"""The database of a record: SQLite in a file, or PostgreSQL on a server, chosen here by the record's address.

Everything else uses these interfaces, and statements in the SQL that both share
(docs/decisions/0019-one-sql-layer.md).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from dart.core.errors import UnavailableError
from dart.core.record_address import RecordAddress, ServerAddress
from dart.store.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from dart.store.record_rules import Finding


class Cursor(Protocol):
    """The rows that a statement found."""

    @property
    def description(self) -> Sequence[Any] | None: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Runs statements: text with `:names`, and their values."""

    def execute(self, sql: str, values: Mapping[str, Any] = ..., /) -> Cursor: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


Checks = Mapping[str, Callable[[Any], "Iterable[Finding]"]]
"""Checks that only one database has, by the name of what they check."""


class Database(Protocol):
    """What a record needs of its database beside statements."""

    begin_reading: str
    """Statement that begins a transaction which sees one state."""
    enter_epoch: str
    """Statement that reads the epoch of the writer, which then cannot change until the transaction ends, and
    counts and returns the write. Empty where the lock of the run directory is enough."""
    last_write: str
    """Statement that reads the number of the last write that was committed, after one that still runs."""

    def connect(self, *, read_only: bool, create: bool = True) -> Connection:
        """Open a connection without SQLAlchemy; threads may use it one at a time."""

    def open_engine(self, *, create: bool = True) -> "Engine":
        """Make a SQLAlchemy engine whose transactions may write."""

    def connection_of(self, driver_connection: Any) -> Connection:
        """The connection for statements of the reader on a driver's connection of the engine."""

    def is_lost(self, connection: Any) -> bool:
        """Whether a connection has ended by itself, and another one must be opened."""

    def end_other_writers(self, connection: Any) -> None:
        """End the connections of earlier writers."""

    def errors(self) -> AbstractContextManager[None]:
        """Raise the driver's errors as StoreUnavailable or StoreBusy, with address and remedy."""

    def refuse_absent(self) -> None:
        """Raise StoreUnavailable for a database that is missing or empty, without changing it."""

    def own_host(self) -> str:
        """The address by which this machine reaches the database; that of loopback if it is on it."""

    def found_version(self, connection: Any) -> str | None:
        """The migration that a database is at; None for an empty database."""

    def schema_of(self, connection: Any) -> dict[str, str]:
        """The definitions of a database's tables and what belongs to them, by name."""

    def sync(self) -> None:
        """Write every committed transaction to the disk itself. Raises OSError."""

    def clear(self) -> None:
        """Remove the record, for good."""

    def references(self) -> Checks:
        """Checks of references between rows, for every check of the data."""

    def checks(self) -> Checks:
        """Checks of the database itself, for a full check of the data."""


def database_at(address: RecordAddress) -> Database:
    """The database at an address. Raises UnavailableError if its driver is not installed."""
    if not isinstance(address, ServerAddress):
        return SqliteDatabase(address)
    try:
        from dart.store.postgresql import PostgresqlDatabase
    except ImportError as error:
        raise UnavailableError(
            f"the record {address} needs psycopg, which cannot be imported ({error}): "
            "pip install 'dartrl[cluster]'"
        ) from error
    return PostgresqlDatabase(address)
