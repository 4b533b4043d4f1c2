"""The SQL that reads the record, and functions that turn its rows into Python objects.

The statements are text, because commands read the record, too, and importing SQLAlchemy would take longer
than the rest of a command (decision 13). The writer reads with the same statements, on the connection on
which it writes. All statements are in the SQL that SQLite and PostgreSQL share (decision 19).
"""

from collections import defaultdict, namedtuple
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from dart.core.records import (
    Batch,
    BatchState,
    DecisionKind,
    DemonstrationSummary,
    GroupRecord,
    GroupState,
    RolloutRecord,
    SeedReward,
    TaskDecision,
    TaskStatistics,
)
from dart.core.types import RolloutState
from dart.store.database import Connection, Cursor
from dart.store.serialization import Row, record_of

T = TypeVar("T")

LIVE = f"('{GroupState.OPEN}', '{GroupState.BATCHED}')"
IS_LIVE = f"groups.state IN {LIVE}"
KEPT = f"('{RolloutState.STORED}', '{RolloutState.TRAINED}')"

COUNTER = "SELECT value FROM counters WHERE name = :counter"
OPEN_BATCH = f"SELECT * FROM batches WHERE state = '{BatchState.LEASED}'"
ONE_BATCH = "SELECT * FROM batches WHERE batch_id = :key"
BATCH_GROUPS = "SELECT group_id FROM groups WHERE batch_id = :batch_id ORDER BY group_id"
NEWEST_VERSION = "SELECT * FROM versions ORDER BY version DESC LIMIT 1"
LAST_VERSION = "SELECT max(version) FROM versions"
ONE_VERSION = "SELECT * FROM versions WHERE version = :key"
VERSIONS = "SELECT * FROM versions WHERE version >= :first ORDER BY version LIMIT :limit"
ROLLOUTS = """
    SELECT rollouts.*, groups.task_id, groups.seed, groups.step_cap,
        trajectories.reward, trajectories.num_steps, trajectories.stored_unix_s,
        trajectories.fence AS stored_fence,
        parked.fence AS parked_fence, coalesce(parked.num_steps, 0) AS parked_steps,
        coalesce(trajectories.oldest_version, parked.oldest_version) AS oldest_version
    FROM rollouts
    JOIN groups ON groups.group_id = rollouts.group_id
    LEFT JOIN trajectories ON trajectories.rollout_id = rollouts.rollout_id
    LEFT JOIN parked ON parked.rollout_id = rollouts.rollout_id
"""
ONE_ROLLOUT = f"{ROLLOUTS} WHERE rollouts.rollout_id = :key"
ROLLOUT_STATES = "SELECT state FROM rollouts WHERE group_id = :key"
ATTEMPT_SPENT = "SELECT count(*) FROM attempts WHERE rollout_id = :key AND attempt = :attempt"
ONE_GROUP = "SELECT * FROM groups WHERE group_id = :key"
GROUPS = "SELECT * FROM groups WHERE group_id IN (:keys)"
USED_DEMONSTRATIONS = """
    SELECT group_demonstrations.* FROM group_demonstrations
    JOIN groups ON groups.group_id = group_demonstrations.group_id
"""
ONE_TRAJECTORY = "SELECT * FROM trajectories WHERE rollout_id = :key"
KEPT_TRAJECTORIES = f"""
    SELECT trajectories.* FROM trajectories
    JOIN rollouts ON rollouts.rollout_id = trajectories.rollout_id
    WHERE trajectories.group_id IN (:keys) AND rollouts.state IN {KEPT}
    ORDER BY trajectories.rollout_id
"""
EVALUATIONS = """
    SELECT * FROM evaluations WHERE CAST(:phase AS TEXT) IS NULL OR phase = :phase ORDER BY evaluation_id
"""
EVALUATION_ID = """
    SELECT evaluation_id FROM evaluations WHERE phase = :phase AND policy_version = :policy_version
        AND task_id = :task_id AND seed = :seed AND is_greedy = :is_greedy
"""
EVALUATION_EPISODES = """
    SELECT evaluations.*, evaluation_episodes.* FROM evaluations
    JOIN evaluation_episodes ON evaluation_episodes.evaluation_id = evaluations.evaluation_id
"""
"""Evaluation episodes of which is known how they were played."""

