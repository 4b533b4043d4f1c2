"""Statements and row readers shared by the reader and the writer.

Statements are built once, at import, so that a call pays for compiling none of them.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select, union, union_all

from dart.store.records import (
    Batch,
    BatchState,
    DecisionKind,
    DemonstrationSummary,
    Evaluation,
    Event,
    GroupRecord,
    GroupState,
    Phase,
    RolloutRecord,
    TaskDecision,
    TaskStatistics,
    Version,
)
from dart.store.rows import read_demonstration, unpack_steps
from dart.store.schema import (
    batches,
    decisions,
    events,
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
from dart.types import Demonstration, RolloutState

LIVE = (GroupState.OPEN.value, GroupState.BATCHED.value)

OPEN_BATCH = select(batches).where(batches.c.state == BatchState.LEASED.value)
BATCH_GROUPS = (
    select(groups.c.group_id).where(groups.c.batch_id == bindparam("batch_id")).order_by(groups.c.group_id)
)
NEWEST_VERSION = select(versions).order_by(versions.c.version.desc()).limit(1)
LIVE_GROUPS = select(groups).where(groups.c.state.in_(LIVE)).order_by(groups.c.group_id)
ROLLOUTS = (
    select(
        rollouts,
        trajectories.c.reward,
        trajectories.c.num_steps,
        parked.c.num_steps.label("parked_steps"),
        func.coalesce(trajectories.c.oldest_version, parked.c.oldest_version).label("oldest_version"),
    )
    .outerjoin(trajectories, trajectories.c.rollout_id == rollouts.c.rollout_id)
    .outerjoin(parked, parked.c.rollout_id == rollouts.c.rollout_id)
    .order_by(rollouts.c.rollout_id)
)
ONE_ROLLOUT = ROLLOUTS.where(rollouts.c.rollout_id == bindparam("key"))
ROLLOUTS_OF_GROUP = ROLLOUTS.where(rollouts.c.group_id == bindparam("key"))
LIVE_ROLLOUTS = ROLLOUTS.join(groups, groups.c.group_id == rollouts.c.group_id).where(
    groups.c.state.in_(LIVE)
)
ONE_GROUP = select(groups).where(groups.c.group_id == bindparam("key"))
GROUP_ROWS = select(groups).where(groups.c.group_id.in_(bindparam("group_ids", expanding=True)))
NEWER = decisions.alias("newer")
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
EVENTS_NEWEST_FIRST = (
    select(events)
    .where(events.c.unix_s >= bindparam("since_unix_s"))
    .order_by(events.c.event_id.desc())
    .limit(bindparam("limit"))
)
NEWEST_EVENT = (
    select(events).where(events.c.kind == bindparam("kind")).order_by(events.c.event_id.desc()).limit(1)
)
TALLY = (
    select(tallies)
    .where(tallies.c.what == bindparam("what"), tallies.c.value > 0)
    .order_by(tallies.c.task_id, tallies.c.name)
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

FINISHED = select(func.coalesce(func.sum(task_statistics.c.finished), 0))
STEPS_PLAYED = select(func.coalesce(func.sum(task_statistics.c.steps_played), 0))
TASKS = select(task_statistics).order_by(task_statistics.c.task_id)
LATEST_OF_TASK = (
    select(trajectories.c.rollout_id)
    .where(trajectories.c.task_id == task_statistics.c.task_id)
    .order_by(trajectories.c.stored_unix_s.desc(), trajectories.c.rollout_id.desc())
    .limit(bindparam("last"))
    .correlate(task_statistics)
)
RECENT = trajectories.alias("recent")
RECENT_REWARDS = (
    select(RECENT.c.task_id, RECENT.c.reward)
    .select_from(task_statistics.join(RECENT, RECENT.c.rollout_id.in_(LATEST_OF_TASK)))
    .order_by(RECENT.c.stored_unix_s, RECENT.c.rollout_id)
)
NEWEST_DECISIONS = union_all(
    *(
        select(decisions)
        .select_from(task_statistics)
        .join(
            decisions,
            decisions.c.decision_id
            == select(func.max(NEWER.c.decision_id))
            .where(NEWER.c.task_id == task_statistics.c.task_id, NEWER.c.kind == kind.value)
            .correlate(task_statistics)
            .scalar_subquery(),
        )
        for kind in DecisionKind
    )
)
DECISIONS = select(decisions).order_by(decisions.c.decision_id.desc()).limit(bindparam("limit"))
DECISIONS_OF_TASK = DECISIONS.where(decisions.c.task_id == bindparam("task"))
DEMONSTRATIONS = select(pool).order_by(pool.c.pool_id)
DEMONSTRATIONS_OF_TASK = DEMONSTRATIONS.where(pool.c.task_id == bindparam("task"))
ONE_DEMONSTRATION = select(pool).where(pool.c.pool_id == bindparam("key"))
POOL_STEPS = (
    select(pool_steps)
    .where(pool_steps.c.pool_id.in_(bindparam("pool_ids", expanding=True)))
    .order_by(pool_steps.c.pool_id, pool_steps.c.step)
)
INJECTED = (
    select(group_demonstrations.c.group_id, pool)
    .join(pool, pool.c.pool_id == group_demonstrations.c.pool_id)
    .where(group_demonstrations.c.group_id.in_(bindparam("group_ids", expanding=True)))
    .order_by(group_demonstrations.c.group_id, pool.c.pool_id)
)
INJECTED_LIVE = (
    select(group_demonstrations.c.group_id, group_demonstrations.c.pool_id)
    .join(groups, groups.c.group_id == group_demonstrations.c.group_id)
    .where(groups.c.state.in_(LIVE))
    .order_by(group_demonstrations.c.pool_id)
)
PARKED_STEPS = select(parked.c.steps).where(parked.c.rollout_id == bindparam("key"))
SCREENSHOTS_OF_LIVE_GROUPS = (
    select(steps.c.screenshot_sha256)
    .join(rollouts, rollouts.c.rollout_id == steps.c.rollout_id)
    .join(groups, groups.c.group_id == rollouts.c.group_id)
    .where(groups.c.state.in_(LIVE), rollouts.c.state == RolloutState.STORED.value)
)
SCREENSHOTS_OF_POOL = (
    select(pool_steps.c.screenshot_sha256)
    .join(pool, pool.c.pool_id == pool_steps.c.pool_id)
    .where(pool.c.dropped.is_(False))
)
LATEST_TRAJECTORIES = (
    select(trajectories)
    .where(trajectories.c.task_id == bindparam("task"))
    .order_by(trajectories.c.stored_unix_s.desc(), trajectories.c.rollout_id.desc())
    .limit(bindparam("limit"))
)


def scalar(connection: Connection, query: Any) -> int:
    return int(connection.execute(query).scalar_one())


def tally(connection: Connection, what: str) -> dict[str, int]:
    """How many rows say what, as counted when they began to; `what` as in the table `tallies`."""
    return {row.name: row.value for row in connection.execute(TALLY, {"what": what})}


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
    row = connection.execute(OPEN_BATCH).first()
    return None if row is None else read_batch(connection, row)


def read_batch(connection: Connection, row: Row[Any]) -> Batch:
    group_ids = connection.execute(BATCH_GROUPS, {"batch_id": row.batch_id}).scalars()
    return Batch(
        batch_id=row.batch_id,
        group_ids=tuple(group_ids),
        fence=row.fence,
        deadline_unix_s=row.deadline_unix_s,
    )


def live_groups(connection: Connection) -> tuple[GroupRecord, ...]:
    members: defaultdict[int, list[RolloutRecord]] = defaultdict(list)
    for row in connection.execute(LIVE_ROLLOUTS):
        members[row.group_id].append(read_rollout(row))
    injected: defaultdict[int, list[int]] = defaultdict(list)
    for row in connection.execute(INJECTED_LIVE):
        injected[row.group_id].append(row.pool_id)
    return tuple(
        read_group(row, members[row.group_id], injected[row.group_id])
        for row in connection.execute(LIVE_GROUPS)
    )


def one_group(connection: Connection, row: Row[Any]) -> GroupRecord:
    members = connection.execute(ROLLOUTS_OF_GROUP, {"key": row.group_id})
    injected = connection.execute(INJECTED, {"group_ids": [row.group_id]})
    return read_group(
        row, [read_rollout(member) for member in members], [found.pool_id for found in injected]
    )


def read_group(row: Row[Any], members: Sequence[RolloutRecord], injected: Sequence[int]) -> GroupRecord:
    return GroupRecord(
        group_id=row.group_id,
        task_id=row.task_id,
        seed=row.seed,
        rollouts_wanted=row.rollouts_wanted,
        step_cap=row.step_cap,
        policy_version=row.policy_version,
        batch_id=row.batch_id,
        rollouts=tuple(members),
        probes_length=row.probes_length,
        injected=tuple(injected),
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
        num_steps=row.num_steps,
        parked_steps=row.parked_steps or 0,
        resumes=row.resumes,
    )


def trajectories_by_group(
    connection: Connection, group_ids: Sequence[int]
) -> defaultdict[int, list[tuple[Row[Any], list[Row[Any]]]]]:
    rows = connection.execute(KEPT_TRAJECTORIES, {"group_ids": group_ids}).all()
    of_rollout = steps_by_rollout(connection, rows)
    by_group: defaultdict[int, list[tuple[Row[Any], list[Row[Any]]]]] = defaultdict(list)
    for row in rows:
        by_group[row.group_id].append((row, of_rollout[row.rollout_id]))
    return by_group


def steps_by_rollout(connection: Connection, rows: Sequence[Row[Any]]) -> defaultdict[int, list[Row[Any]]]:
    """The rows of `steps` of rows of `trajectories`, in order."""
    of_rollout: defaultdict[int, list[Row[Any]]] = defaultdict(list)
    for step in connection.execute(KEPT_STEPS, {"rollout_ids": [row.rollout_id for row in rows]}):
        of_rollout[step.rollout_id].append(step)
    return of_rollout


def statistics_of_tasks(connection: Connection, recent_rewards: int) -> tuple[TaskStatistics, ...]:
    """What is known about every task; no query of it looks at more trajectories than it returns."""
    rewards = recent_rewards_by_task(connection, recent_rewards)
    decided: defaultdict[str, dict[DecisionKind, TaskDecision]] = defaultdict(dict)
    for row in connection.execute(NEWEST_DECISIONS):
        decided[row.task_id][DecisionKind(row.kind)] = read_decision(row)
    held: defaultdict[str, list[DemonstrationSummary]] = defaultdict(list)
    for row in connection.execute(DEMONSTRATIONS):
        held[row.task_id].append(read_summary(row))
    return tuple(
        TaskStatistics(
            task_id=row.task_id,
            groups_opened=row.groups_opened,
            recent_rewards=tuple(rewards[row.task_id]),
            longest_success_steps=row.longest_success_steps,
            decided=decided[row.task_id],
            demonstrations=tuple(held[row.task_id]),
        )
        for row in connection.execute(TASKS)
    )


def recent_rewards_by_task(connection: Connection, last: int) -> defaultdict[str, list[float]]:
    """The last rewards of every task, newest last."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in connection.execute(RECENT_REWARDS, {"last": last}):
        found[row.task_id].append(row.reward)
    return found


