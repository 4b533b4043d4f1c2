"""Queries of the record for commands and pages: trajectories, the fate of a rollout, figures over time.

Every query returns a bounded number of rows: a page, one per bin, or a sample of a long run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from dart.core.records import Evaluation, EvaluationPlay, Event, RolloutRecord, Version
from dart.core.types import SUCCESS_ABOVE, Trajectory
from dart.store.queries import (
    EVALUATION_EPISODES,
    NEWEST_STORED_UNIX_S,
    ONE_ROLLOUT,
    ONE_TRAJECTORY,
    all_of,
    first,
    first_event_after,
    scalar,
    scalars,
    select,
)
from dart.store.reader import StoreReader
from dart.store.serialization import Row, record_of

PAGE = 50
"""Number of rows on one page of a list."""

EVENTS_WHOLE = 12_000
"""If there are more events than this between two moments, only a sample is read."""

SAMPLES = 60
"""Largest number of places at which a sample of events is read; they are spread evenly over the events."""

VERSIONS_MOST = 400
"""Largest number of policy versions that a chart shows. If there are more, only every n-th is read."""

TRAINED_VERSION = "SELECT version FROM batches WHERE batch_id = :key"
MEMBERS = "SELECT rollout_id FROM rollouts WHERE group_id = :key ORDER BY rollout_id"
ATTEMPTS = "SELECT * FROM attempts WHERE rollout_id = :key ORDER BY attempt"
NEWEST_ATTEMPTS = (
    "SELECT * FROM attempts ORDER BY spent_unix_s DESC, rollout_id DESC, attempt DESC LIMIT :limit"
)
NEWEST_EVENT_ABOUT = """
    SELECT * FROM (SELECT * FROM events WHERE kind = :kind ORDER BY event_id DESC LIMIT :limit) AS newest
    WHERE subject = :subject ORDER BY event_id DESC LIMIT 1
"""
EVENTS_FROM = """
    SELECT * FROM events WHERE kind = :kind AND event_id < :last AND event_id >= :place
    ORDER BY event_id LIMIT :limit
"""
BEGAN = "SELECT min(created_unix_s) FROM versions"
LAST_MOMENTS = (
    "SELECT unix_s FROM events ORDER BY event_id DESC LIMIT 1",
    NEWEST_STORED_UNIX_S,
    "SELECT max(spent_unix_s) FROM attempts",
    "SELECT max(created_unix_s) FROM versions",
)
COUNTED_BY_PLACE = """
        floor((stored_unix_s - :begins) / :width) AS place,
        count(*), count(*) FILTER (WHERE reward > :success_above), sum(num_steps)
    FROM trajectories WHERE stored_unix_s >= :begins AND stored_unix_s <= :ends
"""
PLAYED_OVER_TIME = f"""
    SELECT {COUNTED_BY_PLACE} AND (CAST(:task AS TEXT) IS NULL OR task_id = :task) GROUP BY place
"""
PLAYED_BY_TASK = f"SELECT task_id, {COUNTED_BY_PLACE} GROUP BY task_id, place"
FAULTS_OVER_TIME = """
    SELECT fault_kind, floor((spent_unix_s - :begins) / :width) AS place, count(*)
    FROM attempts WHERE spent_unix_s >= :begins AND spent_unix_s <= :ends
    GROUP BY fault_kind, place
"""
VERSIONS_WITHIN = "FROM versions WHERE created_unix_s BETWEEN :begins AND :ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectorySummary:
    """One finished episode without its steps."""

    rollout_id: int
    group_id: int
    task_id: str
    seed: int
    environment: str
    outcome: str
    reward: float
    num_steps: int
    oldest_version: int
    """Lowest policy version among its steps."""
    stored_unix_s: float
    duration_s: float
    state: str
    """State of its rollout: stored, trained or dropped."""
    drop_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEvaluation(Evaluation):
    """One evaluation episode with how it was played, without its steps."""

    evaluation_id: int
    created_unix_s: float
    play: EvaluationPlay


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryFilter:
    """Which trajectories, or which evaluation episodes, a page lists; None means any."""

    task_id: str | None = None
    seed: int | None = None
    outcome: str | None = None
    is_success: bool | None = None
    """Whether the reward is above `success_above`."""
    success_above: float = SUCCESS_ABOVE
    before_id: int | None = None
    """Only episodes with a smaller id: to get the next page, set the smallest id of the present page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt that ended without a reward."""

    rollout_id: int
    attempt: int
    environment: str | None
    fault_kind: str
    detail: str
    spent_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """One rollout with its group, its attempts and its end, whether or not it has a trajectory."""

    rollout: RolloutRecord
    task_id: str
    seed: int
    step_cap: int
    drop_reason: str | None
    trained_version: int | None
    """The version that the update with this rollout made; None while the rollout is not trained."""
    stored_unix_s: float | None
    attempts: tuple[Attempt, ...]
    """Its attempts that ended without a reward, oldest first."""
    group: tuple[int, ...]
    """Ids of all rollouts of its group, its own included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSample:
    """Events of a kind, oldest first: all of them or a sample."""

    events: tuple[Event, ...] = ()
    apart_s: float = 0.0
    """The usual time between two places of a sample: the median, because the run may have been stopped
    between two of them; 0 for all events."""


