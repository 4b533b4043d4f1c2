"""Migrations of the record, run when a store is opened.

Alembic is imported only when there is something to do, so a restarted store
process opens an existing database in milliseconds.
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from dart.store.errors import StoreTooNew, StoreUnavailable
from dart.store.schema import SCHEMA_VERSION

HERE = Path(__file__).parent


def found_version(connection: Connection) -> str | None:
    """The migration a database is at; None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def migrate(connection: Connection, path: Path) -> None:
    """Bring a database to SCHEMA_VERSION within the caller's transaction: wholly or not at all."""
    found = found_version(connection)
    if found == SCHEMA_VERSION:
        return
    check_not_newer(found, path)
    upgrade(connection)


def upgrade(connection: Connection, to: str = "head") -> None:
    """Run the migrations up to one. The scripts lie beside this file; no alembic.ini is needed."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def check_not_newer(found: str | None, path: Path) -> None:
    """Refuse a database that this code cannot know. Migrations are numbered, so names order them."""
    if found is not None and found > SCHEMA_VERSION:
        raise StoreTooNew(
            f"store {path} is at schema {found!r}, this version of dartrl knows up to {SCHEMA_VERSION!r}: "
            "upgrade dartrl, or choose another run directory"
        )


def check_current(connection: Connection, path: Path) -> None:
    """Refuse to read a database that no writer of this version has opened yet."""
    found = found_version(connection)
    check_not_newer(found, path)
    if found != SCHEMA_VERSION:
        raise StoreUnavailable(
            f"store {path} is at schema {found!r}, not {SCHEMA_VERSION!r}: start or resume the run once, "
            "which migrates it"
        )
