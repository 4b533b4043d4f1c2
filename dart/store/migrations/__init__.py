"""Migrations of the record's tables. They run when the record is opened for writing.

Alembic is imported only if there is something to migrate, so that a restarted store actor opens its database
in milliseconds.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dart.core.record_address import RecordAddress
from dart.store.database import Connection, database_at
from dart.store.errors import StoreTooNew, StoreTooOld, StoreUnavailable

if TYPE_CHECKING:
    import sqlalchemy

    from dart.store.blobs import BlobStore

HERE = Path(__file__).parent

FIRST_VERSION = "0009"
"""The first migration. A record at an older one is refused."""

SCHEMA_VERSION = "0013"
"""The newest migration."""


def is_to_migrate(connection: Connection, address: RecordAddress) -> bool:
    """Whether a database needs `upgrade` before it can be written. Raises StoreTooOld, StoreTooNew."""
    return (
        database_at(address).found_version(connection) is None
        or migration_of(connection, address) != SCHEMA_VERSION
    )


def upgrade(
    connection: "sqlalchemy.Connection", steps: "Callable[[], BlobStore] | None" = None, to: str = "head"
) -> None:
    """Run the migrations up to `to`, in the caller's transaction.

    steps   returns the blob store for the steps of a record that still has them in its rows; not needed for
            an empty database
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["steps"] = steps
    command.upgrade(config, to)


def migration_of(connection: Connection, address: RecordAddress) -> str:
    """The newest migration of a record, such as `0012`. The order of these names is that of the migrations.

    Raises StoreUnavailable for a database that is no record, StoreTooOld and StoreTooNew for a record that
    this version of dartrl can neither read nor migrate.
    """
    found = database_at(address).found_version(connection)
    if found is None:
        raise StoreUnavailable(
            f"store {address} has no schema: put a copy of the record back, or start a new run elsewhere"
        )
    if found < FIRST_VERSION:
        raise StoreTooOld(
            f"store {address} is at schema {found!r}, this version of dartrl knows {FIRST_VERSION!r} and "
            "later: continue the run with the version of dartrl that began it, or choose another run "
            "directory; nothing was changed"
        )
    if found > SCHEMA_VERSION:
        raise StoreTooNew(
            f"store {address} is at schema {found!r}, this version of dartrl knows up to {SCHEMA_VERSION!r}: "
            "upgrade dartrl, or choose another run directory"
        )
    return found


def require_record(address: RecordAddress) -> None:
    """Check that there is a record that can be read or migrated, without changing it.

    Raises StoreUnavailable, StoreTooOld, StoreTooNew.
    """
    with connected(address):
        pass


@contextmanager
def connected(address: RecordAddress, *, read_only: bool = True) -> Iterator[Connection]:
    """Open a connection to a record that can be read or migrated.

    The record may be at an older migration: read only what the block knows to be in it.

    Raises StoreUnavailable, StoreTooOld, StoreTooNew.
    """
    database = database_at(address)
    database.refuse_absent()
    with database.errors(), closing(database.connect(read_only=read_only, create=False)) as connection:
        migration_of(connection, address)
        yield connection


def check_current(connection: Connection, address: RecordAddress) -> None:
    """Check that a record is at the newest migration. A reader needs this, because it cannot migrate.

    Raises StoreUnavailable, StoreTooOld, StoreTooNew.
    """
    found = migration_of(connection, address)
    if found != SCHEMA_VERSION:
        raise StoreUnavailable(
            f"store {address} is at schema {found!r}, not {SCHEMA_VERSION!r}, because an earlier version of "
            "dartrl wrote it; end the run if it is running, and start or resume it once, which migrates it"
        )
