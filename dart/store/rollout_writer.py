"""The writer's part about groups and rollouts: leases with fencing tokens, parking, and what became of each.

A rollout's life: LEASED (owned, or awaiting a new lease) -> STORED -> TRAINED, or DROPPED with a reason
from LEASED or STORED (invariant one-fate). An attempt is spent by a fault, never by parking: the attempts
table says which were, so a new lease has the number after the last one spent.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from dart.core.records import GroupState, Park, Reassignment, Release, StoredResult
from dart.core.types import FaultKind, RolloutLease, RolloutState, Step, Trajectory
from dart.store.errors import StoreConflict
from dart.store.queries import ONE_ROLLOUT, first
from dart.store.schema import attempts, groups, parked, rollouts, steps, trajectories
from dart.store.serialization import (
    PARKED_COLUMNS,
    check_steps,
    check_trajectory,
    checksum,
    pack_steps,
    record_of,
    trajectory_row,
)
from dart.store.task_counters import count_group, count_trajectory
from dart.store.writer import GROUP_ROLLOUTS, RecordWriter, count_up, insert_row

UPDATE_ROLLOUT = update(rollouts).where(rollouts.c.rollout_id == bindparam("key"))
STORE_ROLLOUT = UPDATE_ROLLOUT.values(state=RolloutState.STORED.value, environment=None)
UNOWN_ROLLOUT = UPDATE_ROLLOUT.values(environment=None)
PARK_ROLLOUT = UNOWN_ROLLOUT.values(resumes=rollouts.c.resumes + 1)
NO_RESUMES = UPDATE_ROLLOUT.values(resumes=0)
NEXT_ATTEMPT = UPDATE_ROLLOUT.values(attempt=rollouts.c.attempt + 1)
DROP_ROLLOUT = UPDATE_ROLLOUT.values(
    state=RolloutState.DROPPED.value, environment=None, drop_reason=bindparam("reason")
)
ATTEMPT_IS_SPENT = (
    select(func.count())
    .where(attempts.c.rollout_id == rollouts.c.rollout_id, attempts.c.attempt == rollouts.c.attempt)
    .scalar_subquery()
)
RELET_ROLLOUT = UPDATE_ROLLOUT.values(
    environment=bindparam("owner"),
    deadline_unix_s=bindparam("deadline"),
    attempt=rollouts.c.attempt + ATTEMPT_IS_SPENT,
    fence=rollouts.c.fence + 1,
)
NOT_PARKED = delete(parked).where(parked.c.rollout_id == bindparam("key"))
NO_MEMBER_PARKED = delete(parked).where(
    parked.c.rollout_id.in_(select(rollouts.c.rollout_id).where(rollouts.c.group_id == bindparam("key")))
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


class RolloutWriter(RecordWriter):
    """Groups and rollouts."""

    def open_group(
        self,
        task_id: str,
        seed: int,
        rollouts_wanted: int,
        step_cap: int,
        policy_version: int,
        probes_length: bool = False,
    ) -> int:
        """Open a group of one task and seed; `policy_version` is the oldest one that any engine serves.

        With `probes_length` it runs at the global step cap to see whether longer successes exist.
        """
        values = {
            "task_id": task_id,
            "seed": seed,
            "rollouts_wanted": rollouts_wanted,
            "step_cap": step_cap,
            "policy_version": policy_version,
            "probes_length": probes_length,
            "state": GroupState.OPEN.value,
            "opened_unix_s": self._clock(),
        }
        with self._transaction() as connection:
            count_group(connection, task_id)
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
            count_up(connection, "issued")
            return lease_of(self._rollout(connection, rollout_id))

    def reassign_rollout(
        self, rollout_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease | Reassignment:
        """Lease a rollout that no environment plays. Its fence grows, so earlier leases are void.

        A parked one goes on in the same attempt with its steps, another begins its next attempt.
        """
        with self._transaction() as connection:
            rollout = self._rollout(connection, rollout_id)
            if rollout.state != RolloutState.LEASED:
                return Reassignment.SETTLED
            if rollout.environment is not None:
                return Reassignment.OWNED
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
            return self._end_attempt(connection, rollout, fault_kind, detail, max_attempts)

    def _refuse_release(self, connection: Connection, rollout: Row[Any], fence: int) -> Release:
        if rollout.stored_fence == fence:
            return Release.SETTLED
        if rollout.fence == fence and rollout.state == RolloutState.DROPPED:
            return Release.DUPLICATE
        count_up(connection, "fenced")
        return Release.FENCED

    def _end_attempt(
        self,
        connection: Connection,
        rollout: Row[Any],
        fault_kind: FaultKind,
        detail: str,
        max_attempts: int | None,
    ) -> Release:
        self._spend_attempt(connection, rollout, fault_kind, detail)
        if max_attempts is None or rollout.attempt < max_attempts:
            connection.execute(UNOWN_ROLLOUT, {"key": rollout.rollout_id})
            return Release.AWAITING
        reason = f"attempts_spent:{fault_kind.value}"
        connection.execute(DROP_ROLLOUT, {"key": rollout.rollout_id, "reason": reason})
        return Release.DROPPED

    def _spend_attempt(
        self, connection: Connection, rollout: Row[Any], fault_kind: FaultKind, detail: str
    ) -> None:
        """The next attempt begins anew, so what was parked of this one, and how often, is forgotten."""
        values = {
            "rollout_id": rollout.rollout_id,
            "attempt": rollout.attempt,
            "environment": rollout.environment,
            "fault_kind": fault_kind.value,
            "detail": detail,
            "spent_unix_s": self._clock(),
        }
        connection.execute(insert(attempts), values)
        connection.execute(NOT_PARKED, {"key": rollout.rollout_id})
        connection.execute(NO_RESUMES, {"key": rollout.rollout_id})

    def finish_rollout(self, rollout_id: int, fence: int, trajectory: Trajectory) -> StoredResult:
        """Store a finished episode under the lease it was played with: steps, reward and state at once."""
        with self._transaction() as connection:
            rollout = self._rollout(connection, rollout_id)
            if rollout.stored_fence == fence:
                return StoredResult.DUPLICATE
            if not is_held(rollout, fence):
                count_up(connection, "fenced")
                return StoredResult.FENCED
            check_trajectory(trajectory)
            check_same_rollout(rollout, trajectory)
            packed = pack_steps(trajectory.steps)
            row = trajectory_row(trajectory, packed, fence=fence, stored_unix_s=self._clock())
            connection.execute(insert(trajectories), row)
            connection.execute(insert(steps), {"rollout_id": rollout_id, "steps": packed})
            connection.execute(NOT_PARKED, {"key": rollout_id})
            is_success = trajectory.reward > self._success_above
            count_trajectory(connection, trajectory.task_id, len(trajectory.steps), is_success=is_success)
            connection.execute(STORE_ROLLOUT, {"key": rollout_id})
            return StoredResult.ACCEPTED

    def park_rollout(
        self,
        rollout_id: int,
        fence: int,
        steps: Sequence[Step],
        reason: str,
        max_resumes: int,
        max_attempts: int | None = None,
    ) -> Park:
        """Keep what was played of an episode that must be interrupted, so that an environment takes it up.

        `steps` are all since the episode began. Fewer than were parked before (it was interrupted while
        these were replayed) change nothing. Beyond `max_resumes` the attempt ends, the last one of
        `max_attempts` with it the rollout.
        """
        check_steps(f"parked rollout {rollout_id}", steps)
        with self._transaction() as connection:
            rollout = self._rollout(connection, rollout_id)
            if not is_held(rollout, fence):
                return self._refuse_parking(connection, rollout, fence)
            if rollout.resumes >= max_resumes:
                detail = f"parked {rollout.resumes} times, {max_resumes} are allowed: {reason}"
                self._end_attempt(connection, rollout, FaultKind.INFRASTRUCTURE, detail, max_attempts)
                return Park.REFUSED
            self._keep_steps(connection, rollout, steps, reason)
            connection.execute(PARK_ROLLOUT, {"key": rollout_id})
            return Park.PARKED

    def is_held(self, rollout_id: int, fence: int) -> bool:
        """Whether a rollout is being played under this lease; a report of it still counts."""
        with self._reading() as connection:
            row = first(connection, ONE_ROLLOUT, key=rollout_id)
            return row is not None and is_held(row, fence)

    def _refuse_parking(self, connection: Connection, rollout: Row[Any], fence: int) -> Park:
        if rollout.parked_fence == fence or (rollout.fence == fence and rollout.stored_fence is None):
            return Park.DUPLICATE
        count_up(connection, "fenced")
        return Park.FENCED

    def _keep_steps(
        self, connection: Connection, rollout: Row[Any], steps: Sequence[Step], reason: str
    ) -> None:
        about = {"fence": rollout.fence, "reason": reason, "parked_unix_s": self._clock()}
        played = {
            "steps": pack_steps(steps),
            "num_steps": len(steps),
            "oldest_version": min((step.policy_version for step in steps), default=None),
        }
        played["checksum"] = checksum(played, PARKED_COLUMNS)
        grown = len(steps) >= (rollout.parked_steps or 0)
        if rollout.parked_fence is None:
            connection.execute(insert(parked), {"rollout_id": rollout.rollout_id} | about | played)
            return
        kept = update(parked).where(parked.c.rollout_id == rollout.rollout_id)
        connection.execute(kept.values(about | played if grown else about))

    def forget_parked(
        self, rollout_id: int, fence: int, detail: str, max_attempts: int | None = None
    ) -> StoredResult:
        """What was parked cannot be replayed: the holder of the lease plays it anew, as a new attempt.

        FENCED where that was the last one of `max_attempts`: the rollout is dropped and not to be played.
        """
        with self._transaction() as connection:
            rollout = self._rollout(connection, rollout_id)
            if not is_held(rollout, fence):
                count_up(connection, "fenced")
                return StoredResult.FENCED
            if rollout.parked_steps is None:
                return StoredResult.DUPLICATE
            if max_attempts is not None and rollout.attempt >= max_attempts:
                self._end_attempt(connection, rollout, FaultKind.INFRASTRUCTURE, detail, max_attempts)
                return StoredResult.FENCED
            self._spend_attempt(connection, rollout, FaultKind.INFRASTRUCTURE, detail)
            connection.execute(NEXT_ATTEMPT, {"key": rollout_id})
            return StoredResult.ACCEPTED

    def drop_group(self, group_id: int, reason: str) -> int:
        """Drop a group and what of it is leased or stored; returns how many rollouts that were."""
        with self._transaction() as connection:
            group = self._group(connection, group_id)
            if group.state == GroupState.DROPPED:
                return 0
            if group.state != GroupState.OPEN:
                raise StoreConflict(
                    f"group {group_id} cannot be dropped: it is {group.state} in batch {group.batch_id}"
                )
            return drop_whole(connection, group_id, reason)


def drop_whole(connection: Connection, group_id: int, reason: str) -> int:
    """Drop an open group with its rollouts; returns how many those were."""
    connection.execute(DROP_GROUP, {"key": group_id, "reason": reason})
    connection.execute(NO_MEMBER_PARKED, {"key": group_id})
    return connection.execute(DROP_MEMBERS, {"key": group_id, "reason": reason}).rowcount


def is_held(rollout: Any, fence: int) -> bool:
    """Whether a lease is the one under which the rollout is being played."""
    return bool(
        rollout.state == RolloutState.LEASED and rollout.environment is not None and rollout.fence == fence
    )


def lease_of(row: Row[Any]) -> RolloutLease:
    return record_of(RolloutLease, row, parked_steps=row.parked_steps or 0)


def check_same_rollout(rollout: Row[Any], trajectory: Trajectory) -> None:
    """A trajectory must be of the rollout, group, task and seed that were leased."""
    wanted = (rollout.rollout_id, rollout.group_id, rollout.task_id, rollout.seed)
    found = (trajectory.rollout_id, trajectory.group_id, trajectory.task_id, trajectory.seed)
    if wanted != found:
        raise StoreConflict(f"leased was (rollout, group, task, seed) {wanted}, the trajectory is of {found}")
