"""Rows that are not what was written: checksums, second copies, types, and the shape of the tables.

`dart.store.audit` asks whether the facts of the record agree with each other; here each row is asked whether
it is what its writer wrote.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dart.core.types import RolloutState
from dart.store.audit import Finding, looked
from dart.store.queries import LIVE, select
from dart.store.serialization import (
    DEMONSTRATION_COLUMNS,
    EVENT_COLUMNS,
    PARKED_COLUMNS,
    TRAJECTORY_COLUMNS,
    Row,
    check_demonstration,
    check_steps,
    check_trajectory,
    checksum,
    read_demonstration,
    read_trajectory,
    unpack_steps,
)

FORMATS, WAL_FORMATS = slice(18, 20), b"\x02\x02"
"""Where the header of a database file says which formats it is written and read in, and those of the record:
SQLite takes a file with a later format for writing as read-only. https://www.sqlite.org/fileformat2.html"""

HEADING = "*** in database main ***\n"
"""What SQLite puts before what it finds in pages, in the same answer."""

STORAGE = {"INTEGER": "integer", "BOOLEAN": "integer", "FLOAT": "real", "VARCHAR": "text", "BLOB": "blob"}
"""How SQLite stores a value of a declared type."""


Check = Callable[[sqlite3.Connection], Iterable[Finding]]


def damaged_rows(connection: sqlite3.Connection, *, full: bool) -> list[Finding]:
    """Rows that are not what was written, as far as the record can say.

    full   every row; else only episodes that may still be trained or replayed
    """
    needed: dict[str, Check] = {
        "the trajectories": damaged_trajectories if full else damaged_live_trajectories,
        "the experience pool": damaged_demonstrations,
        "the parked episodes": damaged_parked,
    }
    others: dict[str, Check] = {
        "the database file": damaged_pages,
        "the tables": strange_tables,
        "the last numbers of tables": strange_sequences,
        "the types of values": strange_types,
        "the events": damaged_events,
    }
    checks = others | needed if full else needed
    return [finding for which, check in checks.items() for finding in looked(which, check, connection)]


def damaged_pages(connection: sqlite3.Connection) -> Iterator[Finding]:
    """A read-only format, pages out of place, and rows that differ from their second copy."""
    ((file,),) = connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'")
    with Path(file).open("rb") as opened:
        formats = opened.read(FORMATS.stop)[FORMATS]
    if formats != WAL_FORMATS:
        yield Finding(
            f"its formats for writing and reading are {formats.hex()}, not 0202", "the database file"
        )
    for (told,) in connection.execute("PRAGMA integrity_check"):
        for line in told.removeprefix(HEADING).splitlines():
            if line != "ok":
                yield Finding(line, "the database file")