ONE_EVALUATION_PLAY = "SELECT * FROM evaluation_episodes WHERE evaluation_id = :key"
EVENTS_OF_KIND = """
    SELECT * FROM events
    WHERE kind = :kind AND event_id >= :first AND unix_s >= :since_unix_s
        AND (CAST(:subject AS TEXT) IS NULL OR subject = :subject)
    ORDER BY event_id DESC LIMIT :limit
"""
KINDS_OF_EVENTS = """
    WITH RECURSIVE known(kind) AS (
        SELECT min(kind) FROM events
        UNION ALL
        SELECT (SELECT min(kind) FROM events WHERE kind > known.kind) FROM known WHERE known.kind IS NOT NULL)
    SELECT kind FROM known WHERE kind IS NOT NULL
"""
ENDS_OF_EVENTS = "SELECT (SELECT min(event_id) FROM events), (SELECT max(event_id) FROM events)"
"""Smallest and largest id of events. They are two subqueries, because SQLite finds each of them by the index,
but would read the whole table for both in one SELECT."""

ONE_EVENT_FROM = "SELECT event_id, unix_s FROM events WHERE event_id >= :first ORDER BY event_id LIMIT 1"
EVENT_COUNTS = """
    SELECT kind, count(*) FROM events WHERE kind IN (:kinds) GROUP BY kind
"""
EVENT_COUNTS_SINCE = """
    SELECT kind || '', count(*) FROM events
    WHERE event_id > :since_id AND kind || '' IN (:kinds) GROUP BY 1
"""
"""`kind || ''` keeps SQLite from using the index of kinds, for the condition and for the groups. The index of
ids is faster, because there are few events after `since_id`."""

NEWEST_EVENT_ID = "SELECT max(event_id) FROM events"
NEWEST_EVENT = "SELECT * FROM events WHERE kind = :kind ORDER BY event_id DESC LIMIT 1"
TALLY = "SELECT * FROM tallies WHERE what = :what AND value > 0 ORDER BY task_id, name"
SUCCESS_WITHIN = """
    SELECT count(*) FILTER (WHERE reward > :success_above), count(*) FROM (
        SELECT reward FROM trajectories WHERE stored_unix_s >= :begins AND stored_unix_s < :ends
        ORDER BY stored_unix_s DESC LIMIT :most) AS newest
"""
STEPS_SINCE = "SELECT coalesce(sum(num_steps), 0) FROM trajectories WHERE stored_unix_s > :since_unix_s"
REWARDS_OVER_TIME = "SELECT task_id, reward, stored_unix_s FROM trajectories ORDER BY stored_unix_s"
NEWEST_STORED_UNIX_S = "SELECT max(stored_unix_s) FROM trajectories"
FINISHED_EPISODES = """
    SELECT rollout_id, group_id, task_id, reward, num_steps, steps_sha256, stored_unix_s,
        (SELECT rollouts_wanted FROM groups WHERE groups.group_id = trajectories.group_id) AS rollouts_wanted
    FROM trajectories
    WHERE stored_unix_s >= :since_unix_s AND (stored_unix_s > :since_unix_s OR rollout_id > :after)
    ORDER BY stored_unix_s, rollout_id LIMIT :limit
"""

