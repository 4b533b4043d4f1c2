"""Finds rows of the record that are not what was written.

`dart.store.record_rules` checks whether rows agree with each other. This module checks each row by itself: it
compares the row's checksum, and reads the row with the steps that it names.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dart.core.types import Demonstration, RolloutState, Step, Trajectory
from dart.store.blobs import BlobStore
from dart.store.database import Connection
from dart.store.queries import IN_POOL, IS_LIVE, ONE_SCREEN, ONE_TRAJECTORY, scalars, select
from dart.store.record_rules import Finding, findings_of
from dart.store.serialization import (
    DEMONSTRATION_COLUMNS,
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


@dataclass(frozen=True, slots=True)
class Content:
    """One kind of rows that have a checksum."""

    name: str
    """What a finding calls such a row, before its key."""
    keys: str
    """Query for the keys of the rows."""
    row: str
    """Query for one row."""
    columns: Sequence[str]
    """The columns from which the checksum is computed."""
    read: Callable[[Row, tuple[Step, ...]], object]
    """Reads a row and its steps as Python objects, and checks them. Errors of `record_rules.UNREADABLE` that
    it raises become findings."""
    has_steps: bool = True


TRAJECTORIES = Content(
    "trajectory of rollout",
    "SELECT rollout_id FROM trajectories ORDER BY rollout_id",
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
        WHERE {IS_LIVE} AND rollouts.state = '{RolloutState.STORED}'
        ORDER BY trajectories.rollout_id
    """,
)
DEMONSTRATIONS = Content(
    "demonstration",
    "SELECT pool_id FROM pool ORDER BY pool_id",
    IN_POOL,
    DEMONSTRATION_COLUMNS,
    lambda row, steps: check_demonstration(record_of(Demonstration, row, steps=steps)),
)
PARKED = Content(
    "parked episode of rollout",
    "SELECT rollout_id FROM parked ORDER BY rollout_id",
    "SELECT * FROM parked WHERE rollout_id = :key",
    PARKED_COLUMNS,
    lambda row, steps: check_steps("parked steps", steps),
)
EVENTS = Content(
    "event",
    "SELECT event_id FROM events",
    "SELECT * FROM events WHERE event_id = :key",
    EVENT_COLUMNS,
    lambda row, steps: json.loads(row.data),
    has_steps=False,
)
SCREENS = Content(
    "explored screen",
    "SELECT screen_id FROM screens ORDER BY screen_id",
    ONE_SCREEN,
    SCREEN_COLUMNS,
    lambda row, steps: unpack_screen(row.view),
    has_steps=False,
)


def damaged_rows(connection: Connection, steps: BlobStore, *, full: bool) -> list[Finding]:
    """A finding for each row that is not what was written, as far as checksums can show.

    full   check every row; else only episodes that may still be trained or replayed
    """
    contents = (EVENTS, TRAJECTORIES, SCREENS) if full else (TRAINABLE,)
    found: list[Finding] = []
    for content in (*contents, DEMONSTRATIONS, PARKED):
        found += findings_of(f"the rows of each {content.name}", damaged, connection, content, steps)
    return found


def damaged(connection: Connection, content: Content, steps: BlobStore) -> Iterator[Finding]:
    """A finding for each row whose checksum is wrong, or that cannot be read back."""
    for key in scalars(connection, content.keys):
        which = f"{content.name} {key}"
        yield from findings_of(which, _damage_of, connection, content, steps, key, which)


def _damage_of(
    connection: Connection, content: Content, steps: BlobStore, key: int, which: str
) -> Iterable[Finding]:
    (row,) = select(connection, content.row, key=key)
    if row.checksum != checksum(row._asdict(), content.columns):
        return [Finding("it is not what was stored: its checksum is wrong", which)]
    content.read(row, unpack_steps(steps.read(row.steps_sha256)) if content.has_steps else ())
    return []
