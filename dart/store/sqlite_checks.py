"""Checks of the record that only SQLite has: its pages, references, definitions and types.

Checks that work with any database are in `dart.store.record_rules` and `dart.store.row_damage`.
"""

from collections.abc import Iterator
from pathlib import Path

from dart.store.record_rules import Finding
from dart.store.sqlite import Connection, SqliteDatabase

FORMATS, WAL_FORMATS = slice(18, 20), b"\x02\x02"
"""The bytes of a database file's header that hold the write format and the read format, and their values in
WAL mode. SQLite opens a file with a later write format read-only. https://www.sqlite.org/fileformat2.html"""

HEADING = "*** in database main ***\n"
"""Text before the first damaged page in the result of `PRAGMA integrity_check`."""

STORAGE = {"INTEGER": "integer", "BOOLEAN": "integer", "FLOAT": "real", "VARCHAR": "text", "BLOB": "blob"}
"""SQLite's storage class for each declared type of a column."""


def broken_references(connection: Connection) -> list[Finding]:
    """A finding for each row that refers to a missing row, and for each that `PRAGMA quick_check` reports."""
    rows = connection.execute("PRAGMA foreign_key_check").fetchall()
    damage = [line for (line,) in connection.execute("PRAGMA quick_check")]
    return [
        Finding(f"it refers to a missing row of {row[2]}", f"row {row[1]} of table {row[0]}") for row in rows
    ] + [Finding(line, "the database file") for line in damage if line != "ok"]


def strange_formats(path: Path) -> list[Finding]:
    """A finding if the header of a database file has formats that make the file read-only; else none.

    Call this only while this process has no connection to the file. A process that closes a file loses all
    its locks (fcntl) on it, SQLite's included. Then a writer that ends would rewrite the file and delete the
    log while the connection still reads. https://www.sqlite.org/howtocorrupt.html
    """
    with path.open("rb") as opened:
        formats = opened.read(FORMATS.stop)[FORMATS]
    if formats == WAL_FORMATS:
        return []
    return [
        Finding(f"its formats for writing and reading are {formats.hex()}, not 0202", "the database file")
    ]


def damaged_pages(connection: Connection) -> Iterator[Finding]:
    """Findings about damaged pages of the database file, and rows that differ from their copy in an index."""
    for (text,) in connection.execute("PRAGMA integrity_check"):
        for line in text.removeprefix(HEADING).splitlines():
            if line != "ok":
                yield Finding(line, "the database file")


def strange_tables(connection: Connection) -> Iterator[Finding]:
    """A finding for each table, index or trigger that differs from what this version of dartrl makes."""
    found, wanted = SqliteDatabase.schema_of(connection), expected_schema()
    for name in sorted(found.keys() | wanted.keys(), key=str):
        if found.get(name) != wanted.get(name):
            what = "is missing" if name not in found else "is not what this version of dartrl made"
            yield Finding(f"its definition {what}", f"table, index or trigger {name}")


def expected_schema() -> dict[str, str]:
    """The result of `SqliteDatabase.schema_of` for a new record; imports SQLAlchemy and Alembic."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    from dart.store.migrations import upgrade

    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.connect() as connection, connection.begin():
        upgrade(connection)
        bare = connection.connection.driver_connection
        assert isinstance(bare, Connection)
        found = SqliteDatabase.schema_of(bare)
    engine.dispose()
    return found


def strange_sequences(connection: Connection) -> Iterator[Finding]:
    """A finding for each table whose last assigned key is below that of its newest row.

    It may be above, because an insertion takes a key even if its row is in the table already.
    """
    for table, last in connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
        if table not in tables(connection):
            yield Finding("there is no such table", f"the last number of table {table}")
            continue
        (newest,) = connection.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table}"').fetchone()
        if last < newest:
            yield Finding(f"it is {last!r}, the last row has {newest!r}", f"the last number of table {table}")


def strange_types(connection: Connection) -> Iterator[Finding]:
    """A finding for each value of a type that its column does not allow."""
    for table in tables(connection):
        columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        for _, column, declared, is_needed, _, _ in columns:
            allowed = f"'{STORAGE[declared.split('(')[0]]}'" + ("" if is_needed else ", 'null'")
            query = (
                f'SELECT rowid, typeof("{column}") FROM "{table}" WHERE typeof("{column}") NOT IN ({allowed})'
            )
            for row_id, found in connection.execute(query):
                yield Finding(f"its {column} is {found}, not {allowed}", f"row {row_id} of table {table}")


def tables(connection: Connection) -> list[str]:
    """The names of the tables, without SQLite's own tables."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [name for (name,) in connection.execute(query)]
