"""The one writer of the record.

Every public method is one transaction: it happens wholly or, whatever dies, not at all. A method whose
answer may get lost can be called again: the second call changes nothing and says so.

A rollout's life: LEASED (owned, or awaiting a new lease) -> STORED -> TRAINED, or DROPPED with a reason
from LEASED or STORED (invariant one-fate). The books are kept twice, by counter and by state.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from dart.store.engine import open_engine
from dart.store.errors import StoreConflict
from dart.store.migrations import migrate
from dart.store.queries import ONE_GROUP, leased_batch, newest_version
from dart.store.reader import StoreReader
from dart.store.records import BatchState, Commit, Evaluation, Finish, GroupState, Release, Relet
from dart.store.rows import check_trajectory, step_rows, trajectory_row
from dart.store.schema import (
    attempts,
    batches,
    counters,
    evaluations,
    events,
    groups,
    rollouts,
    steps,
    trajectories,
    versions,
)
from dart.types import FaultKind, RolloutLease, RolloutState, Trajectory

COUNT_UP = update(counters).where(counters.c.name == bindparam("counter")).values(value=counters.c.value + 1)
ROLLOUT = (
    select(
        rollouts,
        groups.c.task_id,
        groups.c.seed,
        groups.c.step_cap,
        trajectories.c.fence.label("stored_fence"),
    )
    .join(groups, groups.c.group_id == rollouts.c.group_id)
    .outerjoin(trajectories, trajectories.c.rollout_id == rollouts.c.rollout_id)
    .where(rollouts.c.rollout_id == bindparam("key"))
)
GROUP_ROLLOUTS = select(rollouts.c.rollout_id, rollouts.c.state).where(
    rollouts.c.group_id == bindparam("key")
)
BATCH = select(batches).where(batches.c.batch_id == bindparam("key"))
VERSION = select(versions).where(versions.c.version == bindparam("key"))

UPDATE_ROLLOUT = update(rollouts).where(rollouts.c.rollout_id == bindparam("key"))
STORE_ROLLOUT = UPDATE_ROLLOUT.values(state=RolloutState.STORED.value, environment=None)
UNOWN_ROLLOUT = UPDATE_ROLLOUT.values(environment=None)
DROP_ROLLOUT = UPDATE_ROLLOUT.values(
    state=RolloutState.DROPPED.value, environment=None, drop_reason=bindparam("reason")
)
RELET_ROLLOUT = UPDATE_ROLLOUT.values(
    environment=bindparam("owner"),
    deadline_unix_s=bindparam("deadline"),
    attempt=rollouts.c.attempt + 1,
    fence=rollouts.c.fence + 1,
)
DROP_GROUP = (
    update(groups)
    .where(groups.c.group_id == bindparam("key"))
    .values(state=GroupState.DROPPED.value, drop_reason=bindparam("reason"))
)
DROP_MEMBERS = (
    update(rollouts)
    .where(
        rollouts.c.group_id == bindparam("key"),
        rollouts.c.state.in_([RolloutState.LEASED.value, RolloutState.STORED.value]),
    )
    .values(state=RolloutState.DROPPED.value, environment=None, drop_reason=bindparam("reason"))
)
TRAIN_MEMBERS = (
    update(rollouts)
    .where(
        rollouts.c.group_id.in_(select(groups.c.group_id).where(groups.c.batch_id == bindparam("key"))),
        rollouts.c.state == RolloutState.STORED.value,
    )
    .values(state=RolloutState.TRAINED.value, batch_id=bindparam("key"))
)

Clock = Callable[[], float]


class Store(StoreReader):
    """The record of one run, opened for writing. Creates or migrates the database.

    Call it from one thread at a time. Raises StoreUnavailable (disk full, locked, damaged: nothing of the
    call was kept, it may be repeated) and StoreConflict (the call contradicts the record: nothing changed).
    """

    def __init__(self, path: Path, clock: Clock = time.time) -> None:
        self._clock = clock
        super().__init__(path)

    def _connect(self) -> Connection:
        with ExitStack() as on_failure:
            connection = on_failure.enter_context(open_engine(self.path, read_only=False).connect())
            with connection.begin():
                migrate(connection, self.path)
            on_failure.pop_all()
            return connection

    # groups and rollouts

    def open_group(
        self, task_id: str, seed: int, rollouts_wanted: int, step_cap: int, policy_version: int
    ) -> int:
        """Open a group of one task and seed; `policy_version` is the oldest one that any engine serves."""
        values = {
            "task_id": task_id,
            "seed": seed,
            "rollouts_wanted": rollouts_wanted,
            "step_cap": step_cap,
            "policy_version": policy_version,
            "state": GroupState.OPEN.value,
            "opened_unix_s": self._clock(),
        }
        with self._transaction() as connection:
            return insert_row(connection, groups, values)

    def lease_rollout(self, group_id: int, environment: str, deadline_unix_s: float) -> RolloutLease:
        """Issue the next rollout of a group; StoreConflict when all it wants were issued."""
        with self._transaction() as connection:
            group = self._group(connection, group_id)
            members = connection.execute(GROUP_ROLLOUTS, {"key": group_id}).all()
            if group.state != GroupState.OPEN or len(members) >= group.rollouts_wanted:
                raise StoreConflict(
                    f"group {group_id} is {group.state} with {len(members)} of {group.rollouts_wanted} "
                    "rollouts issued; no further one can be leased"
                )
            values = {
                "group_id": group_id,
                "state": RolloutState.LEASED.value,
                "environment": environment,
                "attempt": 1,
                "fence": 1,
                "deadline_unix_s": deadline_unix_s,
            }
            rollout_id = insert_row(connection, rollouts, values)
            connection.execute(COUNT_UP, {"counter": "issued"})
            return lease_of(self._rollout(connection, rollout_id))

    def relet_rollout(
        self, rollout_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease | Relet:
        """Lease a rollout that awaits another attempt. Its fence grows, so earlier leases are void."""
        with self._transaction() as connection:
            rollout = self._rollout(connection, rollout_id)
            if rollout.state != RolloutState.LEASED:
                return Relet.SETTLED
            if rollout.environment is not None:
                return Relet.OWNED
            values = {"key": rollout_id, "owner": environment, "deadline": deadline_unix_s}
            connection.execute(RELET_ROLLOUT, values)
            return lease_of(self._rollout(connection, rollout_id))

    def release_rollout(
        self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str, max_attempts: int
    ) -> Release:
        """Take a lease back: its attempt is spent. Drops the rollout when it was the last attempt."""
        with self._transaction() as connection:
            rollout = self._rollout(connection, rollout_id)
            if rollout.state != RolloutState.LEASED or rollout.fence != fence:
                return self._refuse_release(connection, rollout, fence)
            if rollout.environment is None:
                return Release.DUPLICATE
            self._spend_attempt(connection, rollout, fault_kind, detail)
            if rollout.attempt < max_attempts:
                connection.execute(UNOWN_ROLLOUT, {"key": rollout_id})
                return Release.AWAITING
            reason = f"attempts_spent:{fault_kind.value}"
            connection.execute(DROP_ROLLOUT, {"key": rollout_id, "reason": reason})
            return Release.DROPPED

    def _refuse_release(self, connection: Connection, rollout: Row[Any], fence: int) -> Release:
        if rollout.stored_fence == fence:
            return Release.SETTLED
        if rollout.fence == fence and rollout.state == RolloutState.DROPPED:
            return Release.DUPLICATE
        connection.execute(COUNT_UP, {"counter": "fenced"})
        return Release.FENCED

    def _spend_attempt(
        self, connection: Connection, rollout: Row[Any], fault_kind: FaultKind, detail: str
    ) -> None:
        values = {
            "rollout_id": rollout.rollout_id,
            "attempt": rollout.attempt,
            "environment": rollout.environment,
            "fault_kind": fault_kind.value,
            "detail": detail,
            "spent_unix_s": self._clock(),
        }
        connection.execute(insert(attempts), values)

    def finish_rollout(self, rollout_id: int, fence: int, trajectory: Trajectory) -> Finish:
        """Store a finished episode under the lease it was played with: steps, reward and state at once."""
        check_trajectory(trajectory)
        with self._transaction() as connection:
            rollout = self._rollout(connection, rollout_id)
            if rollout.stored_fence == fence:
                return Finish.DUPLICATE
            if rollout.state != RolloutState.LEASED or rollout.environment is None or rollout.fence != fence:
                connection.execute(COUNT_UP, {"counter": "fenced"})
                return Finish.FENCED
            check_same_rollout(rollout, trajectory)
            row = trajectory_row(trajectory, fence=fence, stored_unix_s=self._clock())
            connection.execute(insert(trajectories), row)
            connection.execute(insert(steps), step_rows(trajectory))
            connection.execute(STORE_ROLLOUT, {"key": rollout_id})
            return Finish.ACCEPTED

    def drop_group(self, group_id: int, reason: str) -> int:
        """Drop a group and what of it is leased or stored; returns how many rollouts that were."""
        with self._transaction() as connection:
            group = self._group(connection, group_id)
            if group.state == GroupState.DROPPED:
                return 0
            if group.state != GroupState.OPEN:
                raise StoreConflict(
                    f"group {group_id} is {group.state} in batch {group.batch_id}, not to drop"
                )
            connection.execute(DROP_GROUP, {"key": group_id, "reason": reason})
            return connection.execute(DROP_MEMBERS, {"key": group_id, "reason": reason}).rowcount

    # batches and versions

    def lease_batch(self, group_ids: Sequence[int]) -> int:
        """Lease complete groups to the trainer for one update; one batch at a time."""
        with self._transaction() as connection:
            if (leased := leased_batch(connection)) is not None:
                raise StoreConflict(f"batch {leased.batch_id} is still leased: commit or release it first")
            if not group_ids or len(set(group_ids)) != len(group_ids):
                raise StoreConflict(f"a batch needs groups, each once, got {list(group_ids)}")
            for group_id in group_ids:
                self._check_complete(connection, group_id)
            values = {"state": BatchState.LEASED.value, "leased_unix_s": self._clock()}
            batch_id = insert_row(connection, batches, values)
            connection.execute(
                update(groups)
                .where(groups.c.group_id.in_(group_ids))
                .values(state=GroupState.BATCHED.value, batch_id=batch_id)
            )
            return batch_id

    def _check_complete(self, connection: Connection, group_id: int) -> None:
        group = self._group(connection, group_id)
        states = [row.state for row in connection.execute(GROUP_ROLLOUTS, {"key": group_id})]
        missing = group.rollouts_wanted - len(states) + states.count(RolloutState.LEASED)
        if group.state != GroupState.OPEN or missing or RolloutState.STORED not in states:
            raise StoreConflict(
                f"group {group_id} cannot be trained: it is {group.state}; of its {group.rollouts_wanted} "
                f"rollouts {missing} are not settled and {states.count(RolloutState.STORED)} stored"
            )

    def release_batch(self, batch_id: int) -> None:
        """Give a batch back untrained: its groups are open again."""
        with self._transaction() as connection:
            batch = self._batch(connection, batch_id)
            if batch.state == BatchState.CONSUMED:
                raise StoreConflict(f"batch {batch_id} was consumed by version {batch.version}")
            set_batch(connection, batch_id, state=BatchState.RELEASED.value)
            connection.execute(
                update(groups)
                .where(groups.c.batch_id == batch_id)
                .values(state=GroupState.OPEN.value, batch_id=None)
            )

    def commit_update(
        self, batch_id: int, version: int, checkpoint: str, metrics: Mapping[str, float]
    ) -> Commit:
        """Consume a batch: its rollouts are trained and the version it made exists, at once.

        The checkpoint must be complete on disk before. Repeating the same commit is a duplicate; a second
        one for the batch, or a version that does not follow the newest, is a StoreConflict.
        """
        with self._transaction() as connection:
            batch = self._batch(connection, batch_id)
            if batch.state == BatchState.CONSUMED and batch.version == version:
                check_same_commit(self._version(connection, version), checkpoint)
                return Commit.DUPLICATE
            if batch.state != BatchState.LEASED:
                raise StoreConflict(
                    f"batch {batch_id} is {batch.state} (version {batch.version}), not leased"
                )
            check_follows(connection, version)
            self._insert_version(connection, version, checkpoint, metrics)
            set_batch(connection, batch_id, state=BatchState.CONSUMED.value, version=version)
            connection.execute(
                update(groups).where(groups.c.batch_id == batch_id).values(state=GroupState.CONSUMED.value)
            )
            connection.execute(TRAIN_MEMBERS, {"key": batch_id})
            return Commit.COMMITTED

    def add_version(self, checkpoint: str, metrics: Mapping[str, float] | None = None) -> Commit:
        """Record the base policy as version 0; all others come from `commit_update`."""
        with self._transaction() as connection:
            if (base := self._version(connection, 0)) is not None:
                check_same_commit(base, checkpoint)
                return Commit.DUPLICATE
            self._insert_version(connection, 0, checkpoint, metrics or {})
            return Commit.COMMITTED

    def _insert_version(
        self, connection: Connection, version: int, checkpoint: str, metrics: Mapping[str, float]
    ) -> None:
        values = {
            "version": version,
            "checkpoint": checkpoint,
            "metrics": json.dumps(dict(metrics)),
            "created_unix_s": self._clock(),
        }
        connection.execute(insert(versions), values)

    # what happened

    def record_evaluation(self, evaluation: Evaluation) -> bool:
        """Record one evaluation episode; False when this one is known, which keeps its first reward."""
        values = {
            "phase": evaluation.phase.value,
            "policy_version": evaluation.policy_version,
            "task_id": evaluation.task_id,
            "seed": evaluation.seed,
            "reward": evaluation.reward,
            "created_unix_s": self._clock(),
        }
        with self._transaction() as connection:
            known = sqlite_insert(evaluations).on_conflict_do_nothing()
            return connection.execute(known, values).rowcount == 1

    def record_event(self, kind: str, subject: str, data: Mapping[str, object] | None = None) -> int:
        """Record that something happened; returns the event's id."""
        values = {
            "unix_s": self._clock(),
            "kind": kind,
            "subject": subject,
            "data": json.dumps(dict(data or {})),
        }
        with self._transaction() as connection:
            return insert_row(connection, events, values)

    # rows by key

    def _rollout(self, connection: Connection, rollout_id: int) -> Row[Any]:
        return self._one(connection.execute(ROLLOUT, {"key": rollout_id}).first(), "rollout", rollout_id)

    def _group(self, connection: Connection, group_id: int) -> Row[Any]:
        return self._one(connection.execute(ONE_GROUP, {"key": group_id}).first(), "group", group_id)

    def _batch(self, connection: Connection, batch_id: int) -> Row[Any]:
        return self._one(connection.execute(BATCH, {"key": batch_id}).first(), "batch", batch_id)

    def _version(self, connection: Connection, version: int) -> Row[Any] | None:
        return connection.execute(VERSION, {"key": version}).first()


