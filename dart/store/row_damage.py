"""Finds rows of the record that are not what was written.

`dart.store.record_rules` checks whether rows agree with each other. This module checks each row by itself: it
compares the row's checksum, and reads the row with the steps that it names.

The rows are read in short transactions, and the steps between them. SQLite's write-ahead log grows as long as
a transaction reads, and a check of all steps may take hours.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from dart.core.types import Demonstration, RolloutState, Step, Trajectory
from dart.store.blobs import BlobStore
from dart.store.database import Connection
from dart.store.queries import (
    IN_POOL,
    IS_LIVE,
    IS_NEEDED,
    ONE_EVALUATION_PLAY,
    ONE_SCREEN,
    ONE_TRAJECTORY,
    scalars,
    select,
)
from dart.store.record_rules import Finding, findings_of
from dart.store.serialization import (
    DEMONSTRATION_COLUMNS,
    EVALUATION_PLAY_COLUMNS,
    EVENT_COLUMNS,
    PARKED_COLUMNS,
    SCREEN_COLUMNS,
    TRAJECTORY_COLUMNS,
    Row,
    check_demonstration,
    check_steps,
    check_trajectory,
    checksum,
    record_of,
    unpack_screen,
    unpack_steps,
)

Reading = Callable[[], AbstractContextManager[Connection]]
"""Begins a transaction that reads the record."""

PAGE_ROWS = 200
"""Number of rows that are read in one transaction."""

BEFORE_ALL = -(2**63)
"""A key below every key of a table."""


@dataclass(frozen=True, slots=True)
class Content:
    """One kind of rows that have a checksum."""

    name: str
    """What a finding calls such a row, before its key."""
    keys: str
    """Query for the keys of the next rows, those above `:after`: at most `:limit`, in ascending order."""
    row: str
    """Query for one row."""
    columns: Sequence[str]
    """The columns from which the checksum is computed."""
    read: Callable[[Row, tuple[Step, ...]], object]
    """Reads a row and its steps as Python objects, and checks them. Errors of `record_rules.UNREADABLE` that
    it raises become findings."""
    has_steps: bool = True


def _keys_of(table: str, key: str) -> str:
    return f"SELECT {key} FROM {table} WHERE {key} > :after ORDER BY {key} LIMIT :limit"


TRAJECTORIES = Content(
    "trajectory of rollout",
    _keys_of("trajectories", "rollout_id"),
    ONE_TRAJECTORY,
    TRAJECTORY_COLUMNS,
    lambda row, steps: check_trajectory(record_of(Trajectory, row, steps=steps)),
)
TRAINABLE = replace(
    TRAJECTORIES,
    keys=f"""
        SELECT trajectories.rollout_id FROM trajectories
        JOIN rollouts ON rollouts.rollout_id = trajectories.rollout_id
        JOIN groups ON groups.group_id = rollouts.group_id
        WHERE {IS_LIVE} AND rollouts.state = '{RolloutState.STORED}' AND trajectories.rollout_id > :after
        ORDER BY trajectories.rollout_id LIMIT :limit
    """,
)
DEMONSTRATIONS = Content(
    "demonstration",
    _keys_of("pool", "pool_id"),
    IN_POOL,
    DEMONSTRATION_COLUMNS,
    lambda row, steps: check_demonstration(record_of(Demonstration, row, steps=steps)),
)
NEEDED_DEMONSTRATIONS = replace(
    DEMONSTRATIONS,
    keys=f"SELECT pool_id FROM pool WHERE {IS_NEEDED} AND pool_id > :after ORDER BY pool_id LIMIT :limit",
)
PARKED = Content(
    "parked episode of rollout",
    _keys_of("parked", "rollout_id"),
    "SELECT * FROM parked WHERE rollout_id = :key",
    PARKED_COLUMNS,
    lambda row, steps: check_steps("parked steps", steps),
)
EVALUATION_EPISODES = Content(
    "evaluation episode",
    _keys_of("evaluation_episodes", "evaluation_id"),
    ONE_EVALUATION_PLAY,
    EVALUATION_PLAY_COLUMNS,
    lambda row, steps: check_steps("steps", steps),
)
EVENTS = Content(
    "event",
    _keys_of("events", "event_id"),
    "SELECT * FROM events WHERE event_id = :key",
    EVENT_COLUMNS,
    lambda row, steps: json.loads(row.data),
    has_steps=False,
)
SCREENS = Content(
    "explored screen",
    _keys_of("screens", "screen_id"),
    ONE_SCREEN,
    SCREEN_COLUMNS,
    lambda row, steps: unpack_screen(row.view),
    has_steps=False,
)


def damaged_rows(reading: Reading, steps: BlobStore, *, full: bool) -> list[Finding]:
    """A finding for each row that is not what was written, as far as checksums can show.

    full   check every row; else only episodes that may still be trained or replayed
    """
    contents = (
        (EVENTS, TRAJECTORIES, EVALUATION_EPISODES, SCREENS, DEMONSTRATIONS)
        if full
        else (TRAINABLE, NEEDED_DEMONSTRATIONS)
    )
    found: list[Finding] = []
    for content in (*contents, PARKED):
        found += findings_of(f"the rows of each {content.name}", damaged, reading, content, steps)
    return found


def damaged(reading: Reading, content: Content, steps: BlobStore) -> Iterator[Finding]:
    """A finding for each row whose checksum is wrong, or that cannot be read back."""
    keys = [BEFORE_ALL]
    while keys:
        rows: dict[str, Row] = {}
        unread: list[Finding] = []
        with reading() as connection:
            keys = scalars(connection, content.keys, after=keys[-1], limit=PAGE_ROWS)
            for key in keys:
                which = f"{content.name} {key}"
                unread += findings_of(which, _read_row, connection, content, key, which, rows)
        yield from unread
        for which, row in rows.items():
            yield from findings_of(which, _damage_of, content, row, steps, which)


def _read_row(
    connection: Connection, content: Content, key: int, which: str, rows: dict[str, Row]
) -> Iterable[Finding]:
    (rows[which],) = select(connection, content.row, key=key)
    return ()


def _damage_of(content: Content, row: Row, steps: BlobStore, which: str) -> Iterable[Finding]:
    if row.checksum != checksum(row._asdict(), content.columns):
        return [Finding("it is not what was stored: its checksum is wrong", which)]
    content.read(row, unpack_steps(steps.read(row.steps_sha256)) if content.has_steps else ())
    return []
