"""Rows that are not what was written.

`dart.store.audit` asks whether the facts of the record agree with each other; here each row is asked whether
it is what its writer wrote.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from dart.store.sqlite import Connection
from dart.store.sqlite_checks import damaged_pages, strange_sequences, strange_tables, strange_types

Check = Callable[[Connection], Iterable[Finding]]


def damaged_rows(connection: Connection, *, full: bool) -> list[Finding]:
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


STEPS = "SELECT * FROM steps WHERE rollout_id = :key ORDER BY step"
POOL_STEPS = "SELECT * FROM pool_steps WHERE pool_id = :key ORDER BY step"
OTHER_THAN_STORED = "it is not what was stored: its checksum is another one"


LIVE_TRAJECTORIES = f"""
    SELECT trajectories.* FROM trajectories
    JOIN rollouts ON rollouts.rollout_id = trajectories.rollout_id
    JOIN groups ON groups.group_id = rollouts.group_id
    WHERE groups.state IN {LIVE} AND rollouts.state = '{RolloutState.STORED}'
"""


def damaged_live_trajectories(connection: Connection) -> Iterator[Finding]:
    """The same of those that may still be trained."""
    yield from damaged_trajectories(connection, LIVE_TRAJECTORIES)


def damaged_trajectories(
    connection: Connection, query: str = "SELECT * FROM trajectories"
) -> Iterator[Finding]:
    """Episodes that are not what was stored, or that cannot be read back."""
    for row in select(connection, query):
        which = f"trajectory of rollout {row.rollout_id}"
        yield from looked(which, _of_trajectory, connection, which, row)


def _of_trajectory(connection: Connection, which: str, row: Row) -> Iterator[Finding]:
    steps = select(connection, STEPS, key=row.rollout_id)
    if is_damaged(row, TRAJECTORY_COLUMNS, steps):
        yield Finding(OTHER_THAN_STORED, which)
    else:
        check_trajectory(read_trajectory(row, steps))


def damaged_demonstrations(connection: Connection) -> Iterator[Finding]:
    """Demonstrations that are not what was added, or that cannot be read back."""
    for row in select(connection, "SELECT * FROM pool"):
        which = f"demonstration {row.pool_id}"
        yield from looked(which, _of_demonstration, connection, which, row)


def _of_demonstration(connection: Connection, which: str, row: Row) -> Iterator[Finding]:
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


def damaged_parked(connection: Connection) -> Iterator[Finding]:
    """Parked steps that are not what was kept, or that cannot be read back."""
    for row in select(connection, "SELECT * FROM parked"):
        which = f"parked episode of rollout {row.rollout_id}"
        yield from looked(which, _of_parked, which, row)


def _of_parked(which: str, row: Row) -> Iterator[Finding]:
    if is_damaged(row, PARKED_COLUMNS):
        yield Finding(OTHER_THAN_STORED, which)
    else:
        check_steps(which, unpack_steps(row.steps))


def damaged_events(connection: Connection) -> Iterator[Finding]:
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