def strange_tables(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Tables, indexes and triggers that are not those of this version."""
    from dart.store.migrations import expected_schema, schema_of  # only the full check loads Alembic

    found, wanted = schema_of(connection), expected_schema()
    for name in sorted(found.keys() | wanted.keys(), key=str):
        if found.get(name) != wanted.get(name):
            what = "is missing" if name not in found else "is not what this version of dartrl made"
            yield Finding(f"its definition {what}", f"table, index or trigger {name}")


def strange_sequences(connection: sqlite3.Connection) -> Iterator[Finding]:
    """The last number that was given to a row is that of the last row: the newest row is never deleted."""
    for table, last in connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
        if table not in tables(connection):
            yield Finding("there is no such table", f"the last number of table {table}")
            continue
        (newest,) = connection.execute(f'SELECT coalesce(max(rowid), 0) FROM "{table}"').fetchone()
        if last != newest:
            yield Finding(f"it is {last!r}, the last row has {newest!r}", f"the last number of table {table}")


def strange_types(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Values that no writer puts into their column."""
    for table in tables(connection):
        columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        for _, column, declared, is_needed, _, _ in columns:
            allowed = f"'{STORAGE[declared.split('(')[0]]}'" + ("" if is_needed else ", 'null'")
            query = (
                f'SELECT rowid, typeof("{column}") FROM "{table}" WHERE typeof("{column}") NOT IN ({allowed})'
            )
            for row_id, found in connection.execute(query):
                yield Finding(f"its {column} is {found}, not {allowed}", f"row {row_id} of table {table}")


def tables(connection: sqlite3.Connection) -> list[str]:
    """The names of the record's own tables."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [name for (name,) in connection.execute(query)]


STEPS = "SELECT * FROM steps WHERE rollout_id = :key ORDER BY step"
POOL_STEPS = "SELECT * FROM pool_steps WHERE pool_id = :key ORDER BY step"
OTHER_THAN_STORED = "it is not what was stored: its checksum is another one"


LIVE_TRAJECTORIES = f"""
    SELECT trajectories.* FROM trajectories
    JOIN rollouts ON rollouts.rollout_id = trajectories.rollout_id
    JOIN groups ON groups.group_id = rollouts.group_id
    WHERE groups.state IN {LIVE} AND rollouts.state = '{RolloutState.STORED}'
"""


def damaged_live_trajectories(connection: sqlite3.Connection) -> Iterator[Finding]:
    """The same of those that may still be trained."""
    yield from damaged_trajectories(connection, LIVE_TRAJECTORIES)


def damaged_trajectories(
    connection: sqlite3.Connection, query: str = "SELECT * FROM trajectories"
) -> Iterator[Finding]:
    """Episodes that are not what was stored, or that cannot be read back."""
    for row in select(connection, query):
        which = f"trajectory of rollout {row.rollout_id}"
        yield from looked(which, _of_trajectory, connection, which, row)


def _of_trajectory(connection: sqlite3.Connection, which: str, row: Row) -> Iterator[Finding]:
    steps = select(connection, STEPS, key=row.rollout_id)
    if is_damaged(row, TRAJECTORY_COLUMNS, steps):
        yield Finding(OTHER_THAN_STORED, which)
    else:
        check_trajectory(read_trajectory(row, steps))


def damaged_demonstrations(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Demonstrations that are not what was added, or that cannot be read back."""
    for row in select(connection, "SELECT * FROM pool"):
        which = f"demonstration {row.pool_id}"
        yield from looked(which, _of_demonstration, connection, which, row)


def _of_demonstration(connection: sqlite3.Connection, which: str, row: Row) -> Iterator[Finding]:
    steps = select(connection, POOL_STEPS, key=row.pool_id)
    if is_damaged(row, DEMONSTRATION_COLUMNS, steps):
        yield Finding(OTHER_THAN_STORED, which)
    else:
        check_demonstration(read_demonstration(row, steps))


def is_damaged(row: Row, columns: Sequence[str], steps: Iterable[Row] = ()) -> bool:
    """Whether a row, with its steps, has another checksum than when it was written; no where it has none."""
    if row.checksum is None:
        return False
    found = checksum(row._asdict(), columns, (step._asdict() for step in steps))
    return bool(row.checksum != found)


def damaged_parked(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Parked steps that are not what was kept, or that cannot be read back."""
    for row in select(connection, "SELECT * FROM parked"):
        which = f"parked episode of rollout {row.rollout_id}"
        yield from looked(which, _of_parked, which, row)


def _of_parked(which: str, row: Row) -> Iterator[Finding]:
    if is_damaged(row, PARKED_COLUMNS):
        yield Finding(OTHER_THAN_STORED, which)
    else:
        check_steps(which, unpack_steps(row.steps))


def damaged_events(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Events that are not what was recorded, or that cannot be read back."""
    for number, *values in connection.execute(
        f"SELECT event_id, checksum, {', '.join(EVENT_COLUMNS)} FROM events"
    ):
        which = f"event {number}"
        yield from looked(
            which, _of_event, which, dict(zip(("checksum", *EVENT_COLUMNS), values, strict=True))
        )


def _of_event(which: str, row: dict[str, Any]) -> Iterator[Finding]:
    if row["checksum"] is not None and row["checksum"] != checksum(row, EVENT_COLUMNS):
        yield Finding(OTHER_THAN_STORED, which)
    else:
        json.loads(row["data"])
