"""The books of the record, counted from sources that know nothing of each other."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from dart.core.records import STALENESS_BOUND, BatchState, Conservation, DecisionKind, GroupState
from dart.core.types import RolloutState
from dart.store.errors import StoreError
from dart.store.queries import scalar, select
from dart.store.sqlite import Connection, DatabaseError

COUNTER = "SELECT value FROM counters WHERE name = :counter"
SHOWN_CHARACTERS = 60
"""Of a text that is not what it should be."""

STATES = "SELECT state, count(*) FROM rollouts GROUP BY state"


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
    return books_of(connection, dict(connection.execute(STATES).fetchall()))


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
    return int(scalar(connection, COUNTER, counter=name))


UNREADABLE = (
    DatabaseError,
    StoreError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What reading a damaged row may raise: the wrong type, the wrong length, bytes that are no text."""


def looked(which: str, check: Callable[..., Iterable[Finding]], *values: object) -> Iterator[Finding]:
    """What a check finds; where it meets something that cannot be read, that is the last finding."""
    try:
        yield from check(*values)
    except UNREADABLE as error:
        yield Finding(f"it cannot be read: {error}", which)


def violations(
    connection: Connection, staleness_bound: int | None, since_version: int = 0
) -> tuple[Finding, ...]:
    """Every contradiction in the record; empty when it is sound.

    With a staleness bound K, steps older than K versions that were trained into a version after
    `since_version` count too (invariant fresh).
    """
    checks: dict[str, Callable[[Connection], Iterable[Finding]]] = {
        "the rollouts": books,
        "the trained rollouts": trained_without_batch,
        "the batches": batches_without_version,
        "the stored rollouts": stored_without_trajectory,
        "the steps": trajectories_without_steps,
        "the parked episodes": parked_without_lease,
        "the experience pool": miscounted_demonstrations,
        "the tasks": miscounted_tasks,
        "the longest successes": unlikely_longest_successes,
        "the tallies": miscounted_tallies,
        "the decisions": unreadable_decisions,
        "the versions": version_gaps,
        "the metrics of versions": unreadable_metrics,
    }
    found = [finding for which, check in checks.items() for finding in looked(which, check, connection)]
    if staleness_bound is not None:
        found += looked("the age of steps", stale_steps, connection, staleness_bound, since_version)
    return tuple(found)


def books(connection: Connection) -> list[Finding]:
    result = conservation(connection)
    return [] if result.holds else [Finding(f"conservation is broken: {result}", "the rollouts")]


TRAINED_WITHOUT_BATCH = f"""
    SELECT rollouts.rollout_id, rollouts.batch_id, groups.batch_id, batches.state FROM rollouts
    JOIN groups ON groups.group_id = rollouts.group_id
    LEFT JOIN batches ON batches.batch_id = rollouts.batch_id
    WHERE rollouts.state = '{RolloutState.TRAINED}' AND (
            coalesce(batches.state, '') != '{BatchState.CONSUMED}'
            OR coalesce(groups.batch_id, 0) != coalesce(rollouts.batch_id, 0)
            OR groups.state != '{GroupState.CONSUMED}')
        OR rollouts.state != '{RolloutState.TRAINED}' AND rollouts.batch_id IS NOT NULL
"""


def trained_without_batch(connection: Connection) -> list[Finding]:
    """A trained rollout belongs to exactly one consumed batch, and its group to the same one."""
    return [
        Finding(
            f"it has batch {batch_id} ({state}), its group has batch {group_batch}", f"rollout {rollout_id}"
        )
        for rollout_id, batch_id, group_batch, state in connection.execute(TRAINED_WITHOUT_BATCH)
    ]


STORED_WITHOUT_TRAJECTORY = f"""
    SELECT rollouts.rollout_id, rollouts.state FROM rollouts
    LEFT JOIN trajectories ON trajectories.rollout_id = rollouts.rollout_id
    WHERE rollouts.state IN ('{RolloutState.STORED}', '{RolloutState.TRAINED}')
            AND trajectories.rollout_id IS NULL
        OR rollouts.state = '{RolloutState.LEASED}' AND trajectories.rollout_id IS NOT NULL
"""


def stored_without_trajectory(connection: Connection) -> list[Finding]:
    return [
        Finding(f"it is {state} but its trajectory says otherwise", f"rollout {name}")
        for name, state in connection.execute(STORED_WITHOUT_TRAJECTORY)
    ]


TRAJECTORIES_WITHOUT_STEPS = """
    SELECT trajectories.rollout_id, trajectories.num_steps FROM trajectories
    LEFT JOIN steps ON steps.rollout_id = trajectories.rollout_id WHERE steps.rollout_id IS NULL
"""


def trajectories_without_steps(connection: Connection) -> list[Finding]:
    return [
        Finding(f"its trajectory has none of its {num_steps} steps", f"rollout {rollout_id}")
        for rollout_id, num_steps in connection.execute(TRAJECTORIES_WITHOUT_STEPS)
    ]


