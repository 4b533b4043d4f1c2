"""The record as a person looks through it: pages of trajectories, what became of one, figures over time.

Every query is bounded: by a page, by a number of bins, or by a sample where a run of weeks has more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Integer, Row, Select, cast, func, select
from sqlalchemy.engine import Connection

from dart.store.queries import ONE_ROLLOUT, read_event, read_rollout, read_version, steps_by_rollout
from dart.store.reader import StoreReader
from dart.store.records import Event, RolloutRecord, Version
from dart.store.rows import read_trajectory
from dart.store.schema import attempts, batches, events, groups, rollouts, trajectories, versions
from dart.types import Trajectory

PAGE = 50
"""Rows of a page."""

EVENTS_WHOLE = 12_000
"""With more events than this between two moments a sample of them is read."""

SAMPLES = 60
"""Places at which a sample is taken."""

VERSIONS_MOST = 400
"""Policy versions that are read for a chart; of more, every so many-th."""


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
    """Least policy version among its steps."""
    stored_unix_s: float
    duration_s: float
    state: str
    """Of its rollout: stored, trained or dropped."""
    drop_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which trajectories a page lists; None asks for nothing."""

    task_id: str | None = None
    outcome: str | None = None
    is_success: bool | None = None
    """By `success_above`."""
    success_above: float = 0.5
    before_id: int | None = None
    """Only rollouts with a smaller id: where the page before ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A try of an episode that ended without a reward."""

    rollout_id: int
    attempt: int
    environment: str | None
    fault_kind: str
    detail: str
    spent_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of one rollout, whether or not it has a trajectory."""

    rollout: RolloutRecord
    task_id: str
    seed: int
    step_cap: int
    drop_reason: str | None
    trained_version: int | None
    """The version its update made; None while it is not trained."""
    stored_unix_s: float | None
    attempts: tuple[Attempt, ...]
    """Spent without a reward, oldest first."""
    group: tuple[int, ...]
    """All rollouts of its group, itself included."""


class RunBrowser(StoreReader):
    """Read-only view of a record for people. Each method is one transaction. Raises StoreUnavailable."""

    # one trajectory, and lists of them

    def trajectory_page(self, wanted: Wanted, limit: int = PAGE) -> tuple[TrajectorySummary, ...]:
        """Finished episodes, newest rollout first."""
        query = (
            select(trajectories, rollouts.c.state, rollouts.c.drop_reason)
            .join(rollouts, rollouts.c.rollout_id == trajectories.c.rollout_id)
            .order_by(trajectories.c.rollout_id.desc())
            .limit(limit)
        )
        with self._transaction() as connection:
            rows = connection.execute(_narrowed(query, wanted)).all()
        return tuple(_summary(row) for row in rows)

    def trajectory(self, rollout_id: int) -> Trajectory | None:
        """A finished episode with its steps; None when the rollout has none, or does not exist."""
        query = select(trajectories).where(trajectories.c.rollout_id == rollout_id)
        with self._transaction() as connection:
            row = connection.execute(query).first()
            if row is None:
                return None
            return read_trajectory(row, steps_by_rollout(connection, [row])[rollout_id])

    def fate(self, rollout_id: int) -> Fate | None:
        """What became of a rollout; None when there never was one of this number."""
        with self._transaction() as connection:
            row = connection.execute(ONE_ROLLOUT, {"key": rollout_id}).first()
            if row is None:
                return None
            group = connection.execute(select(groups).where(groups.c.group_id == row.group_id)).one()
            return Fate(
                rollout=read_rollout(row),
                task_id=group.task_id,
                seed=group.seed,
                step_cap=group.step_cap,
                drop_reason=row.drop_reason,
                trained_version=_trained_version(connection, row.batch_id) if row.batch_id else None,
                stored_unix_s=_stored(connection, rollout_id),
                attempts=_attempts_of(connection, rollout_id),
                group=_members(connection, row.group_id),
            )

    def newest_attempts(self, limit: int = PAGE) -> tuple[Attempt, ...]:
        """What failed last, newest first."""
        query = select(attempts).order_by(attempts.c.spent_unix_s.desc()).limit(limit)
        with self._transaction() as connection:
            return tuple(_attempt(row) for row in connection.execute(query))

    # events

    def events_of(self, kinds: Iterable[str], subject: str | None = None, limit: int = PAGE) -> list[Event]:
        """The newest events of some kinds, about one subject or about all, newest first."""
        found: list[Event] = []
        with self._transaction() as connection:
            for (
                kind
            ) in kinds:  # each by the index of kinds; asked for at once, SQLite walks through the table
                query = select(events).where(events.c.kind == kind)
                if subject is not None:
                    query = query.where(events.c.subject == subject)
                rows = connection.execute(query.order_by(events.c.event_id.desc()).limit(limit))
                found += [read_event(row) for row in rows]
        return sorted(found, key=lambda event: -event.event_id)[:limit]

    def newest_event_about(self, kind: str, subject: str, among: int = 5000) -> Event | None:
        """The last event of a kind about a subject, among the newest of that kind."""
        newest = (
            select(events).where(events.c.kind == kind).order_by(events.c.event_id.desc()).limit(among)
        ).subquery()
        query = select(newest).where(newest.c.subject == subject).order_by(newest.c.event_id.desc()).limit(1)
        with self._transaction() as connection:
            row = connection.execute(query).first()
            return None if row is None else read_event(row)

    def sampled_events(
        self, kind: str, begins_unix_s: float, ends_unix_s: float, subjects: int
    ) -> tuple[Event, ...]:
        """Events of a kind between two moments: all, or a sample, about two of each subject at each place.

        For figures that only grow, such as the load: between two of them nothing is lost.
        """
        with self._transaction() as connection:
            first = _first_event_after(connection, begins_unix_s)
            last = _first_event_after(connection, ends_unix_s)
            if first is None or last is None or last <= first:
                return ()
            query = (
                select(events)
                .where(events.c.kind == kind, events.c.event_id < last)
                .order_by(events.c.event_id)
            )
            places, limit = [first], EVENTS_WHOLE
            if last - first > EVENTS_WHOLE:
                step, limit = (last - first) / SAMPLES, min(2 * subjects, EVENTS_WHOLE // SAMPLES)
                places = [first + int(step * number) for number in range(SAMPLES)]
                places.append(max(first, last - 2 * limit))
            found = {
                row.event_id: row
                for place in places
                for row in connection.execute(query.where(events.c.event_id >= place).limit(limit))
            }
            return tuple(read_event(found[event_id]) for event_id in sorted(found))

    # figures over time

    def began_unix_s(self) -> float | None:
        """When the record was begun; None before version 0 was added."""
        with self._transaction() as connection:
            found = connection.execute(select(func.min(versions.c.created_unix_s))).scalar()
            return None if found is None else float(found)

    def last_unix_s(self) -> float | None:
        """The newest moment the record knows of: an event, a trajectory or a version."""
        with self._transaction() as connection:
            newest = (
                select(events.c.unix_s).order_by(events.c.event_id.desc()).limit(1),
                select(func.max(trajectories.c.stored_unix_s)),
                select(func.max(versions.c.created_unix_s)),
            )
            found = [connection.execute(query).scalar() for query in newest]
        return max((float(moment) for moment in found if moment is not None), default=None)

    def played_over_time(
        self,
        begins_unix_s: float,
        ends_unix_s: float,
        width_s: float,
        success_above: float,
        task_id: str | None = None,
    ) -> dict[int, tuple[int, int, int]]:
        """Episodes, successes and environment steps that were stored, by bin of `width_s` from the begin."""
        place = cast((trajectories.c.stored_unix_s - begins_unix_s) / width_s, Integer)
        query = (
            select(
                place.label("place"),
                func.count().label("episodes"),
                func.sum(cast(trajectories.c.reward > success_above, Integer)).label("successes"),
                func.sum(trajectories.c.num_steps).label("steps"),
            )
            .where(trajectories.c.stored_unix_s >= begins_unix_s, trajectories.c.stored_unix_s <= ends_unix_s)
            .group_by(place)
        )
        if task_id is not None:
            query = query.where(trajectories.c.task_id == task_id)
        with self._transaction() as connection:
            return {row.place: (row.episodes, row.successes, row.steps) for row in connection.execute(query)}

    def successes_until(self, unix_s: float, last: int, success_above: float) -> tuple[int, int]:
        """Successes among the newest episodes stored until a moment, at most `last`; how many those are."""
        newest = (
            select(trajectories.c.reward)
            .where(trajectories.c.stored_unix_s <= unix_s)
            .order_by(trajectories.c.stored_unix_s.desc())
            .limit(last)
        )
        with self._transaction() as connection:
            rewards = connection.execute(newest).scalars().all()
        return sum(reward > success_above for reward in rewards), len(rewards)

    def faults_over_time(
        self, begins_unix_s: float, ends_unix_s: float, width_s: float
    ) -> dict[str, dict[int, int]]:
        """Attempts that were spent, by fault kind and bin."""
        place = cast((attempts.c.spent_unix_s - begins_unix_s) / width_s, Integer)
        query = (
            select(attempts.c.fault_kind, place.label("place"), func.count().label("count"))
            .where(attempts.c.spent_unix_s >= begins_unix_s, attempts.c.spent_unix_s <= ends_unix_s)
            .group_by(attempts.c.fault_kind, place)
        )
        found: dict[str, dict[int, int]] = {}
        with self._transaction() as connection:
            for row in connection.execute(query):
                found.setdefault(row.fault_kind, {})[row.place] = row._mapping["count"]
        return found

    def versions_between(
        self, begins_unix_s: float, ends_unix_s: float, most: int = VERSIONS_MOST
    ) -> tuple[Version, ...]:
        """Policy versions made between two moments, oldest first; of very many an even choice."""
        within = versions.c.created_unix_s.between(begins_unix_s, ends_unix_s)
        with self._transaction() as connection:
            count = connection.execute(select(func.count()).select_from(versions).where(within)).scalar_one()
            every = -(-count // most) or 1
            query = select(versions).where(within, versions.c.version % every == 0)
            return tuple(read_version(row) for row in connection.execute(query.order_by(versions.c.version)))


def _narrowed(query: Select[tuple[object, ...]], wanted: Wanted) -> Select[tuple[object, ...]]:
    if wanted.task_id is not None:
        query = query.where(trajectories.c.task_id == wanted.task_id)
    if wanted.outcome is not None:
        query = query.where(trajectories.c.outcome == wanted.outcome)
    if wanted.is_success is not None:
        is_success = trajectories.c.reward > wanted.success_above
        query = query.where(is_success if wanted.is_success else ~is_success)
    if wanted.before_id is not None:
        query = query.where(trajectories.c.rollout_id < wanted.before_id)
    return query


def _summary(row: Row[tuple[object, ...]]) -> TrajectorySummary:
    values: Mapping[Any, Any] = row._mapping
    return TrajectorySummary(**{name: values[name] for name in TrajectorySummary.__dataclass_fields__})


def _attempt(row: Row[tuple[object, ...]]) -> Attempt:
    values: Mapping[Any, Any] = row._mapping
    return Attempt(**{name: values[name] for name in Attempt.__dataclass_fields__})


def _attempts_of(connection: Connection, rollout_id: int) -> tuple[Attempt, ...]:
    query = select(attempts).where(attempts.c.rollout_id == rollout_id).order_by(attempts.c.attempt)
    return tuple(_attempt(row) for row in connection.execute(query))


def _members(connection: Connection, group_id: int) -> tuple[int, ...]:
    query = select(rollouts.c.rollout_id).where(rollouts.c.group_id == group_id)
    return tuple(connection.execute(query.order_by(rollouts.c.rollout_id)).scalars())


def _trained_version(connection: Connection, batch_id: int) -> int | None:
    return connection.execute(select(batches.c.version).where(batches.c.batch_id == batch_id)).scalar()


def _stored(connection: Connection, rollout_id: int) -> float | None:
    query = select(trajectories.c.stored_unix_s).where(trajectories.c.rollout_id == rollout_id)
    return connection.execute(query).scalar()


def _first_event_after(connection: Connection, unix_s: float) -> int | None:
    """The id of the first event at or after a moment, one above the last where there is none; None of none.

    By bisection: events are numbered as they are recorded, and there is no index of their times.
    """
    ends = connection.execute(select(func.min(events.c.event_id), func.max(events.c.event_id))).one()
    low, last = ends
    if low is None:
        return None
    high = last + 1
    while low < high:
        middle = (low + high) // 2
        query = select(events.c.event_id, events.c.unix_s).where(events.c.event_id >= middle)
        found = connection.execute(query.order_by(events.c.event_id).limit(1)).one()
        if found.unix_s < unix_s:
            low = found.event_id + 1
        else:
            high = middle
    return int(low)
