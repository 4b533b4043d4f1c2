"""Checks that the rows of the record agree with each other: states with states, and counts with rows."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dart.core.records import STALENESS_BOUND, BatchState, Conservation, DecisionKind, GroupState
from dart.core.types import RolloutState
from dart.store.database import Checks, Connection
from dart.store.errors import StoreBusy, StoreError
from dart.store.queries import COUNTER, scalar, select
from dart.store.sqlite import DatabaseError

STATES = "SELECT state, count(*) FROM rollouts GROUP BY state"
METRICS = "SELECT version, metrics FROM versions ORDER BY version"
SHOWN_CHARACTERS = 60
"""Characters of an unreadable text that a finding quotes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One damage or contradiction in the data of a run, with its remedy."""

    what: str
    """What contradicts what, with the values found."""
    which: str
    """The row or file, by name."""
    remedy: str = "restore a copy of the run directory, or start a new run in another one"
    costs_groups_only: bool = False
    """Whether the run may continue all the same: it drops the groups that the damage affects, and no more."""

    def __str__(self) -> str:
        return f"{self.which}: {self.what}"


class Rule(NamedTuple):
    """A query for rows that contradict others. A row's columns fill in the formats `which` and `what`."""

    which: str
    what: str
    sql: str


def tally_rows(what: str, task: str, name: str, table: str) -> str:
    """A query that counts the rows of a table as the triggers of the tally `what` do, by task and name.

    task   SQL for the task; the empty text if the tally does not count by task
    name   the column with the name
    """
    return f"""
        SELECT '{what}' AS what, {task} AS task_id, {name} AS name, 0 AS kept, count(*) AS counted
        FROM {table} WHERE {name} IS NOT NULL GROUP BY 2, 3
    """


TALLIED = " UNION ALL ".join(
    (
        tally_rows("state", "''", "state", "rollouts"),
        tally_rows("drop", "''", "drop_reason", "rollouts"),
        tally_rows("outcome", "''", "outcome", "trajectories"),
        tally_rows("fault", "''", "fault_kind", "attempts"),
        tally_rows("group_drop", "task_id", "drop_reason", "groups"),
        "SELECT what, task_id, name, value, 0 FROM tallies WHERE what != 'parking'",
    )
)