VERSIONS_MADE = """
    SELECT versions.version, batches.state FROM versions
    LEFT JOIN batches ON batches.version = versions.version ORDER BY versions.version
"""


def version_gaps(connection: Connection) -> list[Finding]:
    """Versions are 0, 1, 2 ... and every one but 0 was made by exactly one consumed batch."""
    rows = connection.execute(VERSIONS_MADE).fetchall()
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


METRICS = "SELECT version, metrics FROM versions ORDER BY version"


def figures_of(metrics: str) -> dict[str, object] | None:
    """The figures of an update, which are a JSON object; None where they are something else."""
    try:
        found = json.loads(metrics, parse_constant=_refuse)
    except (TypeError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _refuse(constant: str) -> None:
    """Python reads and writes `NaN` and `Infinity`, which are no JSON."""
    raise ValueError(f"{constant} is no JSON")


def unreadable_metrics(connection: Connection) -> list[Finding]:
    """The figures of an update are a JSON object."""
    return [
        Finding(f"its metrics are no JSON object: {str(metrics)[:SHOWN_CHARACTERS]!r}", f"version {version}")
        for version, metrics in connection.execute(METRICS)
        if figures_of(metrics) is None
    ]


TRAINED_STEPS = """
    SELECT trajectories.rollout_id, trajectories.oldest_version, batches.version FROM trajectories
    JOIN rollouts ON rollouts.rollout_id = trajectories.rollout_id
    JOIN batches ON batches.batch_id = rollouts.batch_id
    WHERE trajectories.oldest_version < batches.version - 1 - :bound AND batches.version > :since_version
"""


def stale_steps(connection: Connection, bound: int, since_version: int) -> list[Finding]:
    """Invariant fresh: a batch that made version v was trained at v - 1; no step is older than v - 1 - K.

    K is the one that held then, recorded with the version; `bound` where none is.
    """
    bounds = {version: bound_of(metrics, bound) for version, metrics in connection.execute(METRICS)}
    least = {"bound": min(bounds.values(), default=bound), "since_version": since_version}
    return [
        Finding(f"played at version {oldest}, trained into {version}, bound {k:g}", f"rollout {rollout_id}")
        for rollout_id, oldest, version in connection.execute(TRAINED_STEPS, least)
        if (k := bounds.get(version)) is not None and oldest < version - 1 - k
    ]


def bound_of(metrics: str, otherwise: float) -> float:
    """The staleness bound that held when an update was made."""
    held = (figures_of(metrics) or {}).get(STALENESS_BOUND)
    return held if isinstance(held, int | float) else otherwise


UNMADE_BATCHES = f"""
    SELECT batch_id, state, version FROM batches
    WHERE (state = '{BatchState.CONSUMED}') != (version IS NOT NULL)
"""
STRAY_GROUPS = f"""
    SELECT groups.group_id, groups.state, batches.state FROM groups
    LEFT JOIN batches ON batches.batch_id = groups.batch_id
    WHERE (groups.state = '{GroupState.BATCHED}') != (coalesce(batches.state, '') = '{BatchState.LEASED}')
"""


def batches_without_version(connection: Connection) -> list[Finding]:
    """Exactly the consumed batches made a version, and groups are batched exactly while a batch is leased."""
    return [
        Finding(f"it is {state} and made version {version}", f"batch {batch_id}")
        for batch_id, state, version in connection.execute(UNMADE_BATCHES)
    ] + [
        Finding(f"it is {state}, its batch is {batch_state}", f"group {group_id}")
        for group_id, state, batch_state in connection.execute(STRAY_GROUPS)
    ]


PARKED_WITHOUT_LEASE = f"""
    SELECT parked.rollout_id, rollouts.state, rollouts.resumes FROM parked
    JOIN rollouts ON rollouts.rollout_id = parked.rollout_id
    WHERE rollouts.state != '{RolloutState.LEASED}' OR rollouts.resumes < 1
"""


def parked_without_lease(connection: Connection) -> list[Finding]:
    """Steps are kept only of rollouts that an environment will take up."""
    return [
        Finding(f"it has parked steps, is {state} and was parked {resumes} times", f"rollout {rollout_id}")
        for rollout_id, state, resumes in connection.execute(PARKED_WITHOUT_LEASE)
    ]


MISCOUNTED_DEMONSTRATIONS = """
    SELECT pool.pool_id, pool.uses, count(used.group_id) FROM pool
    LEFT JOIN group_demonstrations AS used ON used.pool_id = pool.pool_id
    GROUP BY pool.pool_id, pool.uses HAVING count(used.group_id) != pool.uses
"""
STRANGE_DEMONSTRATIONS = """
    SELECT pool.pool_id, pool.task_id, groups.group_id, groups.task_id FROM pool
    JOIN group_demonstrations ON group_demonstrations.pool_id = pool.pool_id
    JOIN groups ON groups.group_id = group_demonstrations.group_id
    WHERE groups.task_id != pool.task_id
"""


def miscounted_demonstrations(connection: Connection) -> list[Finding]:
    """A use is a group that has it, of its own task."""
    return [
        Finding(f"it counts {uses} uses, and {found} groups have it", f"demonstration {pool_id}")
        for pool_id, uses, found in connection.execute(MISCOUNTED_DEMONSTRATIONS)
    ] + [
        Finding(f"it is of {task} and in group {group_id} of {other}", f"demonstration {pool_id}")
        for pool_id, task, group_id, other in connection.execute(STRANGE_DEMONSTRATIONS)
    ]


GROUPS_OPENED = "SELECT task_id, count(*) FROM groups GROUP BY task_id"
EPISODES_PLAYED = """
    SELECT task_id, count(*), sum(num_steps) FROM trajectories GROUP BY task_id
"""
KEPT_STATISTICS = "SELECT task_id, groups_opened, finished, steps_played FROM task_statistics"
LONGEST_SUCCESSES = "SELECT task_id, longest_success_steps FROM task_statistics"
LONGEST_BY_REWARD = """
    SELECT task_id, reward, max(num_steps) FROM trajectories WHERE reward > 0.0
    GROUP BY task_id, reward ORDER BY task_id, reward DESC
"""


def miscounted_tasks(connection: Connection) -> list[Finding]:
    """The aggregates by task against a recount of what they count."""
    groups_of = dict(connection.execute(GROUPS_OPENED).fetchall())
    played_of = {task: tuple(figures) for task, *figures in connection.execute(EPISODES_PLAYED)}
    kept_of = {task: tuple(figures) for task, *figures in connection.execute(KEPT_STATISTICS)}
    counted_of = {
        task: (groups_of.get(task, 0), *played_of.get(task, (0, 0)))
        for task in sorted({*kept_of, *groups_of, *played_of})
    }
    return [
        Finding(
            f"kept are (groups, finished, steps) {kept_of.get(task)}, counted {counted}",
            f"task {task}",
        )
        for task, counted in counted_of.items()
        if kept_of.get(task) != counted
    ]


def unlikely_longest_successes(connection: Connection) -> list[Finding]:
    """The longest success of each task is that of some threshold of reward; the record holds no threshold.

    A full reward is a success under each of them.
    """
    possible: dict[str, set[int | None]] = {}
    for task_id, reward, num_steps in connection.execute(LONGEST_BY_REWARD):
        known = possible.setdefault(task_id, set() if reward >= 1.0 else {None})
        known.add(max(num_steps, *(steps for steps in known if steps is not None), 0))
    return [
        Finding(f"kept is a longest success of {kept} steps, no episode of it is one", f"task {task_id}")
        for task_id, kept in connection.execute(LONGEST_SUCCESSES)
        if kept not in possible.get(task_id, {None})
    ]


TALLIED = {
    "state": ("''", "state", "rollouts"),
    "drop": ("''", "drop_reason", "rollouts"),
    "outcome": ("''", "outcome", "trajectories"),
    "fault": ("''", "fault_kind", "attempts"),
    "group_drop": ("task_id", "drop_reason", "groups"),
}
"""What is counted as it happens: by which task, by which name, from the rows of which table."""


def miscounted_tallies(connection: Connection) -> list[Finding]:
    """What was counted as it happened against a recount of the rows."""
    return [
        Finding(f"kept are {kept.get(key, 0)}, counted {counted.get(key, 0)}", f"tally {what} of {key[1]!r}")
        for what, columns in TALLIED.items()
        if (kept := kept_tally(connection, what)) != (counted := recount(connection, *columns))
        for key in sorted({*kept, *counted})
        if kept.get(key, 0) != counted.get(key, 0)
    ]


def kept_tally(connection: Connection, what: str) -> dict[tuple[str, str], int]:
    rows = select(connection, "SELECT * FROM tallies WHERE what = :what AND value != 0", what=what)
    return {(row.task_id, row.name): row.value for row in rows}


def recount(connection: Connection, task: str, name: str, table: str) -> dict[tuple[str, str], int]:
    query = f"SELECT {task}, {name}, count(*) FROM {table} WHERE {name} IS NOT NULL GROUP BY 1, 2"
    return {(row[0], row[1]): row[2] for row in connection.execute(query)}


def unreadable_decisions(connection: Connection) -> list[Finding]:
    """Every decision has a reason, and says what a restarted curator can read."""
    return [
        Finding(
            f"{row.kind} of {row.task_id} from {row.before!r} to {row.after!r} because {row.reason!r} "
            "makes no sense",
            f"decision {row.decision_id}",
        )
        for row in select(connection, "SELECT * FROM decisions")
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
