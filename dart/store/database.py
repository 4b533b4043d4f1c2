"""The database of a record: SQLite in a file, or PostgreSQL on a server, chosen here by the record's address.

All other modules use the interfaces below, and statements in the SQL that both databases share
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
    """Runs SQL statements: texts with parameters such as `:name`, and the parameters' values by name."""

    def execute(self, sql: str, values: Mapping[str, Any] = ..., /) -> Cursor: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


Checks = Mapping[str, Callable[[Any], "Iterable[Finding]"]]
"""Functions that check data, by the name of what they check. Each gets a connection and yields findings."""


class Database(Protocol):
    """What the record needs of a database besides the shared SQL. SQLite and PostgreSQL implement it."""

    begin_reading: str
    """SQL that begins a read transaction, in which all queries see the same state."""
    enter_epoch: str
    """SQL for the beginning of a write transaction. It returns the record's epoch and the number of this
    write, and keeps the epoch from changing until the transaction ends. Empty for SQLite, where the lock of
    the run directory excludes other writers."""
    last_write: str
    """SQL that returns the number of the last committed write, and first waits for a write that is still
    being committed. Empty for SQLite."""

    def connect(self, *, read_only: bool, create: bool = True) -> Connection:
        """Open a connection without SQLAlchemy; threads may use it one at a time.

        create   whether to create a database file that does not exist; never with `read_only`
        """

    def open_engine(self, *, create: bool = True) -> "Engine":
        """Make a SQLAlchemy engine whose transactions may write."""

    def connection_of(self, driver_connection: Any) -> Connection:
        """Wrap a driver's connection, which the engine opened, for statements of the reader."""

    def is_lost(self, connection: Any) -> bool:
        """Whether the server or the network has ended a connection, so that another one must be opened."""

    def end_other_writers(self, connection: Any) -> None:
        """End the connections of all other writers of the record."""

    def errors(self) -> AbstractContextManager[None]:
        """In this context, raise the driver's errors as StoreUnavailable or StoreBusy, with the remedy."""

    def refuse_absent(self) -> None:
        """Raise StoreUnavailable for a database that is missing or empty, without changing it."""

    def own_host(self) -> str:
        """The IP address of this machine as the database sees it; loopback if both are one machine."""

    def found_version(self, connection: Any) -> str | None:
        """The newest migration that a database has, such as `0012`; None for an empty database."""

    def schema_of(self, connection: Any) -> dict[str, str]:
        """The definitions of a database's tables, indexes and triggers, by name."""

    def sync(self) -> None:
        """Write every committed transaction to the disk itself (fsync). Raises OSError."""

    def clear(self) -> None:
        """Delete the record for good."""

    def references(self) -> Checks:
        """Checks of references between rows. Every check of the data runs them."""

    def checks(self) -> Checks:
        """Checks of the database itself. Only a full check of the data runs them."""


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
