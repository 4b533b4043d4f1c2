"""The only writer of the record.

Every public method is one transaction: it takes effect completely or not at all, even if a process dies
meanwhile. If the result of a reporting method such as `finish_rollout` or `commit_update` is lost, call the
method again: the second call changes nothing, and its result says so. `Store.write` carries out a message,
which is a call of one of these methods.

The number of issued rollouts has a counter of its own, independent of the states of rollouts.
`dart.store.record_rules` compares the two.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from sqlalchemy import bindparam, insert, text

from dart.core import messages as m
from dart.core.records import Evaluation, EvaluationPlay, RolloutChange, StoredResult, TaskDecision
from dart.core.types import Step
from dart.store import schema
from dart.store.batch_leases import BatchLeases
from dart.store.demonstration_writer import DemonstrationWriter
from dart.store.errors import BlobDamage, StoreConflict
from dart.store.event_retention import (
    LEAST_LOOK_S,
    LOOK_EVENTS,
    TIERS,
    Stretch,
    Thinned,
    grown_old,
    last_of_incarnations,
)
from dart.store.exploration_writer import ExplorationWriter
from dart.store.queries import (
    EVALUATION_ID,
    ONE_EVENT_FROM,
    SCREENSHOTS_OF_SCREENS,
    SCREENSHOTS_SINCE,
    STEPS_NEEDED,
    first_event_after,
    scalar,
    scalars,
    select,
)
from dart.store.reader import Unpack
from dart.store.rollout_leases import RolloutLeases
from dart.store.screenshot_sweep import ScreenshotsKept
from dart.store.serialization import evaluation_play_row, row_of, unpack_steps, unpack_without_prompts
from dart.store.steps_sweep import SPARED_S, deletes_before_unix_s, sweep
from dart.telemetry.load_meter import LOAD

T = TypeVar("T")

METHODS: Mapping[type[m.Call[Any]], str] = {
    m.OpenGroup: "open_group",
    m.LeaseRollout: "lease_rollout",
    m.ReassignRollout: "reassign_rollout",
    m.ReleaseRollout: "release_rollout",
    m.FinishRollout: "finish_rollout",
    m.ParkRollout: "park_rollout",
    m.ForgetParked: "forget_parked",
    m.DropGroup: "drop_group",
    m.UseDemonstration: "use_demonstration",
    m.RecordGuided: "record_guided",
    m.LeaseBatch: "lease_batch",
    m.ReassignBatch: "reassign_batch",
    m.CommitUpdate: "commit_update",
    m.RefuseBatch: "refuse_batch",
    m.RecordEvaluation: "record_evaluation",
    m.RecordDecisions: "record_decisions",
    m.RecordEvents: "record_events",
    m.LeaseScreen: "lease_screen",
    m.EndExplorationLease: "end_exploration_lease",
    m.RecordExplored: "record_explored",
}
"""The method of `Store` for each call. The fields of the call are the arguments of the method."""

SHOW_ROWS = (m.OpenGroup, m.LeaseRollout, m.ReassignRollout, m.ReleaseRollout)
"""Calls whose results also contain the group or rollout as it is after the call, for the curator's index."""

RECOUNT_SUCCESSES = text("""
    UPDATE task_statistics SET longest_success_steps = (
        SELECT max(num_steps) FROM trajectories
        WHERE trajectories.task_id = task_statistics.task_id AND reward > :success_above)
""")

GIVE_UP_SCREENSHOTS = text(f"""
    UPDATE counters SET value = :since WHERE name = '{SCREENSHOTS_SINCE}' AND value < :since
""")

FORGET_EVALUATIONS = (
    text("""
        DELETE FROM evaluation_episodes WHERE evaluation_id IN (
            SELECT evaluation_id FROM evaluations WHERE policy_version = :version)
    """),
    text("DELETE FROM evaluations WHERE policy_version = :version"),
)

EVENTS_WITHIN = """
    SELECT event_id, subject, unix_s, data FROM events
    WHERE kind = :kind AND event_id >= :first AND event_id < :end ORDER BY event_id
"""
THIN_EVENTS = text("""
    DELETE FROM events WHERE kind = :kind AND event_id >= :first AND event_id < :end AND event_id NOT IN (
        SELECT max(event_id) FROM events WHERE kind = :kind AND event_id >= :first AND event_id < :end
        GROUP BY subject, floor(unix_s / :every_s))
    AND event_id NOT IN :kept
""").bindparams(bindparam("kept", expanding=True))