FINISHED = "SELECT coalesce(sum(finished), 0) FROM task_statistics"
STEPS_PLAYED = "SELECT coalesce(sum(steps_played), 0) FROM task_statistics"
TASKS = "SELECT * FROM task_statistics ORDER BY task_id"
RECENT_REWARDS = """
    SELECT recent.task_id, recent.seed, recent.reward, recent.stored_unix_s FROM task_statistics
    JOIN trajectories AS recent ON recent.rollout_id IN (
        SELECT rollout_id FROM trajectories WHERE trajectories.task_id = task_statistics.task_id
        ORDER BY stored_unix_s DESC, rollout_id DESC LIMIT :last)
    ORDER BY recent.stored_unix_s, recent.rollout_id
"""
EXPLORED_STEP = "SELECT *, CASE WHEN expansion IS NULL THEN 0 ELSE 1 END AS is_expansion FROM explored_steps"
ONE_EXPLORED_STEP = f"{EXPLORED_STEP} WHERE step_id = :key"
REPORTED_STEP = f"{EXPLORED_STEP} WHERE fence = :fence AND number = :number"
EXPLORED_STEPS_SINCE = f"""
    {EXPLORED_STEP} WHERE task_id = :task AND seed = :seed AND step_id > :since_id ORDER BY step_id
"""
SCREENS_SINCE = """
    SELECT * FROM screens WHERE task_id = :task AND seed = :seed AND screen_id > :since_id
    ORDER BY screen_id
"""
ONE_SCREEN = "SELECT * FROM screens WHERE screen_id = :key"
SCREEN_DEPTH = "SELECT depth FROM screens WHERE screen_id = :key"
SCREEN_HELD = "SELECT held_by FROM exploration_leases WHERE held_screen = :key"
IS_EXPANDED = "SELECT count(*) FROM explored_steps WHERE expansion = :expansion"
EXPLORED_ACTIONS = """
    SELECT actions FROM explored_steps WHERE task_id = :task_id AND seed = :seed
    ORDER BY step_id DESC LIMIT 1
"""
EXPLORATION_LEASE = "SELECT * FROM exploration_leases WHERE fence = :key"
HELD_LEASES = "SELECT * FROM exploration_leases WHERE held_by IS NOT NULL ORDER BY fence"
UNREACHED_GOALS = """
    SELECT goal_id FROM exploration_leases
    WHERE ended = :ended AND goal_id IS NOT NULL GROUP BY goal_id HAVING count(*) >= :least
"""
EXPLORATIONS = "SELECT DISTINCT task_id, seed FROM explored_steps ORDER BY task_id, seed"
NEWEST_DECISIONS = " UNION ALL ".join(
    f"""
    SELECT decisions.* FROM task_statistics
    JOIN decisions ON decisions.decision_id = (
        SELECT max(decision_id) FROM decisions AS newer
        WHERE newer.task_id = task_statistics.task_id AND newer.kind = '{kind}')
    """
    for kind in DecisionKind
)
DECISIONS = "SELECT * FROM decisions ORDER BY decision_id DESC LIMIT :limit"
DECISIONS_OF_TASK = "SELECT * FROM decisions WHERE task_id = :task ORDER BY decision_id DESC LIMIT :limit"
DEMONSTRATIONS = """
    SELECT * FROM pool WHERE CAST(:task AS TEXT) IS NULL OR task_id = :task ORDER BY pool_id
"""
POOL_IDS_OF_GROUP = "SELECT pool_id FROM group_demonstrations WHERE group_id = :key"
IN_POOL = "SELECT * FROM pool WHERE pool_id = :key"
SAME_CONTENT = "SELECT * FROM pool WHERE content_sha256 = :sha256"
SAME_EPISODE = """
    SELECT * FROM pool WHERE task_id = :task_id AND seed = :seed AND instruction = :instruction
    AND num_steps = :num_steps AND guide_id IS NULL ORDER BY pool_id
"""
GROUP_DEMONSTRATIONS = """
    SELECT group_demonstrations.group_id, pool.* FROM group_demonstrations
    JOIN pool ON pool.pool_id = group_demonstrations.pool_id
    WHERE group_demonstrations.group_id IN (:keys)
    ORDER BY group_demonstrations.group_id, pool.pool_id
"""
PARKED_STEPS = "SELECT steps_sha256 FROM parked WHERE rollout_id = :key"
PARKED_NOW = "SELECT count(*) FROM parked"
IS_NEEDED = f"""
    (NOT pool.dropped OR pool.pool_id IN (
        SELECT group_demonstrations.pool_id FROM group_demonstrations
        JOIN groups ON groups.group_id = group_demonstrations.group_id WHERE {IS_LIVE}))
"""
"""Whether a demonstration may still be trained or be a guide. A live group keeps one that was dropped."""

