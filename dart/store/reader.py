"""Reading the record from any process, while one other process writes it."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dart.core.exploration import ExploredStep, HeldLease, LeaseEnd, ScreenNode
from dart.core.record_address import RecordAddress
from dart.core.records import (
    NO_EVENTS,
    RECENT_REWARDS,
    Batch,
    Conservation,
    DemonstrationSummary,
    Evaluation,
    EvaluationPhase,
    Event,
    EventCounts,
    FinishedEpisode,
    GroupRecord,
    RolloutRecord,
    Snapshot,
    TaskDecision,
    TaskStatistics,
    Totals,
    Version,
)
from dart.core.types import SUCCESS_ABOVE, Demonstration, Group, Step, Trajectory
from dart.store import queries, record_rules, row_damage
from dart.store.blobs import BlobStore, read_each
from dart.store.database import Connection, database_at
from dart.store.errors import BlobDamage, StepsLost, StoreBusy, StoreConflict, StoreUnavailable
from dart.store.migrations import check_current
from dart.store.patience import IMPATIENT, Patience, patiently
from dart.store.queries import all_of, execute, first, first_of, scalar, scalars, select
from dart.store.run_blobs import local_blobs
from dart.store.serialization import Row, record_of, screenshots_in, unpack_screen, unpack_steps

T = TypeVar("T")

Unpack = Callable[[bytes], tuple[Step, ...]]
"""A function that decodes packed steps, completely or only a part of each step."""

ALL = 2**31 - 1
"""A limit that is larger than any table, so that all rows are returned."""


class StoreReader:
    """Read-only view of a record that another process may be writing.

    Each method is one transaction and sees one state of the record; `one_state` makes several methods see the
    same state. Steps are blobs and are read after the transaction. Methods raise StoreUnavailable. Methods
    that return steps also raise what `BlobStore.read` raises.
    """

    def __init__(
        self, address: RecordAddress, patience: Patience = IMPATIENT, *, steps: BlobStore | None = None
    ) -> None:
        """
        patience   how long to wait while the record is busy
        steps      the blob store for steps; None: the folder `blobs` beside the record's file. For a record
                   on a server, methods that read steps need this argument
        """
        self.address = address
        self._patience = patience
        self._given_steps = steps
        self._is_in_one_state = False
        self._database = database_at(address)
        with self._database.errors():
            self._bare = patiently(self._open, patience.open_s)

    def _open(self) -> Connection:
        self._database.refuse_absent()
        with ExitStack() as on_failure:
            connection = self._database.connect(read_only=True)
            on_failure.callback(connection.close)
            check_current(connection, self.address)
            on_failure.pop_all()
            return connection

    def close(self) -> None:
        self._bare.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """In this context, which does not nest, all methods see the same state of the record.

        Keep it short: SQLite's write-ahead log grows while a state is held.
        """
        with self._database.errors(), self._one_state():
            self._is_in_one_state = True
            try:
                yield
            finally:
                self._is_in_one_state = False

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        state = nullcontext() if self._is_in_one_state else self._one_state()
        with self._database.errors(), state, self._readable():
            yield self._bare

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """In this context, raise StoreUnavailable, with the remedy, for a row with values of wrong types."""
        try:
            yield
        except (TypeError, ValueError) as error:
            raise StoreUnavailable(
                f"store {self.address} holds a row that cannot be read ({error}): "
                "`dartrl doctor --data --full` names every damaged row; restore a copy of the record"
            ) from error

    @property
    def _steps(self) -> BlobStore:
        if self._given_steps is None:
            assert isinstance(self.address, Path), f"{self.address}: the reader was made without `steps`"
            self._given_steps = local_blobs(self.address.parent).steps
        return self._given_steps

    @contextmanager
    def _one_state(self) -> Iterator[None]:
        """Make every query in the block see the same state of the record."""
        patiently(self._begin_reading, self._patience.read_s)
        try:
            yield
        finally:
            self._bare.rollback()  # nothing was written

    def _begin_reading(self) -> None:
        """Begin a read transaction. If the connection has ended, open another one first."""
        try:
            self._bare.execute(self._database.begin_reading)
        except StoreBusy:
            if not self._database.is_lost(self._bare):
                raise
            self._renew()
            self._bare.execute(self._database.begin_reading)

    def _renew(self) -> None:
        """Replace a connection that has ended by a new one."""
        self.close()
        self._bare = self._open()

    # for the trainer

    def latest_version(self) -> Version | None:
        """The newest policy version; None before version 0 was added."""
        return self._first(Version, queries.NEWEST_VERSION)

    def open_batch(self) -> Batch | None:
        """The batch that is leased to the trainer; None if there is none."""
        with self._reading() as connection:
            return queries.leased_batch(connection)

    def groups_to_trajectories(self, group_ids: Sequence[int]) -> tuple[Group, ...]:
        """The groups, in this order, with their stored or trained trajectories and their demonstrations.

        Raises StepsLost, which names the groups whose steps cannot be read, and StoreConflict for groups that
        do not exist.
        """
        with self._reading() as connection:
            found = select(connection, queries.GROUPS, keys=list(group_ids))
            rows = {row.group_id: row for row in found}
            if missing := set(group_ids) - rows.keys():
                raise StoreConflict(f"store {self.address} has no groups {sorted(missing)}")
            kept = select(connection, queries.KEPT_TRAJECTORIES, keys=list(group_ids))
            demonstrations = select(connection, queries.GROUP_DEMONSTRATIONS, keys=list(group_ids))
        steps = self._steps_of(kept, demonstrations)
        with self._readable():
            played: defaultdict[int, list[Trajectory]] = defaultdict(list)
            for row in kept:
                played[row.group_id].append(record_of(Trajectory, row, steps=steps[row.steps_sha256]))
            shown: defaultdict[int, list[Demonstration]] = defaultdict(list)
            for row in demonstrations:
                shown[row.group_id].append(record_of(Demonstration, row, steps=steps[row.steps_sha256]))
        return tuple(
            Group(
                group_id=group_id,
                task_id=rows[group_id].task_id,
                seed=rows[group_id].seed,
                trajectories=tuple(played[group_id]),
                demonstrations=tuple(shown[group_id]),
            )
            for group_id in group_ids
        )

    def _steps_of(self, kept: Sequence[Row], demonstrations: Sequence[Row]) -> dict[str, tuple[Step, ...]]:
        """The steps that these rows name, by the sha256 of their blobs. Raises StepsLost."""

        def read(sha256: str) -> tuple[Step, ...] | BlobDamage:
            try:
                return self.steps(sha256)
            except BlobDamage as damage:
                return damage

        names = dict.fromkeys(row.steps_sha256 for row in (*kept, *demonstrations))
        found = read_each(self._steps, read, names)
        lost = {sha256: one for sha256, one in found.items() if isinstance(one, BlobDamage)}
        if lost:
            raise StepsLost(
                {row.group_id for row in (*kept, *demonstrations) if row.steps_sha256 in lost},
                {row.pool_id for row in demonstrations if row.steps_sha256 in lost},
                lost.values(),
            )
        return {sha256: one for sha256, one in found.items() if not isinstance(one, BlobDamage)}

    # for the curator and environments

    def snapshot(self, recent_rewards: int = RECENT_REWARDS) -> Snapshot:
        """Everything that a restarted curator needs, with the last `recent_rewards` rewards of every task."""
        with self._reading() as connection:
            return Snapshot(
                groups=queries.read_groups(connection, queries.IS_LIVE),
                tasks=queries.statistics_of_tasks(connection, recent_rewards),
                batch=queries.leased_batch(connection),
                version=scalar(connection, queries.LAST_VERSION),
            )

    def rollout(self, rollout_id: int) -> RolloutRecord:
        """The present state of one rollout. Raises StoreConflict if it does not exist."""
        with self._reading():
            return record_of(RolloutRecord, self._one(queries.ONE_ROLLOUT, "rollout", rollout_id))

    def group(self, group_id: int) -> GroupRecord:
        """One group with its rollouts. Raises StoreConflict if it does not exist."""
        with self._reading() as connection:
            self._one(queries.ONE_GROUP, "group", group_id)
            (group,) = queries.read_groups(connection, "groups.group_id = :key", key=group_id)
            return group

    def parked_steps(self, rollout_id: int) -> tuple[Step, ...]:
        """The parked steps of a rollout, oldest first; empty if it is not parked."""
        sha256 = self._value(queries.PARKED_STEPS, key=rollout_id)
        return () if sha256 is None else self.steps(sha256)

    def finished_episodes(
        self, after: FinishedEpisode | None = None, limit: int = ALL
    ) -> tuple[FinishedEpisode, ...]:
        """Stored trajectories without their steps, in the order in which they were stored.

        after   only those that were stored after this one; None: from the first one on
        """
        since_unix_s, rollout_id = (after.stored_unix_s, after.rollout_id) if after else (0.0, 0)
        return self._all(
            FinishedEpisode,
            queries.FINISHED_EPISODES,
            since_unix_s=since_unix_s,
            after=rollout_id,
            limit=limit,
        )

    # steps

    def steps(self, sha256: str, unpack: Unpack = unpack_steps) -> tuple[Step, ...]:
        """The steps in a blob, checked by its hash. Raises BlobMissing, BlobCorrupt, StoreUnavailable."""
        with self._readable():
            return unpack(self._steps.read(sha256))

    def _with_steps(self, cls: type[T], row: Row) -> T:
        """Make an object of the class `cls` from a row and from the steps that the row names."""
        steps = self.steps(row.steps_sha256)
        with self._readable():
            return record_of(cls, row, steps=steps)

    def task_statistics(self, recent_rewards: int = RECENT_REWARDS) -> tuple[TaskStatistics, ...]:
        """Statistics of every task that had a group, a decision or a demonstration, sorted by name.

        Each has at most its `recent_rewards` newest rewards.
        """
        with self._reading() as connection:
            return queries.statistics_of_tasks(connection, recent_rewards)

    def decisions(self, task_id: str | None = None, limit: int = 1000) -> tuple[TaskDecision, ...]:
        """The last `limit` decisions about one task, or about all, newest last."""
        query = queries.DECISIONS if task_id is None else queries.DECISIONS_OF_TASK
        return self._all(TaskDecision, query, limit=limit, task=task_id)[::-1]

    def demonstrations(self, task_id: str | None = None) -> tuple[DemonstrationSummary, ...]:
        """The demonstrations of one task, or of all, dropped ones included, without their steps."""
        return self._all(DemonstrationSummary, queries.DEMONSTRATIONS, task=task_id)

    def demonstration(self, pool_id: int) -> Demonstration:
        """One demonstration with its steps. Raises StoreConflict if it does not exist."""
        with self._reading():
            row = self._one(queries.IN_POOL, "demonstration", pool_id)
        return self._with_steps(Demonstration, row)

    # for exploration

    def screens(self, task_id: str, seed: int, since_id: int = 0) -> tuple[ScreenNode, ...]:
        """The screens of an exploration with ids above `since_id`, in the order in which they were found."""
        with self._reading() as connection:
            rows = select(connection, queries.SCREENS_SINCE, task=task_id, seed=seed, since_id=since_id)
            return tuple(record_of(ScreenNode, row, screen=unpack_screen(row.view)) for row in rows)

    def explored_steps(self, task_id: str, seed: int, since_id: int = 0) -> tuple[ExploredStep, ...]:
        """The steps of an exploration with ids above `since_id`, oldest first."""
        return self._all(
            ExploredStep, queries.EXPLORED_STEPS_SINCE, task=task_id, seed=seed, since_id=since_id
        )

    def held_leases(self) -> tuple[HeldLease, ...]:
        """The leases of screens that explorers hold now."""
        return self._all(HeldLease, queries.HELD_LEASES)

    def unreached_screens(self, least: int) -> frozenset[int]:
        """Ids of the screens that explorers failed to reach by the known way at least `least` times."""
        with self._reading() as connection:
            ended = LeaseEnd.UNREACHED.value
            return frozenset(scalars(connection, queries.UNREACHED_GOALS, ended=ended, least=least))

    def explorations(self) -> tuple[tuple[str, int], ...]:
        """Task and seed of every exploration."""
        with self._reading() as connection:
            return tuple((row.task_id, row.seed) for row in select(connection, queries.EXPLORATIONS))

    # for checks, commands and pages

    def conservation(self) -> Conservation:
        """Numbers of rollouts, issued and by fate (invariant one-fate), as counters and tallies have them.

        `integrity` counts the rows instead.
        """
        with self._reading() as connection:
            return record_rules.conservation(connection, queries.tally(connection, "state"))

    def integrity(
        self, staleness_bound: int | None = None, since_version: int = 0
    ) -> tuple[record_rules.Finding, ...]:
        """Every contradiction in the record; empty when it is sound.

        With a staleness bound, the result includes rollouts that were too stale when they were trained for a
        version after `since_version`.
        """
        with self._reading() as connection:
            return (
                *record_rules.violations(connection, staleness_bound, since_version),
                *record_rules.found_by(self._database.references(), connection),
            )

    def damaged_rows(self, *, full: bool) -> list[record_rules.Finding]:
        """A finding for each row that differs from what was written.

        full   check all rows, and the database itself; else only rows that the run still needs
        """
        with self._reading() as connection:
            own = list(record_rules.found_by(self._database.checks(), connection)) if full else []
        return own + row_damage.damaged_rows(self._reading, self._steps, full=full)

    def screenshots(self, *, full: bool) -> frozenset[str]:
        """The sha256 of every screenshot of live groups, parked episodes and demonstrations.

        full   also of all other trajectories, except those whose screenshots may have been deleted

        Damaged steps are left out, because `damaged_rows` names them.
        """
        with self._reading() as connection:
            sha256s = (
                scalars(
                    connection, queries.STEPS_WITH_SCREENSHOTS, since_unix_s=_screenshots_since(connection)
                )
                if full
                else scalars(connection, queries.STEPS_NEEDED)
            )
        found: set[str] = set()
        for sha256 in set(sha256s):
            with suppress(ValueError, BlobDamage):
                found |= screenshots_in(self._steps.read(sha256))
        return frozenset(found)

    def screenshots_since_unix_s(self) -> float:
        """The time before which groups were opened that may lack screenshots; 0 if none were deleted."""
        with self._reading() as connection:
            return _screenshots_since(connection)

    def unnamed_steps(self, sha256s: Collection[str]) -> frozenset[str]:
        """Those of the given blobs of steps that no row of the record names."""
        with self._reading() as connection:
            return frozenset(sha256s).difference(
                scalars(connection, queries.NAMED_STEPS, sha256s=list(sha256s))
            )

    def oldest_lease_deadline_unix_s(self) -> float | None:
        """The earliest deadline of the leases that environments hold; None if they hold none."""
        deadline: float | None = self._value(queries.OLDEST_LEASE)
        return deadline

    def totals(
        self, last: int = 100, now_unix_s: float | None = None, success_above: float = SUCCESS_ABOVE
    ) -> Totals:
        """The totals for the live view of a run; the success rate is that of the last `last` episodes."""
        now = time.time() if now_unix_s is None else now_unix_s
        window = {"begins": 0.0, "ends": math.inf, "most": last, "success_above": success_above}
        with self._reading() as connection:
            successes, episodes = connection.execute(queries.SUCCESS_WITHIN, window).fetchone()
            return Totals(
                trajectories=scalar(connection, queries.FINISHED),
                steps=scalar(connection, queries.STEPS_PLAYED),
                recent_success=successes / episodes if episodes else None,
                steps_per_minute=float(scalar(connection, queries.STEPS_SINCE, since_unix_s=now - 60.0)),
                outcomes=queries.tally(connection, "outcome"),
                faults=queries.tally(connection, "fault"),
                drops=queries.tally(connection, "drop"),
            )

    def episodes_finished(self) -> int:
        """Number of trajectories ever stored."""
        return int(self._value(queries.FINISHED))

    def success_within(
        self, begins_unix_s: float, ends_unix_s: float, most: int, success_above: float
    ) -> tuple[int, int]:
        """Numbers of successes and of trajectories among the `most` newest that were stored in this time.

        The time is from `begins_unix_s` until before `ends_unix_s`.
        """
        window = {"begins": begins_unix_s, "ends": ends_unix_s}
        with self._reading() as connection:
            values = {**window, "most": most, "success_above": success_above}
            successes, episodes = connection.execute(queries.SUCCESS_WITHIN, values).fetchone()
        return successes, episodes

    def steps_played(self) -> int:
        """Environment steps of all trajectories ever stored."""
        return int(self._value(queries.STEPS_PLAYED))

    def versions(self, first: int = 0, limit: int = ALL) -> tuple[Version, ...]:
        """The policy versions from `first` on, oldest first, `limit` at most."""
        return self._all(Version, queries.VERSIONS, first=first, limit=limit)

    def evaluations(self, phase: EvaluationPhase | None = None) -> tuple[Evaluation, ...]:
        """Evaluation episodes of one phase, or of all, in the order in which they were recorded."""
        return self._all(Evaluation, queries.EVALUATIONS, phase=phase)

    def rewards_over_time(self) -> list[tuple[str, float, float]]:
        """Of every trajectory: task, reward and the Unix time at which it was stored; oldest first."""
        with self._reading() as connection:
            return list(connection.execute(queries.REWARDS_OVER_TIME))

    def event_counts(self, kinds: Collection[str], known: EventCounts = NO_EVENTS) -> EventCounts:
        """Number of events of each of these kinds. LOAD must not be one, because its old events are deleted.

        known   an earlier result for the same kinds, to which only newer events are added
        """
        with self._reading() as connection:
            newest = scalar(connection, queries.NEWEST_EVENT_ID) or 0
            before = known if known.newest_id <= newest else NO_EVENTS  # the record was replaced
            query = queries.EVENT_COUNTS_SINCE if before.newest_id else queries.EVENT_COUNTS
            values = {"kinds": list(kinds), "since_id": before.newest_id}
            counts = Counter(before.of_kind)
            counts.update(dict(execute(connection, query, values).fetchall()))
        return EventCounts(newest_id=newest, of_kind=dict(counts))

    def find_events(
        self,
        *,
        since_unix_s: float = 0.0,
        subject: str | None = None,
        kinds: Collection[str] | None = None,
        without: Collection[str] = (),
        limit: int = 1000,
    ) -> tuple[Event, ...]:
        """The newest events that fit, oldest first.

        kinds     only events of these kinds; None for all kinds
        without   no events of these kinds
        """
        asked = {"since_unix_s": since_unix_s, "subject": subject, "limit": limit}
        found: list[Any] = []
        with self._reading() as connection:
            asked["first"] = queries.first_event_after(connection, since_unix_s) if since_unix_s > 0 else 0
            all_kinds = kinds if kinds is not None else scalars(connection, queries.KINDS_OF_EVENTS)
            # One query per kind, by the index of kinds: in a long run nearly all events are LOAD.
            for kind in set(all_kinds) - set(without):
                found += select(connection, queries.EVENTS_OF_KIND, kind=kind, **asked)
            newest = sorted(found, key=lambda row: row.event_id)[-limit:]
            return tuple(record_of(Event, row) for row in newest)

    def newest_event(self, kind: str) -> Event | None:
        """The last event of a kind; None before the first."""
        return self._first(Event, queries.NEWEST_EVENT, kind=kind)

    def drops_by_task(self) -> dict[str, dict[str, int]]:
        """Number of dropped groups, by task and reason."""
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        with self._reading() as connection:
            for row in select(connection, queries.TALLY, what="group_drop"):
                found[row.task_id][row.name] = row.value
        return dict(found)

    def parkings(self) -> tuple[int, int]:
        """How often episodes were ever parked, and how many episodes are parked now."""
        with self._reading() as connection:
            ever = queries.tally(connection, "parking").get("", 0)
            return ever, scalar(connection, queries.PARKED_NOW)

    def _all(self, cls: type[T], sql: str, **values: Any) -> tuple[T, ...]:
        with self._reading() as connection:
            return all_of(cls, connection, sql, **values)

    def _first(self, cls: type[T], sql: str, **values: Any) -> T | None:
        with self._reading() as connection:
            return first_of(cls, connection, sql, **values)

    def _value(self, sql: str, **values: Any) -> Any:
        with self._reading() as connection:
            return scalar(connection, sql, **values)

    def _one(self, sql: str, kind: str, key: int) -> Row:
        """The row with this key. Raises StoreConflict if there is none."""
        row = first(self._bare, sql, key=key)
        if row is None:
            raise StoreConflict(f"store {self.address} has no {kind} {key}")
        return row


def _screenshots_since(connection: Connection) -> float:
    return float(scalar(connection, queries.COUNTER, counter=queries.SCREENSHOTS_SINCE) or 0)