class Store(RolloutLeases, BatchLeases, DemonstrationWriter, ExplorationWriter):
    """The record of one run, opened for writing. It is created unless `create` is false, and migrated.

    Call it from one thread at a time. Methods raise StoreUnavailable if the database cannot be written (disk
    full, locked, damaged), and StoreConflict if the call contradicts the record. Then nothing is changed,
    unless the message says otherwise.
    """

    def write(self, call: m.Call[T]) -> T:
        """Carry out a call and return its result. Rows in the result are read in the call's transaction."""
        with self._transaction() if isinstance(call, SHOW_ROWS) else nullcontext():
            result = getattr(self, METHODS[type(call)])(**self._arguments_of(call))
            match cast(Any, call):
                case m.OpenGroup():
                    result = self.group(result)
                case m.LeaseRollout():
                    result = RolloutChange(result=result, rollout=self.rollout(result.rollout_id))
                case m.ReassignRollout(rollout_id=rollout_id) | m.ReleaseRollout(rollout_id=rollout_id):
                    result = RolloutChange(result=result, rollout=self.rollout(rollout_id))
        return cast(T, result)

    def _arguments_of(self, call: Any) -> dict[str, Any]:
        """The fields of a call by name, with the steps instead of their sha256.

        Steps of a rollout whose lease has ended are not read, because they may have been deleted.
        """
        given = {field.name: getattr(call, field.name) for field in fields(call)}
        match call:
            case m.FinishRollout():
                given["trajectory"] = replace(call.trajectory, steps=self._reported_steps(call))
            case m.ParkRollout():
                given["steps"] = self._reported_steps(call)
            case m.RecordGuided():
                given["steps"] = self._sent_steps(call.steps_sha256)
        return given

    def _reported_steps(self, call: m.FinishRollout | m.ParkRollout) -> tuple[Step, ...]:
        """The steps of a call without their prompts, for checks; empty if the lease of the call has ended."""
        is_held = self.is_held(call.rollout_id, call.fence)
        return self._sent_steps(call.steps_sha256, unpack_without_prompts) if is_held else ()

    def _sent_steps(self, sha256: str, unpack: Unpack = unpack_steps) -> tuple[Step, ...]:
        """The steps that a call names by sha256. Raises StoreConflict if their blob is missing or damaged."""
        try:
            return self.steps(sha256, unpack)
        except BlobDamage as damage:
            raise StoreConflict(f"{damage}; store the steps before you report them") from damage

    def sweep_steps(self, shard: int, lease_s: float) -> int:
        """Delete blobs of steps that no row names and no sender can still report; returns how many.

        shard     the shard of the blobs to look at, 0 to `SHARDS` - 1
        lease_s   how long a lease lasts
        """
        self._database.sync()  # or a loss of power brings back rows whose blobs are gone
        oldest = self.oldest_lease_deadline_unix_s()
        before_unix_s = deletes_before_unix_s(self._clock(), oldest, lease_s)
        return sweep(self._steps, shard, before_unix_s, self.unnamed_steps)

    def give_up_screenshots(self, kept_s: float, lease_s: float) -> ScreenshotsKept:
        """Record that screenshots which are older than `kept_s` may be deleted; returns which must stay.

        lease_s   how long a lease lasts: what was put under a lease that is held stays
        """
        now_unix_s = self._clock()
        with self._transaction():
            held_unix_s = deletes_before_unix_s(now_unix_s, self.oldest_lease_deadline_unix_s(), lease_s)
            since_unix_s = min(now_unix_s - kept_s, held_unix_s)
            self._insert_new(schema.counters, {"name": SCREENSHOTS_SINCE, "value": 0})
            self._execute(GIVE_UP_SCREENSHOTS, since=math.ceil(since_unix_s + SPARED_S))  # clocks differ
            kept = ScreenshotsKept(
                since_unix_s,
                steps=frozenset(scalars(self._bare, STEPS_NEEDED)),
                named=frozenset(scalars(self._bare, SCREENSHOTS_OF_SCREENS)),
            )
        self._database.sync()  # or a loss of power brings back groups whose screenshots are gone
        return kept

    def recount_successes(self) -> None:
        """Find the longest success of every task again, because `success_above` may have changed."""
        with self._transaction():
            self._execute(RECOUNT_SUCCESSES, success_above=self._success_above)

    def record_decisions(self, decisions: Sequence[TaskDecision], drops: Sequence[m.DropGroup] = ()) -> int:
        """Record decisions about tasks, and drop groups because of them; returns how many decisions are new.

        A repeated decision is kept once.
        """
        with self._transaction():
            for drop in drops:
                self.drop_group(drop.group_id, drop.reason)
            for task_id in {decision.task_id for decision in decisions}:
                self._know_task(task_id)
            return sum(self._insert_new(schema.decisions, row_of(one)) for one in decisions)

    def record_evaluation(self, evaluation: Evaluation, play: EvaluationPlay | None = None) -> StoredResult:
        """Record an evaluation episode and, if `play` is given, how it was played.

        Returns DUPLICATE, and keeps the first reward and play, if it is recorded already.
        """
        values = row_of(evaluation)
        with self._transaction():
            if not self._insert_new(schema.evaluations, values | {"created_unix_s": self._clock()}):
                return StoredResult.DUPLICATE
            if play is not None:
                key = scalar(self._bare, EVALUATION_ID, **values)
                self._insert(schema.evaluation_episodes, **evaluation_play_row(play, key))
            return StoredResult.ACCEPTED

    def forget_evaluations(self, version: int) -> None:
        """Delete the results of evaluations that measured this version, because its weights are lost."""
        with self._transaction():
            for statement in FORGET_EVALUATIONS:
                self._execute(statement, version=version)

    def record_event(self, kind: str, subject: str, data: Mapping[str, object] | None = None) -> int:
        """Record that something happened; returns the event's id."""
        with self._transaction():
            return self._insert_event(kind, subject, data or {})

    def record_events(self, events: Sequence[m.EventDraft]) -> int:
        """Record events in this order; returns how many."""
        rows = [self._event_row(event.kind, event.subject, event.data) for event in events]
        with self._transaction():
            if rows:
                self._connection.execute(insert(schema.events), rows)
            return len(rows)

    def thin_events(self, looked_unix_s: float | None = None) -> Thinned:
        """Delete old events that `dart.store.event_retention` does not keep, after a look at `LOOK_EVENTS`.

        looked_unix_s  the moment until which the last deletion looked; None: it begins with the oldest event
        """
        now_unix_s = self._clock()
        with self._transaction():
            since_unix_s = self._event_unix_s(0, now_unix_s) if looked_unix_s is None else looked_unix_s
            until_unix_s = min(self._looks_end_unix_s(since_unix_s, now_unix_s))
            # At least a little further, also where a clock was set back and later events are older.
            until_unix_s = min(now_unix_s, max(until_unix_s, since_unix_s + LEAST_LOOK_S))
            deleted = sum(self._thin(stretch) for stretch in grown_old(until_unix_s, since_unix_s))
        return Thinned(deleted, until_unix_s, is_behind=until_unix_s < now_unix_s)

    def _looks_end_unix_s(self, since_unix_s: float, now_unix_s: float) -> Iterator[float]:
        """For each age of `TIERS`: the moment at which `LOOK_EVENTS` more events have reached it."""
        for age_s, _ in TIERS:
            first = first_event_after(self._bare, since_unix_s - age_s) or 0
            yield self._event_unix_s(first + LOOK_EVENTS, now_unix_s) + age_s

    def _event_unix_s(self, first: int, now_unix_s: float) -> float:
        """The time of the first event with an id of at least `first`; now if there is none."""
        found = self._bare.execute(ONE_EVENT_FROM, {"first": first}).fetchone()
        return now_unix_s if found is None else float(found[1])

    def _thin(self, stretch: Stretch) -> int:
        first, end = (first_event_after(self._bare, at) for at in (stretch.begin_unix_s, stretch.end_unix_s))
        span = {"kind": LOAD, "first": first, "end": end}
        kept = last_of_incarnations(select(self._bare, EVENTS_WITHIN, **span))
        return int(self._execute(THIN_EVENTS, **span, every_s=stretch.keep_every_s, kept=kept).rowcount)