REPLAYED_STEPS = f"""
    SELECT steps_sha256 FROM pool WHERE {IS_NEEDED} UNION ALL SELECT steps_sha256 FROM parked
"""
STEPS_NEEDED = f"""
    SELECT trajectories.steps_sha256 FROM trajectories
    JOIN rollouts ON rollouts.rollout_id = trajectories.rollout_id
    JOIN groups ON groups.group_id = rollouts.group_id
    WHERE {IS_LIVE} AND rollouts.state = '{RolloutState.STORED}'
    UNION ALL {REPLAYED_STEPS}
"""
STEPS_WITH_SCREENSHOTS = f"""
    SELECT trajectories.steps_sha256 FROM trajectories
    JOIN groups ON groups.group_id = trajectories.group_id WHERE groups.opened_unix_s >= :since_unix_s
    UNION ALL SELECT steps_sha256 FROM evaluation_episodes WHERE started_unix_s >= :since_unix_s
    UNION ALL {STEPS_NEEDED}
"""
"""The steps whose screenshots are kept, if those of other groups and evaluations from before are deleted."""

SCREENSHOTS_SINCE = "screenshots_since"
"""Name of the counter with the Unix time before which groups were opened that may lack screenshots."""

SCREENSHOTS_OF_SCREENS = "SELECT screenshot_sha256 FROM screens"
NAMED_STEPS = " UNION ".join(
    f"SELECT steps_sha256 FROM {table} WHERE steps_sha256 IN (:sha256s)"
    for table in ("trajectories", "pool", "parked", "evaluation_episodes")
)
"""Which of the given blobs of steps a row of the record names."""

OLDEST_LEASE = f"""
    SELECT min(deadline_unix_s) FROM rollouts
    WHERE state = '{RolloutState.LEASED}' AND environment IS NOT NULL
"""


# ---- asking ----


def execute(connection: Connection, sql: str, values: Mapping[str, Any]) -> Cursor:
    """Run a statement. If the value of `keys` is a list, `IN (:keys)` becomes `IN (:keys_0, :keys_1, …)`.

    Such a list may have at most 32,000 items, because SQLite takes no more parameters.
    """
    lists = {name: value for name, value in values.items() if isinstance(value, list)}
    given = {name: value for name, value in values.items() if name not in lists}
    for name, items in lists.items():
        names = [f"{name}_{number}" for number in range(len(items))]
        marks = ", ".join(f":{one}" for one in names) or "NULL"
        sql = sql.replace(f"(:{name})", f"({marks})")
        given |= dict(zip(names, items, strict=True))
    return connection.execute(sql, given)


def select(connection: Connection, sql: str, **values: Any) -> list[Row]:
    """The rows that a statement finds, with their columns as attributes."""
    cursor = execute(connection, sql, values)
    make = _row_of(tuple(column[0] for column in cursor.description or ()))._make
    return [make(found) for found in cursor]


@lru_cache(maxsize=256)
def _row_of(columns: tuple[str, ...]) -> Any:
    """A named tuple class for rows with these columns. If two columns share a name, the first one has it."""
    return namedtuple("Row", columns, rename=True)


def first(connection: Connection, sql: str, **values: Any) -> Row | None:
    """The first row that a statement finds; None when it finds nothing."""
    return next(iter(select(connection, sql, **values)), None)


def scalars(connection: Connection, sql: str, **values: Any) -> list[Any]:
    """The first column of every row that a statement finds."""
    return [found[0] for found in execute(connection, sql, values)]


def scalar(connection: Connection, sql: str, **values: Any) -> Any:
    """The first column of the first row that a statement finds; None when it finds no row."""
    return next(iter(scalars(connection, sql, **values)), None)


def tally(connection: Connection, what: str) -> dict[str, int]:
    """Numbers of rows by name, from the table `tallies`, which triggers keep.

    what   what is counted: `state`, `drop`, `outcome`, `fault`, `group_drop` or `parking`
    """
    return {row.name: row.value for row in select(connection, TALLY, what=what)}