RULES = {
    "the trained rollouts": Rule(
        "rollout {rollout_id}",
        "it has batch {batch_id} ({batch_state}), its group has batch {group_batch}; a trained rollout must "
        "have the consumed batch of its group, any other rollout no batch",
        f"""
        SELECT rollouts.rollout_id, rollouts.batch_id, groups.batch_id AS group_batch,
            batches.state AS batch_state FROM rollouts
        JOIN groups ON groups.group_id = rollouts.group_id
        LEFT JOIN batches ON batches.batch_id = rollouts.batch_id
        WHERE rollouts.state = '{RolloutState.TRAINED}' AND (
                coalesce(batches.state, '') != '{BatchState.CONSUMED}'
                OR coalesce(groups.batch_id, 0) != coalesce(rollouts.batch_id, 0)
                OR groups.state != '{GroupState.CONSUMED}')
            OR rollouts.state != '{RolloutState.TRAINED}' AND rollouts.batch_id IS NOT NULL
        """,
    ),
    "the batches": Rule(
        "batch {batch_id}",
        "it is {state} and made version {version}; only consumed batches make a version, and each makes one",
        f"""
        SELECT batch_id, state, version FROM batches
        WHERE (state = '{BatchState.CONSUMED}') != (version IS NOT NULL)
        """,
    ),
    "the groups": Rule(
        "group {group_id}",
        "it is {state}, its batch is {batch_state}; a group is batched exactly while its batch is leased",
        f"""
        SELECT groups.group_id, groups.state, batches.state AS batch_state FROM groups
        LEFT JOIN batches ON batches.batch_id = groups.batch_id
        WHERE (groups.state = '{GroupState.BATCHED}') != (coalesce(batches.state, '') = '{BatchState.LEASED}')
        """,
    ),
    "the stored rollouts": Rule(
        "rollout {rollout_id}",
        "it is {state}; stored and trained rollouts must have a trajectory, leased ones must not",
        f"""
        SELECT rollouts.rollout_id, rollouts.state FROM rollouts
        LEFT JOIN trajectories ON trajectories.rollout_id = rollouts.rollout_id
        WHERE rollouts.state IN ('{RolloutState.STORED}', '{RolloutState.TRAINED}')
                AND trajectories.rollout_id IS NULL
            OR rollouts.state = '{RolloutState.LEASED}' AND trajectories.rollout_id IS NOT NULL
        """,
    ),
    "the steps": Rule(
        "{what} {key}",
        "its steps are named {steps_sha256!r}, which is no sha256",
        """
        SELECT 'rollout' AS what, rollout_id AS key, steps_sha256 FROM trajectories
        WHERE length(steps_sha256) != 64
        UNION ALL SELECT 'rollout', rollout_id, steps_sha256 FROM parked WHERE length(steps_sha256) != 64
        UNION ALL SELECT 'demonstration', pool_id, steps_sha256 FROM pool WHERE length(steps_sha256) != 64
        UNION ALL SELECT 'evaluation episode', evaluation_id, steps_sha256 FROM evaluation_episodes
        WHERE length(steps_sha256) != 64
        """,
    ),
    "the parked episodes": Rule(
        "rollout {rollout_id}",
        "it has parked steps, so it must be leased; it is {state} and was parked {resumes} times",
        f"""
        SELECT parked.rollout_id, rollouts.state, rollouts.resumes FROM parked
        JOIN rollouts ON rollouts.rollout_id = parked.rollout_id
        WHERE rollouts.state != '{RolloutState.LEASED}' OR rollouts.resumes < 1
        """,
    ),
    "the uses of demonstrations": Rule(
        "demonstration {pool_id}",
        "it counts {uses} uses, but {used_by} groups have it",
        """
        SELECT pool.pool_id, pool.uses, count(used.group_id) AS used_by FROM pool
        LEFT JOIN group_demonstrations AS used ON used.pool_id = pool.pool_id
        GROUP BY pool.pool_id, pool.uses HAVING count(used.group_id) != pool.uses
        """,
    ),
    "the tasks of demonstrations": Rule(
        "demonstration {pool_id}",
        "it is of task {task_id} but was added to group {group_id} of task {group_task}",
        """
        SELECT pool.pool_id, pool.task_id, groups.group_id, groups.task_id AS group_task FROM pool
        JOIN group_demonstrations ON group_demonstrations.pool_id = pool.pool_id
        JOIN groups ON groups.group_id = group_demonstrations.group_id
        WHERE groups.task_id != pool.task_id
        """,
    ),
    "the tasks": Rule(
        "task {task_id}",
        "its statistics have {kept_groups} groups, {kept_episodes} episodes and {kept_steps} steps, "
        "but the other tables have {opened}, {episodes} and {steps}",
        """
        SELECT task_id, sum(kept_groups) AS kept_groups, sum(kept_episodes) AS kept_episodes,
            sum(kept_steps) AS kept_steps, sum(opened) AS opened, sum(episodes) AS episodes,
            sum(steps) AS steps
        FROM (
            SELECT task_id, groups_opened AS kept_groups, finished AS kept_episodes,
                steps_played AS kept_steps, 0 AS opened, 0 AS episodes, 0 AS steps FROM task_statistics
            UNION ALL SELECT task_id, 0, 0, 0, count(*), 0, 0 FROM groups GROUP BY task_id
            UNION ALL SELECT task_id, 0, 0, 0, 0, count(*), sum(num_steps) FROM trajectories GROUP BY task_id
        ) AS counts
        GROUP BY task_id
        HAVING sum(kept_groups) != sum(opened) OR sum(kept_episodes) != sum(episodes)
            OR sum(kept_steps) != sum(steps)
        """,
    ),
    "the tallies": Rule(
        "tally {what} of {name!r}",
        "its value is {kept}, but there are {counted} such rows",
        f"""
        SELECT what, task_id, name, sum(kept) AS kept, sum(counted) AS counted FROM ({TALLIED}) AS tallied
        GROUP BY what, task_id, name HAVING sum(kept) != sum(counted)
        """,
    ),
    "the order of versions": Rule(
        "version {version}",
        "it follows {previous}; each version must be greater by 1 than the one before",
        """
        SELECT version, previous FROM (
            SELECT version, lag(version, 1, -1) OVER (ORDER BY version) AS previous FROM versions) AS ordered
        WHERE version != previous + 1
        """,
    ),
    "the batches of versions": Rule(
        "version {version}",
        "it was made by no consumed batch",
        f"""
        SELECT versions.version FROM versions LEFT JOIN batches ON batches.version = versions.version
        WHERE versions.version > 0 AND coalesce(batches.state, '') != '{BatchState.CONSUMED}'
        """,
    ),
}
"""The contradictions that queries can find, by the part of the record that they check."""


