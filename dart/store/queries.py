"""Statements and row readers shared by the reader and the writer.

Statements are built once, at import, so that a call pays for compiling none of them.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select

from dart.store.records import (
    Batch,
    BatchState,
    Evaluation,
    Event,
    GroupRecord,
    GroupState,
    Phase,
    RolloutRecord,
    TaskStatistics,
    Version,
)
from dart.store.schema import batches, events, groups, rollouts, steps, trajectories, versions
from dart.types import RolloutState

LIVE = (GroupState.OPEN.value, GroupState.BATCHED.value)

OPEN_BATCH = select(batches.c.batch_id).where(batches.c.state == BatchState.LEASED.value)
BATCH_GROUPS = (
    select(groups.c.group_id).where(groups.c.batch_id == bindparam("batch_id")).order_by(groups.c.group_id)
)
NEWEST_VERSION = select(versions).order_by(versions.c.version.desc()).limit(1)
LIVE_GROUPS = select(groups).where(groups.c.state.in_(LIVE)).order_by(groups.c.group_id)
ROLLOUTS = (
    select(rollouts, trajectories.c.reward, trajectories.c.oldest_version)
    .outerjoin(trajectories, trajectories.c.rollout_id == rollouts.c.rollout_id)
    .order_by(rollouts.c.rollout_id)
)
ONE_ROLLOUT = ROLLOUTS.where(rollouts.c.rollout_id == bindparam("key"))
ROLLOUTS_OF_GROUP = ROLLOUTS.where(rollouts.c.group_id == bindparam("key"))
LIVE_ROLLOUTS = ROLLOUTS.join(groups, groups.c.group_id == rollouts.c.group_id).where(
    groups.c.state.in_(LIVE)
)
ONE_GROUP = select(groups).where(groups.c.group_id == bindparam("key"))
GROUP_ROWS = select(groups).where(groups.c.group_id.in_(bindparam("group_ids", expanding=True)))
KEPT = (RolloutState.STORED.value, RolloutState.TRAINED.value)
KEPT_TRAJECTORIES = (
    select(trajectories)
    .join(rollouts, rollouts.c.rollout_id == trajectories.c.rollout_id)
    .where(trajectories.c.group_id.in_(bindparam("group_ids", expanding=True)), rollouts.c.state.in_(KEPT))
    .order_by(trajectories.c.rollout_id)
)
KEPT_STEPS = (
    select(steps)
    .where(steps.c.rollout_id.in_(bindparam("rollout_ids", expanding=True)))
    .order_by(steps.c.rollout_id, steps.c.step)
)
EVENTS_SINCE = (
    select(events)
    .where(events.c.event_id > bindparam("since_id"))
    .order_by(events.c.event_id)
    .limit(bindparam("limit"))
)
RECENT_SUCCESS = select(func.avg(trajectories.c.reward)).where(
    trajectories.c.rollout_id.in_(
        select(trajectories.c.rollout_id)
        .order_by(trajectories.c.stored_unix_s.desc())
        .limit(bindparam("last"))
    )
)
STEPS_SINCE = select(func.coalesce(func.sum(trajectories.c.num_steps), 0)).where(
    trajectories.c.stored_unix_s > bindparam("since_unix_s")
)

GROUPS_OPENED = (
    select(groups.c.task_id, func.count().label("opened"))
    .group_by(groups.c.task_id)
    .order_by(groups.c.task_id)
)
LONGEST_SUCCESS = (
    select(trajectories.c.task_id, func.max(trajectories.c.num_steps).label("longest"))
    .where(trajectories.c.reward > 0.0)
    .group_by(trajectories.c.task_id)
)
NEWEST_FIRST = (trajectories.c.stored_unix_s.desc(), trajectories.c.rollout_id.desc())
AGED = select(
    trajectories.c.task_id,
    trajectories.c.reward,
    func.row_number().over(partition_by=trajectories.c.task_id, order_by=NEWEST_FIRST).label("age"),
).subquery()
RECENT_REWARDS = (
    select(AGED.c.task_id, AGED.c.reward).where(AGED.c.age <= bindparam("last")).order_by(AGED.c.age.desc())
)


def scalar(connection: Connection, query: Any) -> int:
    return int(connection.execute(query).scalar_one())


def tally(connection: Connection, column: Any) -> dict[str, int]:
    """How many rows have each value of a column; null is left out."""
    query = select(column, func.count()).where(column.is_not(None)).group_by(column).order_by(column)
    return {row[0]: row[1] for row in connection.execute(query)}


def newest_version(connection: Connection) -> Version | None:
    row = connection.execute(NEWEST_VERSION).first()
    return None if row is None else read_version(row)


def read_version(row: Row[Any]) -> Version:
    return Version(
        version=row.version,
        checkpoint=row.checkpoint,
        metrics=json.loads(row.metrics),
        created_unix_s=row.created_unix_s,
    )


def read_evaluation(row: Row[Any]) -> Evaluation:
    return Evaluation(
        phase=Phase(row.phase),
        policy_version=row.policy_version,
        task_id=row.task_id,
        seed=row.seed,
        reward=row.reward,
    )


def read_event(row: Row[Any]) -> Event:
    return Event(
        event_id=row.event_id,
        unix_s=row.unix_s,
        kind=row.kind,
        subject=row.subject,
        data=json.loads(row.data),
    )


def leased_batch(connection: Connection) -> Batch | None:
    batch_id = connection.execute(OPEN_BATCH).scalar()
    if batch_id is None:
        return None
    group_ids = connection.execute(BATCH_GROUPS, {"batch_id": batch_id}).scalars()
    return Batch(batch_id=batch_id, group_ids=tuple(group_ids))


def live_groups(connection: Connection) -> tuple[GroupRecord, ...]:
    members: defaultdict[int, list[RolloutRecord]] = defaultdict(list)
    for row in connection.execute(LIVE_ROLLOUTS):
        members[row.group_id].append(read_rollout(row))
    return tuple(read_group(row, members[row.group_id]) for row in connection.execute(LIVE_GROUPS))


def read_group(row: Row[Any], members: Sequence[RolloutRecord]) -> GroupRecord:
    return GroupRecord(
        group_id=row.group_id,
        task_id=row.task_id,
        seed=row.seed,
        rollouts_wanted=row.rollouts_wanted,
        step_cap=row.step_cap,
        policy_version=row.policy_version,
        batch_id=row.batch_id,
        rollouts=tuple(members),
    )


def read_rollout(row: Row[Any]) -> RolloutRecord:
    return RolloutRecord(
        rollout_id=row.rollout_id,
        group_id=row.group_id,
        state=RolloutState(row.state),
        environment=row.environment,
        attempt=row.attempt,
        fence=row.fence,
        deadline_unix_s=row.deadline_unix_s,
        reward=row.reward,
        oldest_version=row.oldest_version,
    )


def trajectories_by_group(
    connection: Connection, group_ids: Sequence[int]
) -> defaultdict[int, list[tuple[Row[Any], list[Row[Any]]]]]:
    rows = connection.execute(KEPT_TRAJECTORIES, {"group_ids": group_ids}).all()
    of_rollout: defaultdict[int, list[Row[Any]]] = defaultdict(list)
    for step in connection.execute(KEPT_STEPS, {"rollout_ids": [row.rollout_id for row in rows]}):
        of_rollout[step.rollout_id].append(step)
    by_group: defaultdict[int, list[tuple[Row[Any], list[Row[Any]]]]] = defaultdict(list)
    for row in rows:
        by_group[row.group_id].append((row, of_rollout[row.rollout_id]))
    return by_group


def task_statistics(connection: Connection, recent_rewards: int) -> tuple[TaskStatistics, ...]:
    rewards = recent_rewards_by_task(connection, recent_rewards)
    longest = {row.task_id: row.longest for row in connection.execute(LONGEST_SUCCESS)}
    return tuple(
        TaskStatistics(
            task_id=row.task_id,
            groups_opened=row.opened,
            recent_rewards=tuple(rewards[row.task_id]),
            longest_success_steps=longest.get(row.task_id),
        )
        for row in connection.execute(GROUPS_OPENED)
    )


def recent_rewards_by_task(connection: Connection, last: int) -> defaultdict[str, list[float]]:
    """The last rewards of every task, newest last."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in connection.execute(RECENT_REWARDS, {"last": last}):
        found[row.task_id].append(row.reward)
    return found
