"""The books of the record, counted from sources that know nothing of each other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, func, literal, or_, select

from dart.store.records import STALENESS_BOUND, BatchState, Conservation, DecisionKind, GroupState
from dart.store.schema import (
    attempts,
    batches,
    counters,
    decisions,
    group_demonstrations,
    groups,
    parked,
    pool,
    pool_steps,
    rollouts,
    steps,
    tallies,
    task_statistics,
    trajectories,
    versions,
)
from dart.types import RolloutState

COUNTER = select(counters.c.value).where(counters.c.name == bindparam("counter"))
STATES = select(rollouts.c.state, func.count()).group_by(rollouts.c.state)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the data of a run that must not be."""

    what: str
    """What contradicts what, with the values found."""
    which: str
    """Of which row or file."""
    remedy: str = "go back to a copy of the run directory, or start a new run in another one"

    def __str__(self) -> str:
        return f"{self.which}: {self.what}"


def conservation(connection: Connection) -> Conservation:
    """Invariant one-fate in figures: the counter of issued rollouts against the states of the rows."""
    return books_of(connection, {row.state: row[1] for row in connection.execute(STATES)})


def books_of(connection: Connection, states: Mapping[str, int]) -> Conservation:
    """The counter of issued rollouts beside how many are in which state."""
    return Conservation(
        issued=counter(connection, "issued"),
        trained=states.get(RolloutState.TRAINED, 0),
        dropped=states.get(RolloutState.DROPPED, 0),
        stored=states.get(RolloutState.STORED, 0),
        leased=states.get(RolloutState.LEASED, 0),
    )


def counter(connection: Connection, name: str) -> int:
    """The value of one counter."""
    return int(connection.execute(COUNTER, {"counter": name}).scalar_one())


def violations(
    connection: Connection, staleness_bound: int | None, since_version: int = 0
) -> tuple[Finding, ...]:
    """Every contradiction in the record; empty when it is sound.

    With a staleness bound K, steps older than K versions that were trained into a version after
    `since_version` count too (invariant fresh).
    """
    found = [
        *books(connection),
        *trained_without_batch(connection),
        *batches_without_version(connection),
        *stored_without_trajectory(connection),
        *torn_trajectories(connection),
        *parked_without_lease(connection),
        *miscounted_demonstrations(connection),
        *miscounted_tasks(connection),
        *miscounted_tallies(connection),
        *unreadable_decisions(connection),
        *version_gaps(connection),
        *broken_references(connection),
    ]
    if staleness_bound is not None:
        found += stale_steps(connection, staleness_bound, since_version)
    return tuple(found)


def books(connection: Connection) -> list[Finding]:
    result = conservation(connection)
    return [] if result.holds else [Finding(f"conservation is broken: {result}", "the rollouts")]


def trained_without_batch(connection: Connection) -> list[Finding]:
    """A trained rollout belongs to exactly one consumed batch, and its group to the same one."""
    query = (
        select(rollouts.c.rollout_id, rollouts.c.batch_id, groups.c.batch_id, batches.c.state)
        .join(groups, groups.c.group_id == rollouts.c.group_id)
        .outerjoin(batches, batches.c.batch_id == rollouts.c.batch_id)
        .where(
            or_(
                and_(
                    rollouts.c.state == RolloutState.TRAINED,
                    or_(
                        batches.c.state.is_distinct_from(BatchState.CONSUMED.value),
                        groups.c.batch_id.is_distinct_from(rollouts.c.batch_id),
                        groups.c.state != GroupState.CONSUMED.value,
                    ),
                ),
                and_(rollouts.c.state != RolloutState.TRAINED, rollouts.c.batch_id.is_not(None)),
            )
        )
    )
    return [
        Finding(
            f"it has batch {batch_id} ({state}), its group has batch {group_batch}", f"rollout {rollout_id}"
        )
        for rollout_id, batch_id, group_batch, state in connection.execute(query)
    ]


def stored_without_trajectory(connection: Connection) -> list[Finding]:
    query = (
        select(rollouts.c.rollout_id, rollouts.c.state)
        .outerjoin(trajectories, trajectories.c.rollout_id == rollouts.c.rollout_id)
        .where(
            or_(
                and_(
                    rollouts.c.state.in_([RolloutState.STORED, RolloutState.TRAINED]),
                    trajectories.c.rollout_id.is_(None),
                ),
                and_(rollouts.c.state == RolloutState.LEASED, trajectories.c.rollout_id.is_not(None)),
            )
        )
    )
    return [
        Finding(f"it is {state} but its trajectory says otherwise", f"rollout {name}")
        for name, state in connection.execute(query)
    ]