def insert_row(connection: Connection, table: Any, values: Mapping[str, Any]) -> int:
    """Insert a row and return its generated key."""
    key = connection.execute(insert(table), values).inserted_primary_key
    assert key is not None
    return int(key[0])


def set_batch(connection: Connection, batch_id: int, **values: Any) -> None:
    connection.execute(update(batches).where(batches.c.batch_id == batch_id).values(**values))


def lease_of(row: Row[Any]) -> RolloutLease:
    return RolloutLease(
        rollout_id=row.rollout_id,
        group_id=row.group_id,
        task_id=row.task_id,
        seed=row.seed,
        step_cap=row.step_cap,
        attempt=row.attempt,
        fence=row.fence,
        deadline_unix_s=row.deadline_unix_s,
    )


def check_same_rollout(rollout: Row[Any], trajectory: Trajectory) -> None:
    """A trajectory must be of the rollout, group, task and seed that were leased."""
    wanted = (rollout.rollout_id, rollout.group_id, rollout.task_id, rollout.seed)
    found = (trajectory.rollout_id, trajectory.group_id, trajectory.task_id, trajectory.seed)
    if wanted != found:
        raise StoreConflict(f"leased was (rollout, group, task, seed) {wanted}, the trajectory is of {found}")


def check_follows(connection: Connection, version: int) -> None:
    newest = newest_version(connection)
    if newest is None or version != newest.version + 1:
        have = "none" if newest is None else newest.version
        raise StoreConflict(f"version {version} does not follow the newest version {have}")


def check_same_commit(version: Row[Any] | None, checkpoint: str) -> None:
    if version is None or version.checkpoint != checkpoint:
        kept = None if version is None else version.checkpoint
        raise StoreConflict(f"this version was committed with checkpoint {kept!r}, not {checkpoint!r}")