def first_event_after(connection: Connection, unix_s: float) -> int | None:
    """The id of the first event at or after a moment.

    The result is one above the last id if all events are older, and None if there are no events. The search
    is a bisection over ids, which grow with time, because there is no index of times.
    """
    low, last = connection.execute(ENDS_OF_EVENTS).fetchone()
    if low is None:
        return None
    high = last + 1
    while low < high:
        middle = (low + high) // 2
        event_id, found_unix_s = connection.execute(ONE_EVENT_FROM, {"first": middle}).fetchone()
        if found_unix_s < unix_s:
            low = event_id + 1
        else:
            high = middle
    return int(low)


# ---- reading records ----


def all_of(cls: type[T], connection: Connection, sql: str, **values: Any) -> tuple[T, ...]:
    """The rows that a statement finds, as objects of the class `cls`."""
    return tuple(record_of(cls, row) for row in select(connection, sql, **values))


def first_of(cls: type[T], connection: Connection, sql: str, **values: Any) -> T | None:
    """The first row that a statement finds, as an object of the class `cls`; None when it finds nothing."""
    row = first(connection, sql, **values)
    return None if row is None else record_of(cls, row)


def leased_batch(connection: Connection) -> Batch | None:
    row = first(connection, OPEN_BATCH)
    return None if row is None else read_batch(connection, row)


def read_batch(connection: Connection, row: Row) -> Batch:
    group_ids = tuple(scalars(connection, BATCH_GROUPS, batch_id=row.batch_id))
    return record_of(Batch, row, group_ids=group_ids)


def read_groups(connection: Connection, condition: str, **values: Any) -> tuple[GroupRecord, ...]:
    """The groups that fit a condition, with their rollouts and demonstrations.

    condition   SQL about columns of the table `groups`, written as `groups.column`
    values      the values of its parameters
    """
    members: defaultdict[int, list[RolloutRecord]] = defaultdict(list)
    for row in select(connection, f"{ROLLOUTS} WHERE {condition} ORDER BY rollouts.rollout_id", **values):
        members[row.group_id].append(record_of(RolloutRecord, row))
    used: defaultdict[int, list[int]] = defaultdict(list)
    for row in select(connection, f"{USED_DEMONSTRATIONS} WHERE {condition} ORDER BY pool_id", **values):
        used[row.group_id].append(row.pool_id)
    return tuple(
        record_of(
            GroupRecord,
            row,
            rollouts=tuple(members[row.group_id]),
            demonstrations=tuple(used[row.group_id]),
        )
        for row in select(connection, f"SELECT * FROM groups WHERE {condition} ORDER BY group_id", **values)
    )


def statistics_of_tasks(connection: Connection, recent_rewards: int) -> tuple[TaskStatistics, ...]:
    """Statistics of every task, each with at most the `recent_rewards` newest rewards; no others are read."""
    recent: defaultdict[str, list[SeedReward]] = defaultdict(list)
    newest_stored_unix_s: dict[str, float] = {}
    for row in select(connection, RECENT_REWARDS, last=recent_rewards):
        recent[row.task_id].append(SeedReward(row.seed, row.reward))
        newest_stored_unix_s[row.task_id] = row.stored_unix_s
    decided: defaultdict[str, dict[DecisionKind, TaskDecision]] = defaultdict(dict)
    for row in select(connection, NEWEST_DECISIONS):
        decided[row.task_id][DecisionKind(row.kind)] = record_of(TaskDecision, row)
    held: defaultdict[str, list[DemonstrationSummary]] = defaultdict(list)
    for row in select(connection, DEMONSTRATIONS, task=None):
        held[row.task_id].append(record_of(DemonstrationSummary, row))
    return tuple(
        record_of(
            TaskStatistics,
            row,
            recent=tuple(recent[row.task_id]),
            newest_stored_unix_s=newest_stored_unix_s.get(row.task_id),
            decided=decided[row.task_id],
            demonstrations=tuple(held[row.task_id]),
        )
        for row in select(connection, TASKS)
    )