def torn_trajectories(connection: Connection) -> list[Finding]:
    counted = func.count(steps.c.step)
    query = (
        select(trajectories.c.rollout_id, trajectories.c.num_steps, counted)
        .outerjoin(steps, steps.c.rollout_id == trajectories.c.rollout_id)
        .group_by(trajectories.c.rollout_id)
        .having(counted != trajectories.c.num_steps)
    )
    return [
        Finding(f"its trajectory has {have} of {want} steps", f"rollout {rollout_id}")
        for rollout_id, want, have in connection.execute(query)
    ]


def version_gaps(connection: Connection) -> list[Finding]:
    """Versions are 0, 1, 2 ... and every one but 0 was made by exactly one consumed batch."""
    made = select(versions.c.version, batches.c.state).outerjoin(
        batches, batches.c.version == versions.c.version
    )
    rows = connection.execute(made.order_by(versions.c.version)).all()
    gaps = [
        Finding(f"it follows {number - 1}", f"version {version}")
        for number, (version, _) in enumerate(rows)
        if version != number
    ]
    orphans = [
        Finding("it was made by no consumed batch", f"version {version}")
        for version, state in rows
        if version > 0 and state != BatchState.CONSUMED
    ]
    return gaps + orphans


def broken_references(connection: Connection) -> list[Finding]:
    rows = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    damage = connection.exec_driver_sql("PRAGMA quick_check").scalars().all()
    return [
        Finding(f"it refers to a missing row of {row[2]}", f"row {row[1]} of table {row[0]}") for row in rows
    ] + [Finding(line, "the database file") for line in damage if line != "ok"]


def stale_steps(connection: Connection, bound: int, since_version: int) -> list[Finding]:
    """Invariant fresh: a batch that made version v was trained at v - 1; no step is older than v - 1 - K.

    K is the one that held then, recorded with the version; `bound` where none is.
    """
    held = func.coalesce(func.json_extract(versions.c.metrics, f"$.{STALENESS_BOUND}"), bound)
    query = (
        select(trajectories.c.rollout_id, trajectories.c.oldest_version, batches.c.version, held)
        .join(rollouts, rollouts.c.rollout_id == trajectories.c.rollout_id)
        .join(batches, batches.c.batch_id == rollouts.c.batch_id)
        .join(versions, versions.c.version == batches.c.version)
        .where(
            trajectories.c.oldest_version < batches.c.version - 1 - held, batches.c.version > since_version
        )
    )
    return [
        Finding(f"played at version {oldest}, trained into {version}, bound {k:g}", f"rollout {rollout_id}")
        for rollout_id, oldest, version, k in connection.execute(query)
    ]


def batches_without_version(connection: Connection) -> list[Finding]:
    """Exactly the consumed batches made a version, and groups are batched exactly while a batch is leased."""
    unmade = select(batches.c.batch_id, batches.c.state, batches.c.version).where(
        (batches.c.state == BatchState.CONSUMED) != batches.c.version.is_not(None)
    )
    stray = (
        select(groups.c.group_id, groups.c.state, batches.c.state)
        .outerjoin(batches, batches.c.batch_id == groups.c.batch_id)
        .where(
            (groups.c.state == GroupState.BATCHED)
            != (func.coalesce(batches.c.state, "") == BatchState.LEASED)
        )
    )
    return [
        Finding(f"it is {state} and made version {version}", f"batch {batch_id}")
        for batch_id, state, version in connection.execute(unmade)
    ] + [
        Finding(f"it is {state}, its batch is {batch_state}", f"group {group_id}")
        for group_id, state, batch_state in connection.execute(stray)
    ]


def parked_without_lease(connection: Connection) -> list[Finding]:
    """Steps are kept only of rollouts that somebody will take up."""
    query = (
        select(parked.c.rollout_id, rollouts.c.state, rollouts.c.resumes)
        .join(rollouts, rollouts.c.rollout_id == parked.c.rollout_id)
        .where(or_(rollouts.c.state != RolloutState.LEASED, rollouts.c.resumes < 1))
    )
    return [
        Finding(f"it has parked steps, is {state} and was parked {resumes} times", f"rollout {rollout_id}")
        for rollout_id, state, resumes in connection.execute(query)
    ]