def violations(
    connection: Connection, staleness_bound: int | None, since_version: int = 0
) -> tuple[Finding, ...]:
    """Every contradiction in the record; empty when it is sound.

    With a staleness bound, the result includes rollouts that were too stale when they were trained for a
    version after `since_version` (invariant fresh).
    """
    checks: Checks = {
        "the rollouts": broken_conservation,
        "the longest successes": unlikely_longest_successes,
        "the decisions": unreadable_decisions,
        "the metrics of versions": unreadable_metrics,
    }
    found = list(found_by(checks, connection))
    for which, rule in RULES.items():
        found += findings_of(which, broken, connection, rule)
    if staleness_bound is not None:
        found += findings_of("the age of steps", stale_steps, connection, staleness_bound, since_version)
    return tuple(found)


UNREADABLE = (
    DatabaseError,
    StoreError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""Errors of reading a damaged row: a wrong type, a wrong length, bytes that are no text."""


def found_by(checks: Checks, connection: Connection) -> Iterator[Finding]:
    """The findings of several checks, in the order of the checks."""
    for which, check in checks.items():
        yield from findings_of(which, check, connection)


def findings_of(which: str, check: Callable[..., Iterable[Finding]], *values: object) -> Iterator[Finding]:
    """The findings of `check(*values)`. If the check cannot read its data, the last finding says so.

    which   what is checked, the subject of that last finding

    Raises StoreBusy, because a busy database says nothing about the data."""
    try:
        yield from check(*values)
    except StoreBusy:
        raise  # the database, not the data
    except UNREADABLE as error:
        yield Finding(f"it cannot be read: {error}", which)


def broken(connection: Connection, rule: Rule) -> Iterator[Finding]:
    """A finding for each row that breaks a rule."""
    for row in select(connection, rule.sql):
        found = row._asdict()
        yield Finding(rule.what.format(**found), rule.which.format(**found))


def broken_conservation(connection: Connection) -> Iterator[Finding]:
    """A finding if the counter of issued rollouts is not the number of rollouts in all states (one-fate)."""
    counted = conservation(connection, dict(connection.execute(STATES).fetchall()))
    if not counted.holds:
        yield Finding(f"conservation is broken: {counted}", "the rollouts")


def conservation(connection: Connection, states: Mapping[str, int]) -> Conservation:
    """The counter of issued rollouts, and how many rollouts are in each state."""
    return Conservation(
        issued=counter(connection, "issued"),
        trained=states.get(RolloutState.TRAINED, 0),
        dropped=states.get(RolloutState.DROPPED, 0),
        stored=states.get(RolloutState.STORED, 0),
        leased=states.get(RolloutState.LEASED, 0),
    )


def counter(connection: Connection, name: str) -> int:
    """The value of one counter."""
    return int(scalar(connection, COUNTER, counter=name))


def unreadable_metrics(connection: Connection) -> Iterator[Finding]:
    """A finding for each version whose metrics are no JSON object."""
    for version, metrics in connection.execute(METRICS):
        if figures_of(metrics) is None:
            shown = str(metrics)[:SHOWN_CHARACTERS]
            yield Finding(f"its metrics are no JSON object: {shown!r}", f"version {version}")


def figures_of(metrics: str) -> dict[str, object] | None:
    """The metrics of an update from their JSON object; None if the text is something else."""
    try:
        found = json.loads(metrics, parse_constant=_refuse)
    except (TypeError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _refuse(constant: str) -> None:
    """Refuse `NaN` and `Infinity`, which Python reads although they are no JSON."""
    raise ValueError(f"{constant} is no JSON")


TRAINED_STEPS = """
    SELECT trajectories.rollout_id, trajectories.oldest_version, batches.version FROM trajectories
    JOIN rollouts ON rollouts.rollout_id = trajectories.rollout_id
    JOIN batches ON batches.batch_id = rollouts.batch_id
    WHERE trajectories.oldest_version < batches.version - 1 - :bound AND batches.version > :since_version
"""


def stale_steps(connection: Connection, bound: int, since_version: int) -> list[Finding]:
    """A finding for each rollout that was too stale when it was trained (invariant fresh).

    The update that made version v trained version v - 1. So the oldest step in its batch may be of version
    v - 1 - K. K is the staleness bound in the metrics of version v, or `bound` if they have none.
    """
    bounds = {version: bound_of(metrics, bound) for version, metrics in connection.execute(METRICS)}
    least = {"bound": min(bounds.values(), default=bound), "since_version": since_version}
    return [
        Finding(
            f"its oldest step is of version {oldest}, but it was trained for version {version} with the "
            f"staleness bound {k:g}",
            f"rollout {rollout_id}",
        )
        for rollout_id, oldest, version in connection.execute(TRAINED_STEPS, least)
        if (k := bounds.get(version)) is not None and oldest < version - 1 - k
    ]


def bound_of(metrics: str, otherwise: float) -> float:
    """The staleness bound in the metrics of an update; `otherwise` if they have none."""
    held = (figures_of(metrics) or {}).get(STALENESS_BOUND)
    return held if isinstance(held, int | float) else otherwise


LONGEST_SUCCESSES = "SELECT task_id, longest_success_steps FROM task_statistics"
LONGEST_BY_REWARD = """
    SELECT task_id, reward, max(num_steps) FROM trajectories WHERE reward > 0.0
    GROUP BY task_id, reward ORDER BY task_id, reward DESC
"""


def unlikely_longest_successes(connection: Connection) -> Iterator[Finding]:
    """A finding for each task whose recorded longest success fits its episodes under no threshold.

    The record does not hold the threshold of reward above which an episode is a success, so every threshold
    is tried. A reward of 1 is a success under all of them.
    """
    possible: dict[str, set[int | None]] = {}
    for task_id, reward, num_steps in connection.execute(LONGEST_BY_REWARD):
        known = possible.setdefault(task_id, set() if reward >= 1.0 else {None})
        known.add(max(num_steps, *(steps for steps in known if steps is not None), 0))
    for task_id, kept in connection.execute(LONGEST_SUCCESSES):
        if kept not in possible.get(task_id, {None}):
            yield Finding(
                f"its longest success is recorded as {kept} steps, which fits none of its episodes",
                f"task {task_id}",
            )


def unreadable_decisions(connection: Connection) -> Iterator[Finding]:
    """A finding for each decision that has no reason or that a restarted curator could not read."""
    for row in select(connection, "SELECT * FROM decisions"):
        if not is_well_formed(row.kind, row.after, row.reason):
            yield Finding(
                f"{row.kind} of {row.task_id} from {row.before!r} to {row.after!r} because {row.reason!r} "
                "cannot be read back",
                f"decision {row.decision_id}",
            )


def is_well_formed(kind: str, after: str, reason: str) -> bool:
    """Whether a decision has a reason and a value that can be read back.

    The value `after` must be a positive whole number, or for a quarantine a time or empty.
    """
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
