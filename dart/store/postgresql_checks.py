"""Checks of the record that only PostgreSQL has: its pages, references, definitions and sequences.

The server itself refuses a value of a wrong type, and a reference to a missing row. These checks find damage
that the server cannot prevent: by broken disks, by changes of tables by hand, or by a backup that was
restored only in part.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dart.store.postgresql import PostgresqlConnection, PostgresqlDatabase
from dart.store.record_rules import Finding, findings_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

REFERENCES = """
    SELECT conrelid::regclass::text, child.attname, confrelid::regclass::text, parent.attname
    FROM pg_constraint
    JOIN pg_attribute AS child ON child.attrelid = conrelid AND child.attnum = conkey[1]
    JOIN pg_attribute AS parent ON parent.attrelid = confrelid AND parent.attnum = confkey[1]
    WHERE contype = 'f' AND connamespace = current_schema()::regnamespace
    ORDER BY 1, 2
"""
TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY relname
"""
INDEXES = """
    SELECT indexrelid::regclass::text FROM pg_index
    JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
    WHERE relnamespace = current_schema()::regnamespace AND amname = 'btree' ORDER BY 1
"""
SEQUENCES = """
    SELECT relname, attname, pg_get_serial_sequence(quote_ident(relname), attname) FROM pg_class
    JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
        AND pg_get_serial_sequence(quote_ident(relname), attname) IS NOT NULL
    ORDER BY relname
"""


def broken_references(connection: PostgresqlConnection) -> Iterator[Finding]:
    """A finding for each row that refers to a missing row."""
    for table, column, other, key in connection.execute(REFERENCES).fetchall():
        missing = connection.execute(f"""
            SELECT "{column}" FROM {table} AS child WHERE "{column}" IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM {other} AS parent WHERE parent."{key}" = child."{column}")
        """)
        for (value,) in missing.fetchall():
            yield Finding(f"it refers to a missing row of {other}", f"a row of {table} with {column} {value}")


def damaged_pages(connection: PostgresqlConnection) -> Iterator[Finding]:
    """A finding for each table that cannot be read to its end.

    If the database has the extension amcheck, also one for each damaged page and index.
    """
    tables = [name for (name,) in connection.execute(TABLES).fetchall()]
    for table in tables:
        yield from findings_of(f"table {table}", _read_whole, connection, table)
    if not connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'").fetchall():
        return
    for table in tables:
        found = connection.execute(
            "SELECT blkno, offnum, msg FROM verify_heapam(CAST(:name AS regclass))", {"name": table}
        )
        for page, row, message in found.fetchall():
            yield Finding(message, f"table {table}, page {page}, row {row}")
    for (index,) in connection.execute(INDEXES).fetchall():
        yield from findings_of(f"index {index}", _check_index, connection, index)


def _read_whole(connection: PostgresqlConnection, table: str) -> Iterator[Finding]:
    """Read every value of a table. Raises StoreUnavailable for a page that cannot be read; yields nothing."""
    connection.execute(f'SELECT max(length(CAST(one AS TEXT))) FROM "{table}" AS one').fetchall()
    yield from ()


def _check_index(connection: PostgresqlConnection, index: str) -> Iterator[Finding]:
    """Compare an index with its table. Raises StoreUnavailable if they differ; yields nothing."""
    connection.execute("SELECT bt_index_check(CAST(:name AS regclass), true)", {"name": index}).fetchall()
    yield from ()


def strange_tables(
    open_engine: Callable[[], "Engine"], connection: PostgresqlConnection
) -> Iterator[Finding]:
    """A finding for each table, index, constraint or trigger that differs from what this version makes."""
    found, wanted = PostgresqlDatabase.schema_of(connection), expected_schema(open_engine, connection)
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            what = "is missing" if name not in found else "is not what this version of dartrl made"
            yield Finding(f"its definition {what}", name)


def expected_schema(open_engine: Callable[[], "Engine"], connection: PostgresqlConnection) -> dict[str, str]:
    """The result of `PostgresqlDatabase.schema_of` for a new record; imports SQLAlchemy and Alembic.

    The new record is made in a schema of its own, in a transaction that is rolled back.
    """
    from dart.store.migrations import upgrade

    engine = open_engine()
    with engine.connect() as scratch, scratch.begin() as undone:
        scratch.exec_driver_sql("CREATE SCHEMA dartrl_expected")
        scratch.exec_driver_sql("SET LOCAL search_path TO dartrl_expected")
        upgrade(scratch)
        found = PostgresqlDatabase.schema_of(connection.beside(scratch.connection.driver_connection))
        undone.rollback()
    engine.dispose()
    return found


def late_sequences(connection: PostgresqlConnection) -> Iterator[Finding]:
    """A finding for each table whose sequence is behind its newest key, so that its next row is refused."""
    for table, column, sequence in connection.execute(SEQUENCES).fetchall():
        ((last,),) = connection.execute(
            "SELECT coalesce(pg_sequence_last_value(CAST(:name AS regclass)), 0)", {"name": sequence}
        ).fetchall()
        ((newest,),) = connection.execute(f'SELECT coalesce(max("{column}"), 0) FROM "{table}"').fetchall()
        if last < newest:
            yield Finding(f"it is {last}, the last row has {newest}", f"the last number of table {table}")
