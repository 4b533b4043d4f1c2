"""Rows that are not what was written.

`dart.store.audit` asks whether the facts of the record agree with each other; here each row is asked whether
it is what its writer wrote.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dart.core.types import Demonstration, RolloutState, Trajectory
from dart.store.audit import Finding, looked
from dart.store.queries import IS_LIVE, ONE_DEMONSTRATION, ONE_TRAJECTORY, first, scalars, select
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
    record_of,
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


OTHER_THAN_STORED = "it is not what was stored: its checksum is another one"
LIVE_TRAJECTORIES = f"""
    SELECT trajectories.rollout_id FROM trajectories
    JOIN rollouts ON rollouts.rollout_id = trajectories.rollout_id
    JOIN groups ON groups.group_id = rollouts.group_id
    WHERE {IS_LIVE} AND rollouts.state = '{RolloutState.STORED}'
"""


def damaged_live_trajectories(connection: Connection) -> Iterator[Finding]:
    """The same of those that may still be trained."""
    yield from damaged_trajectories(connection, LIVE_TRAJECTORIES)


def damaged_trajectories(
    connection: Connection, query: str = "SELECT rollout_id FROM trajectories"
) -> Iterator[Finding]:
    """Episodes that are not what was stored, or that cannot be read back."""
    for rollout_id in scalars(connection, query):
        which = f"trajectory of rollout {rollout_id}"
        yield from looked(which, _of_trajectory, connection, which, rollout_id)


def _of_trajectory(connection: Connection, which: str, rollout_id: int) -> Iterator[Finding]:
    row = first(connection, ONE_TRAJECTORY, key=rollout_id)
    if is_damaged(row, TRAJECTORY_COLUMNS):
        yield Finding(OTHER_THAN_STORED, which)
    else:
        check_trajectory(record_of(Trajectory, row))


def damaged_demonstrations(connection: Connection) -> Iterator[Finding]:
    """Demonstrations that are not what was added, or that cannot be read back."""
    for pool_id in scalars(connection, "SELECT pool_id FROM pool"):
        which = f"demonstration {pool_id}"
        yield from looked(which, _of_demonstration, connection, which, pool_id)


def _of_demonstration(connection: Connection, which: str, pool_id: int) -> Iterator[Finding]:
    row = first(connection, ONE_DEMONSTRATION, key=pool_id)
    if is_damaged(row, DEMONSTRATION_COLUMNS):
        yield Finding(OTHER_THAN_STORED, which)
    else:
        check_demonstration(record_of(Demonstration, row))


def is_damaged(row: Row, columns: Sequence[str]) -> bool:
    """Whether a row has another checksum than when it was written."""
    return bool(row.checksum != checksum(row._asdict(), columns))


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
    if row["checksum"] != checksum(row, EVENT_COLUMNS):
        yield Finding(OTHER_THAN_STORED, which)
    else:
        json.loads(row["data"])