def read_decision(row: Row[Any]) -> TaskDecision:
    return TaskDecision(
        task_id=row.task_id,
        kind=DecisionKind(row.kind),
        before=row.before,
        after=row.after,
        reason=row.reason,
        policy_version=row.policy_version,
        unix_s=row.unix_s,
    )


def read_summary(row: Row[Any]) -> DemonstrationSummary:
    return DemonstrationSummary(
        pool_id=row.pool_id,
        task_id=row.task_id,
        seed=row.seed,
        origin=row.origin,
        num_steps=row.num_steps,
        uses=row.uses,
        dropped=row.dropped,
    )


def read_demonstrations(connection: Connection, rows: Sequence[Row[Any]]) -> dict[int, Demonstration]:
    """The demonstrations of rows of `pool`, with their steps, by key."""
    of_key: defaultdict[int, list[Row[Any]]] = defaultdict(list)
    for step in connection.execute(POOL_STEPS, {"pool_ids": [row.pool_id for row in rows]}):
        of_key[step.pool_id].append(step)
    return {row.pool_id: read_demonstration(row, of_key[row.pool_id]) for row in rows}


def injected_by_group(
    connection: Connection, group_ids: Sequence[int]
) -> defaultdict[int, list[Demonstration]]:
    """The demonstrations that were added to groups."""
    rows = connection.execute(INJECTED, {"group_ids": group_ids}).all()
    demonstrations = read_demonstrations(connection, rows)
    by_group: defaultdict[int, list[Demonstration]] = defaultdict(list)
    for row in rows:
        by_group[row.group_id].append(demonstrations[row.pool_id])
    return by_group


def screenshots_needed(connection: Connection) -> frozenset[str]:
    """sha256 of every screenshot that may still be trained on or replayed."""
    named = connection.execute(union(SCREENSHOTS_OF_LIVE_GROUPS, SCREENSHOTS_OF_POOL)).scalars()
    packed = connection.execute(select(parked.c.steps)).scalars()
    return frozenset(named) | {step.screenshot_sha256 for blob in packed for step in unpack_steps(blob)}