class RunBrowser(StoreReader):
    """A StoreReader with the queries of commands and pages. Each method is one transaction."""

    # one trajectory, and lists of them

    def trajectory_page(self, wanted: TrajectoryFilter, limit: int = PAGE) -> tuple[TrajectorySummary, ...]:
        """Up to `limit` finished episodes that the filter selects, newest rollout first."""
        where = " AND ".join(_conditions(wanted, "trajectories.rollout_id"))
        query = f"""
            SELECT trajectories.*, rollouts.state, rollouts.drop_reason FROM trajectories
            JOIN rollouts ON rollouts.rollout_id = trajectories.rollout_id
            WHERE {where} ORDER BY trajectories.rollout_id DESC LIMIT :limit
        """
        return self._all(TrajectorySummary, query, limit=limit, **_values(wanted))

    def trajectory(self, rollout_id: int) -> Trajectory | None:
        """A finished episode with its steps; None when the rollout has none, or does not exist."""
        with self._reading() as connection:
            row = first(connection, ONE_TRAJECTORY, key=rollout_id)
        return None if row is None else self._with_steps(Trajectory, row)

    def evaluation_page(self, wanted: TrajectoryFilter, limit: int = PAGE) -> tuple[PlayedEvaluation, ...]:
        """Up to `limit` evaluation episodes with kept steps that the filter selects, newest first."""
        where = " AND ".join(_conditions(wanted, "evaluations.evaluation_id"))
        query = f"{EVALUATION_EPISODES} WHERE {where} ORDER BY evaluations.evaluation_id DESC LIMIT :limit"
        with self._reading() as connection:
            return tuple(map(_played, select(connection, query, limit=limit, **_values(wanted))))

    def evaluation_episode(self, evaluation_id: int) -> PlayedEvaluation | None:
        """One evaluation episode; None if none has this id, or if its steps were not kept."""
        with self._reading() as connection:
            row = first(
                connection, f"{EVALUATION_EPISODES} WHERE evaluations.evaluation_id = :key", key=evaluation_id
            )
            return None if row is None else _played(row)

    def fate(self, rollout_id: int) -> Fate | None:
        """One rollout with what is known about it; None if no rollout has this id."""
        with self._reading() as connection:
            row = first(connection, ONE_ROLLOUT, key=rollout_id)
            if row is None:
                return None
            return record_of(
                Fate,
                row,
                rollout=record_of(RolloutRecord, row),
                trained_version=scalar(connection, TRAINED_VERSION, key=row.batch_id),
                attempts=all_of(Attempt, connection, ATTEMPTS, key=rollout_id),
                group=tuple(scalars(connection, MEMBERS, key=row.group_id)),
            )

    def newest_attempts(self, limit: int = PAGE) -> tuple[Attempt, ...]:
        """The last `limit` attempts that ended without a reward, newest first."""
        return self._all(Attempt, NEWEST_ATTEMPTS, limit=limit)

    # events

    def newest_event_about(self, kind: str, subject: str, among: int = 5000) -> Event | None:
        """The last event of a kind about a subject; None if the newest `among` of the kind lack it."""
        return self._first(Event, NEWEST_EVENT_ABOUT, kind=kind, subject=subject, limit=among)

    def sampled_events(
        self, kind: str, begins_unix_s: float, ends_unix_s: float, subjects: int
    ) -> EventSample:
        """Events of a kind between two moments, or a sample if there are more than `EVENTS_WHOLE`.

        A sample has about two events of each subject at each of up to `SAMPLES` places. With many subjects
        the places are fewer, so that every subject occurs at each. Ask for a kind whose events hold totals,
        such as LOAD: the later events then include what the left-out ones counted, unless the subject was
        replaced between two places.

        subjects   number of subjects that have events of this kind
        """
        with self._reading() as connection:
            first = first_event_after(connection, begins_unix_s)
            last = first_event_after(connection, ends_unix_s)
            if first is None or last is None or last <= first:
                return EventSample()
            places, limit = [first], EVENTS_WHOLE
            if last - first > EVENTS_WHOLE:
                limit = 2 * max(1, subjects)
                count = max(2, min(SAMPLES, EVENTS_WHOLE // limit))
                places = [first + (last - first) * number // count for number in range(count)]
                places += [max(first, last - before * limit) for before in (2, 1)]  # all of the newest ones
            found = [
                all_of(Event, connection, EVENTS_FROM, kind=kind, last=last, place=place, limit=limit)
                for place in places
            ]
        of_id = {event.event_id: event for events in found for event in events}
        begins = [events[0].unix_s for events in found if events]
        return EventSample(
            events=tuple(of_id[event_id] for event_id in sorted(of_id)),
            apart_s=median([after - before for before, after in pairwise(begins)] or [0.0]),
        )

    # figures over time

    def began_unix_s(self) -> float | None:
        """When the record was begun; None before version 0 was added."""
        found = self._value(BEGAN)
        return None if found is None else float(found)

    def last_unix_s(self) -> float | None:
        """Time of the newest event, trajectory, spent attempt or version; None for an empty record."""
        with self._reading() as connection:
            found = [scalar(connection, query) for query in LAST_MOMENTS]
        return max((float(moment) for moment in found if moment is not None), default=None)

    def played_over_time(
        self,
        begins_unix_s: float,
        ends_unix_s: float,
        width_s: float,
        success_above: float,
        task_id: str | None = None,
    ) -> dict[int, tuple[int, int, int]]:
        """Numbers of stored episodes, successes and environment steps in each bin of `width_s`, by bin index.

        Bin 0 begins at `begins_unix_s`. Bins without episodes are left out. `task_id` None counts all tasks.
        """
        values = {
            "begins": begins_unix_s,
            "ends": ends_unix_s,
            "width": width_s,
            "success_above": success_above,
            "task": task_id,
        }
        with self._reading() as connection:
            return {
                int(place): tuple(counts) for place, *counts in connection.execute(PLAYED_OVER_TIME, values)
            }

    def played_by_task(
        self, begins_unix_s: float, ends_unix_s: float, width_s: float, success_above: float
    ) -> dict[str, dict[int, tuple[int, int, int]]]:
        """Return the numbers of `played_over_time` by task id. Tasks without episodes are left out."""
        values = {
            "begins": begins_unix_s,
            "ends": ends_unix_s,
            "width": width_s,
            "success_above": success_above,
        }
        found: dict[str, dict[int, tuple[int, int, int]]] = {}
        with self._reading() as connection:
            for task_id, place, *counts in connection.execute(PLAYED_BY_TASK, values):
                found.setdefault(task_id, {})[int(place)] = tuple(counts)
        return found

    def faults_over_time(
        self, begins_unix_s: float, ends_unix_s: float, width_s: float
    ) -> dict[str, dict[int, int]]:
        """Number of attempts that ended without a reward, by fault kind and then by index of the bin.

        Each bin is `width_s` long, and bin 0 begins at `begins_unix_s`. Bins without faults are left out.
        """
        values = {"begins": begins_unix_s, "ends": ends_unix_s, "width": width_s}
        found: dict[str, dict[int, int]] = {}
        with self._reading() as connection:
            for kind, place, count in connection.execute(FAULTS_OVER_TIME, values):
                found.setdefault(kind, {})[int(place)] = count
        return found

    def versions_between(
        self, begins_unix_s: float, ends_unix_s: float, most: int = VERSIONS_MOST
    ) -> tuple[Version, ...]:
        """Policy versions made between two moments, oldest first; only every n-th if more than `most`."""
        between = {"begins": begins_unix_s, "ends": ends_unix_s}
        with self._reading() as connection:
            every = -(-scalar(connection, f"SELECT count(*) {VERSIONS_WITHIN}", **between) // most) or 1
            query = f"SELECT * {VERSIONS_WITHIN} AND version % :every = 0 ORDER BY version"
            return all_of(Version, connection, query, every=every, **between)


def _played(row: Row) -> PlayedEvaluation:
    return record_of(PlayedEvaluation, row, play=record_of(EvaluationPlay, row))


def _conditions(wanted: TrajectoryFilter, key: str) -> Iterator[str]:
    yield "TRUE"
    if wanted.task_id is not None:
        yield "task_id = :task"
    if wanted.seed is not None:
        yield "seed = :seed"
    if wanted.outcome is not None:
        yield "outcome = :outcome"
    if wanted.is_success is not None:
        yield f"reward {'>' if wanted.is_success else '<='} :success_above"
    if wanted.before_id is not None:
        yield f"{key} < :before"


def _values(wanted: TrajectoryFilter) -> dict[str, Any]:
    return {
        "task": wanted.task_id,
        "seed": wanted.seed,
        "outcome": wanted.outcome,
        "success_above": wanted.success_above,
        "before": wanted.before_id,
    }
