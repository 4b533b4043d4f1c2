"""The books of the record, counted from sources that know nothing of each other."""

from sqlalchemy import Connection, and_, bindparam, func, or_, select

from dart.store.records import BatchState, Conservation, GroupState
from dart.store.schema import batches, counters, groups, rollouts, steps, trajectories, versions
from dart.types import RolloutState

COUNTER = select(counters.c.value).where(counters.c.name == bindparam("counter"))
STATES = select(rollouts.c.state, func.count()).group_by(rollouts.c.state)


def conservation(connection: Connection) -> Conservation:
    """Invariant one-fate in figures: the counter of issued rollouts against the states of the rows."""
    states = {row.state: row[1] for row in connection.execute(STATES)}
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


def violations(connection: Connection, staleness_bound: int | None) -> tuple[str, ...]:
    """Every contradiction in the record, in words; empty when it is sound.

    With a staleness bound K, trained steps older than K versions count too (invariant fresh).
    """
    found = [
        *books(connection),
        *trained_without_batch(connection),
        *stored_without_trajectory(connection),
        *torn_trajectories(connection),
        *version_gaps(connection),
        *broken_references(connection),
    ]
    if staleness_bound is not None:
        found += stale_steps(connection, staleness_bound)
    return tuple(found)


def books(connection: Connection) -> list[str]:
    result = conservation(connection)
    return [] if result.holds else [f"conservation is broken: {result}"]


def trained_without_batch(connection: Connection) -> list[str]:
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
        f"rollout {rollout_id} has batch {batch_id} ({state}), its group has batch {group_batch}"
        for rollout_id, batch_id, group_batch, state in connection.execute(query)
    ]


def stored_without_trajectory(connection: Connection) -> list[str]:
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
        f"rollout {name} is {state} but its trajectory says otherwise"
        for name, state in connection.execute(query)
    ]


def torn_trajectories(connection: Connection) -> list[str]:
    counted = func.count(steps.c.step)
    query = (
        select(trajectories.c.rollout_id, trajectories.c.num_steps, counted)
        .outerjoin(steps, steps.c.rollout_id == trajectories.c.rollout_id)
        .group_by(trajectories.c.rollout_id)
        .having(counted != trajectories.c.num_steps)
    )
    return [
        f"trajectory of rollout {rollout_id} has {have} of {want} steps"
        for rollout_id, want, have in connection.execute(query)
    ]


def version_gaps(connection: Connection) -> list[str]:
    """Versions are 0, 1, 2 ... and every one but 0 was made by exactly one consumed batch."""
    made = select(versions.c.version, batches.c.state).outerjoin(
        batches, batches.c.version == versions.c.version
    )
    rows = connection.execute(made.order_by(versions.c.version)).all()
    gaps = [
        f"version {version} follows {number - 1}"
        for number, (version, _) in enumerate(rows)
        if version != number
    ]
    orphans = [
        f"version {version} was made by no consumed batch"
        for version, state in rows
        if version > 0 and state != BatchState.CONSUMED
    ]
    return gaps + orphans


def broken_references(connection: Connection) -> list[str]:
    rows = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    damage = connection.exec_driver_sql("PRAGMA quick_check").scalars().all()
    return [f"row {row[1]} of table {row[0]} refers to a missing row of {row[2]}" for row in rows] + [
        f"damaged file: {line}" for line in damage if line != "ok"
    ]


def stale_steps(connection: Connection, bound: int) -> list[str]:
    """Invariant fresh: a batch that made version v was trained at v - 1; no step is older than v - 1 - K."""
    query = (
        select(trajectories.c.rollout_id, trajectories.c.oldest_version, batches.c.version)
        .join(rollouts, rollouts.c.rollout_id == trajectories.c.rollout_id)
        .join(batches, batches.c.batch_id == rollouts.c.batch_id)
        .where(trajectories.c.oldest_version < batches.c.version - 1 - bound)
    )
    return [
        f"rollout {rollout_id} of version {oldest} was trained into version {version}, bound {bound}"
        for rollout_id, oldest, version in connection.execute(query)
    ]