def miscounted_demonstrations(connection: Connection) -> list[Finding]:
    """A use is a group that has it, of its own task; and no step of it is missing."""
    used = select(func.count()).where(group_demonstrations.c.pool_id == pool.c.pool_id).scalar_subquery()
    kept = select(func.count()).where(pool_steps.c.pool_id == pool.c.pool_id).scalar_subquery()
    counts = select(pool.c.pool_id, pool.c.uses, used, pool.c.num_steps, kept)
    miscounted = counts.where(or_(pool.c.uses != used, pool.c.num_steps != kept))
    strangers = (
        select(pool.c.pool_id, pool.c.task_id, groups.c.group_id, groups.c.task_id)
        .join(group_demonstrations, group_demonstrations.c.pool_id == pool.c.pool_id)
        .join(groups, groups.c.group_id == group_demonstrations.c.group_id)
        .where(groups.c.task_id != pool.c.task_id)
    )
    return [
        Finding(
            f"it counts {uses} uses and {steps_wanted} steps, there are {found} uses and {steps_found} steps",
            f"demonstration {pool_id}",
        )
        for pool_id, uses, found, steps_wanted, steps_found in connection.execute(miscounted)
    ] + [
        Finding(f"it is of {task} and in group {group_id} of {other}", f"demonstration {pool_id}")
        for pool_id, task, group_id, other in connection.execute(strangers)
    ]


def miscounted_tasks(connection: Connection) -> list[Finding]:
    """The aggregates by task against a recount of what they count."""
    opened = select(groups.c.task_id, func.count()).group_by(groups.c.task_id)
    longest = func.max(case((trajectories.c.reward > 0.0, trajectories.c.num_steps)))
    steps_played = func.sum(trajectories.c.num_steps)
    played = select(trajectories.c.task_id, func.count(), steps_played, longest).group_by(
        trajectories.c.task_id
    )
    groups_of: dict[str, int] = {row.task_id: row[1] for row in connection.execute(opened)}
    played_of = {task: tuple(figures) for task, *figures in connection.execute(played)}
    kept_of = {row.task_id: tuple(row)[1:] for row in connection.execute(select(task_statistics))}
    counted_of = {
        task: (groups_of.get(task, 0), *played_of.get(task, (0, 0, None)))
        for task in sorted({*kept_of, *groups_of, *played_of})
    }
    return [
        Finding(
            f"kept are (groups, finished, steps, longest success) {kept_of.get(task)}, counted {counted}",
            f"task {task}",
        )
        for task, counted in counted_of.items()
        if kept_of.get(task) != counted
    ]


TALLIED = {
    "state": (literal(""), rollouts.c.state),
    "drop": (literal(""), rollouts.c.drop_reason),
    "outcome": (literal(""), trajectories.c.outcome),
    "fault": (literal(""), attempts.c.fault_kind),
    "group_drop": (groups.c.task_id, groups.c.drop_reason),
}


def miscounted_tallies(connection: Connection) -> list[Finding]:
    """What was counted as it happened against a recount of the rows."""
    return [
        Finding(f"kept are {kept.get(key, 0)}, counted {counted.get(key, 0)}", f"tally {what} of {key[1]!r}")
        for what, (task, name) in TALLIED.items()
        if (kept := kept_tally(connection, what)) != (counted := recount(connection, task, name))
        for key in sorted({*kept, *counted})
        if kept.get(key, 0) != counted.get(key, 0)
    ]


def kept_tally(connection: Connection, what: str) -> dict[tuple[str, str], int]:
    query = select(tallies).where(tallies.c.what == what, tallies.c.value != 0)
    return {(row.task_id, row.name): row.value for row in connection.execute(query)}


def recount(connection: Connection, task: Any, name: Any) -> dict[tuple[str, str], int]:
    query = select(task, name, func.count()).where(name.is_not(None)).group_by(task, name)
    return {(row[0], row[1]): row[2] for row in connection.execute(query)}


def unreadable_decisions(connection: Connection) -> list[Finding]:
    """Every decision has a reason, and says what a restarted curator can read."""
    return [
        Finding(
            f"{row.kind} of {row.task_id} from {row.before!r} to {row.after!r} because {row.reason!r} "
            "makes no sense",
            f"decision {row.decision_id}",
        )
        for row in connection.execute(select(decisions))
        if not is_well_formed(row.kind, row.after, row.reason)
    ]


def is_well_formed(kind: str, after: str, reason: str) -> bool:
    """Whether a decision can be read back: a positive number, or for a quarantine a time or nothing."""
    if not reason:
        return False
    match kind:
        case DecisionKind.ROLLOUTS | DecisionKind.STEP_CAP:
            return after.isdecimal() and int(after) > 0
        case DecisionKind.QUARANTINE:
            return after == "" or is_number(after)
    return False


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
