"""Writes groups and rollouts, as a part of `dart.store.store.Store`.

A rollout is LEASED first: an environment holds it, or it awaits a new lease. Then it is STORED, then TRAINED.
From LEASED or STORED it can become DROPPED, with a reason (invariant one-fate). A fault spends an attempt,
parking does not. The table `attempts` holds the spent attempts. A new lease gets the number of its attempt
from this table.
"""

import math
from collections.abc import Sequence

from sqlalchemy import delete, insert, text

from dart.core.records import GroupState, Park, Reassignment, Release, StoredResult
from dart.core.types import FaultKind, RolloutLease, RolloutState, Step, Trajectory
from dart.store import queries
from dart.store.errors import StoreConflict
from dart.store.queries import first, scalar
from dart.store.schema import attempts, groups, parked, rollouts, trajectories
from dart.store.serialization import (
    PARKED_COLUMNS,
    Row,
    check_steps,
    check_trajectory,
    checksum,
    record_of,
    trajectory_row,
)
from dart.store.writer import RecordWriter

COUNT_GROUP = text("UPDATE task_statistics SET groups_opened = groups_opened + 1 WHERE task_id = :task_id")
COUNT_TRAJECTORY = text("""
    UPDATE task_statistics SET finished = finished + 1, steps_played = steps_played + :num_steps,
        longest_success_steps = CASE
            WHEN :success_steps > coalesce(longest_success_steps, 0) THEN :success_steps
            ELSE longest_success_steps END
    WHERE task_id = :task_id
""")
"""Count a trajectory. `success_steps` is the number of its steps if it is a success, else 0."""


class RolloutLeases(RecordWriter):
    """Writes groups and rollouts."""

    def open_group(
        self,
        task_id: str,
        seed: int,
        rollouts_wanted: int,
        step_cap: int,
        policy_version: int,
        probes_length: bool = False,
    ) -> int:
        """Open a group of one task and seed; returns its id.

        policy_version   the oldest version that any engine serves
        probes_length    whether its episodes may reach the global step cap, to look for longer successes
        """
        with self._transaction():
            self._know_task(task_id)
            self._execute(COUNT_GROUP, task_id=task_id)
            return self._insert(
                groups,
                task_id=task_id,
                seed=seed,
                rollouts_wanted=rollouts_wanted,
                step_cap=step_cap,
                policy_version=policy_version,
                probes_length=probes_length,
                state=GroupState.OPEN.value,
                opened_unix_s=self._clock(),
            )

    def lease_rollout(self, group_id: int, environment: str, deadline_unix_s: float) -> RolloutLease:
        """Issue the next rollout of a group and lease it to an environment.

        Raises StoreConflict if the group is not open or all its rollouts are issued.
        """
        with self._transaction():
            group, states, _ = self._standing(group_id)
            if group.state != GroupState.OPEN or len(states) >= group.rollouts_wanted:
                raise StoreConflict(
                    f"group {group_id} is {group.state} with {len(states)} of {group.rollouts_wanted} "
                    "rollouts issued; no further rollout of it can be leased"
                )
            rollout_id = self._insert(
                rollouts,
                group_id=group_id,
                state=RolloutState.LEASED.value,
                environment=environment,
                attempt=1,
                fence=1,
                deadline_unix_s=deadline_unix_s,
            )
            self._count_up("issued")
            return record_of(RolloutLease, self._rollout(rollout_id))

    def _rollout(self, rollout_id: int) -> Row:
        return self._one(queries.ONE_ROLLOUT, "rollout", rollout_id)

    def reassign_rollout(
        self, rollout_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease | Reassignment:
        """Lease a rollout again that no environment plays. Its fence grows, so that earlier leases end.

        If the last attempt was spent, the lease is for the next attempt. A parked rollout continues its
        attempt and keeps its steps. Returns a Reassignment, and changes nothing, if the rollout cannot be
        leased.
        """
        with self._transaction():
            rollout = self._rollout(rollout_id)
            if rollout.state != RolloutState.LEASED:
                return Reassignment.SETTLED
            if rollout.environment is not None:
                return Reassignment.OWNED
            spent = scalar(self._bare, queries.ATTEMPT_SPENT, key=rollout_id, attempt=rollout.attempt)
            self._update(
                rollouts,
                rollout_id,
                environment=environment,
                deadline_unix_s=deadline_unix_s,
                attempt=rollout.attempt + spent,
                fence=rollout.fence + 1,
            )
            return record_of(RolloutLease, self._rollout(rollout_id))

    def release_rollout(
        self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str, max_attempts: int
    ) -> Release:
        """End a lease and spend its attempt. If this is attempt `max_attempts`, the rollout is dropped.

        The result says what became of the rollout, or why the lease could not be ended.
        """
        with self._transaction():
            rollout = self._rollout(rollout_id)
            if rollout.state != RolloutState.LEASED or rollout.fence != fence:
                return self._refuse_release(rollout, fence)
            if rollout.environment is None:
                return Release.DUPLICATE
            return self._end_attempt(rollout, fault_kind, detail, max_attempts)

    def _refuse_release(self, rollout: Row, fence: int) -> Release:
        if rollout.stored_fence == fence:
            return Release.SETTLED
        if rollout.fence == fence and rollout.state == RolloutState.DROPPED:
            return Release.DUPLICATE
        self._count_up("fenced")
        return Release.FENCED

    def _end_attempt(
        self, rollout: Row, fault_kind: FaultKind, detail: str, max_attempts: int | None
    ) -> Release:
        self._spend_attempt(rollout, fault_kind, detail)
        if max_attempts is None or rollout.attempt < max_attempts:
            self._update(rollouts, rollout.rollout_id, environment=None)
            return Release.AWAITING
        self._update(
            rollouts,
            rollout.rollout_id,
            state=RolloutState.DROPPED.value,
            environment=None,
            drop_reason=f"attempts_spent:{fault_kind.value}",
        )
        return Release.DROPPED

    def _spend_attempt(self, rollout: Row, fault_kind: FaultKind, detail: str) -> None:
        """Record that the attempt is spent, and delete its parked steps: the next attempt begins anew."""
        self._execute(
            insert(attempts),
            rollout_id=rollout.rollout_id,
            attempt=rollout.attempt,
            environment=rollout.environment,
            fault_kind=fault_kind.value,
            detail=detail,
            spent_unix_s=self._clock(),
        )
        self._forget_steps(rollout.rollout_id)
        self._update(rollouts, rollout.rollout_id, resumes=0)

    def _forget_steps(self, rollout_id: int) -> None:
        self._execute(delete(parked).where(parked.c.rollout_id == rollout_id))

    def finish_rollout(
        self, rollout_id: int, fence: int, trajectory: Trajectory, steps_sha256: str = ""
    ) -> StoredResult:
        """Store the finished episode of a lease in one transaction.

        steps_sha256   the blob of its steps; empty: this call stores the steps before the row that names them

        Returns DUPLICATE if the episode of this lease is stored already. Returns FENCED, and counts the
        report, if the lease has ended. Raises StoreConflict if the trajectory cannot be trained, or is not of
        the leased rollout, group, task and seed.
        """
        with self._transaction():
            rollout = self._rollout(rollout_id)
            if rollout.stored_fence == fence:
                return StoredResult.DUPLICATE
            if not is_held(rollout, fence):
                self._count_up("fenced")
                return StoredResult.FENCED
            check_trajectory(trajectory)
            check_same_rollout(rollout, trajectory)
            num_steps = len(trajectory.steps)
            sha256 = steps_sha256 or self._put_steps(trajectory.steps)
            row = trajectory_row(trajectory, sha256, fence=fence, stored_unix_s=self._storing_unix_s())
            self._execute(insert(trajectories), **row)
            self._forget_steps(rollout_id)
            success_steps = num_steps if trajectory.reward > self._success_above else 0
            counted = {"num_steps": num_steps, "success_steps": success_steps}
            self._execute(COUNT_TRAJECTORY, task_id=trajectory.task_id, **counted)
            self._update(rollouts, rollout_id, state=RolloutState.STORED.value, environment=None)
            return StoredResult.ACCEPTED

    def _storing_unix_s(self) -> float:
        """The time at which to store an episode: now, or just after the newest stored episode if a clock was
        set back, because readers find new episodes by this time."""
        newest_unix_s = scalar(self._bare, queries.NEWEST_STORED_UNIX_S)
        after_newest_unix_s = 0.0 if newest_unix_s is None else math.nextafter(newest_unix_s, math.inf)
        return max(self._clock(), after_newest_unix_s)

    def park_rollout(
        self,
        rollout_id: int,
        fence: int,
        steps: Sequence[Step],
        reason: str,
        max_resumes: int,
        max_attempts: int | None = None,
        steps_sha256: str = "",
    ) -> Park:
        """Keep the steps of an interrupted episode, so that an environment can continue it.

        An episode that was parked `max_resumes` times is not parked again: the result is REFUSED and its
        attempt is spent. If that was attempt `max_attempts`, the rollout is dropped.

        steps          all steps since the episode began. If more steps are parked already, because the
                       episode was interrupted while they were replayed, the parked ones are kept
        steps_sha256   the blob of the steps; empty: this call stores them

        Raises StoreConflict if the steps are damaged.
        """
        check_steps(f"parked rollout {rollout_id}", steps)
        with self._transaction():
            rollout = self._rollout(rollout_id)
            if not is_held(rollout, fence):
                return self._refuse_parking(rollout, fence)
            if rollout.resumes >= max_resumes:
                detail = f"parked {rollout.resumes} times, {max_resumes} are allowed: {reason}"
                self._end_attempt(rollout, FaultKind.INFRASTRUCTURE, detail, max_attempts)
                return Park.REFUSED
            self._keep_steps(rollout, steps, steps_sha256, reason)
            self._update(rollouts, rollout_id, environment=None, resumes=rollout.resumes + 1)
            return Park.PARKED

    def is_held(self, rollout_id: int, fence: int) -> bool:
        """Whether the lease with this fence still holds, so that a result under it is accepted."""
        with self._reading() as connection:
            row = first(connection, queries.ONE_ROLLOUT, key=rollout_id)
            return row is not None and is_held(row, fence)

    def _refuse_parking(self, rollout: Row, fence: int) -> Park:
        if rollout.parked_fence == fence or (rollout.fence == fence and rollout.stored_fence is None):
            return Park.DUPLICATE
        self._count_up("fenced")
        return Park.FENCED

    def _keep_steps(self, rollout: Row, steps: Sequence[Step], steps_sha256: str, reason: str) -> None:
        """Record the steps of a parked episode, unless more of its steps are parked already."""
        about = {"fence": rollout.fence, "reason": reason, "parked_unix_s": self._clock()}
        played = {
            "steps_sha256": steps_sha256 or self._put_steps(steps),
            "num_steps": len(steps),
            "oldest_version": min((step.policy_version for step in steps), default=None),
        }
        played["checksum"] = checksum(played, PARKED_COLUMNS)
        if rollout.parked_fence is None:
            self._execute(insert(parked), rollout_id=rollout.rollout_id, **about, **played)
        elif len(steps) >= rollout.parked_steps:
            self._update(parked, rollout.rollout_id, **about, **played)
        else:
            self._update(parked, rollout.rollout_id, **about)

    def forget_parked(
        self, rollout_id: int, fence: int, detail: str, max_attempts: int | None = None
    ) -> StoredResult:
        """Delete parked steps that could not be replayed, and spend their attempt.

        The holder of the lease then plays the next attempt. But if the result is FENCED, the holder must not
        play: its lease has ended, or this was attempt `max_attempts` and the rollout is dropped. Returns
        DUPLICATE if there are no parked steps.
        """
        with self._transaction():
            rollout = self._rollout(rollout_id)
            if not is_held(rollout, fence):
                self._count_up("fenced")
                return StoredResult.FENCED
            if rollout.parked_fence is None:
                return StoredResult.DUPLICATE
            if max_attempts is not None and rollout.attempt >= max_attempts:
                self._end_attempt(rollout, FaultKind.INFRASTRUCTURE, detail, max_attempts)
                return StoredResult.FENCED
            self._spend_attempt(rollout, FaultKind.INFRASTRUCTURE, detail)
            self._update(rollouts, rollout_id, attempt=rollout.attempt + 1)
            return StoredResult.ACCEPTED

    def drop_group(self, group_id: int, reason: str) -> int:
        """Drop a group with its leased and stored rollouts; returns how many rollouts were dropped.

        Returns 0 if the group is dropped already. Raises StoreConflict if it is in a batch or was trained.
        """
        with self._transaction():
            group = self._one(queries.ONE_GROUP, "group", group_id)
            if group.state == GroupState.DROPPED:
                return 0
            if group.state != GroupState.OPEN:
                raise StoreConflict(
                    f"group {group_id} cannot be dropped: it is {group.state} in batch {group.batch_id}"
                )
            return self._drop_group(group_id, reason)


def is_held(rollout: Row, fence: int) -> bool:
    """Whether an environment plays the rollout under the lease with this fence."""
    return bool(
        rollout.state == RolloutState.LEASED and rollout.environment is not None and rollout.fence == fence
    )


def check_same_rollout(rollout: Row, trajectory: Trajectory) -> None:
    """Raise StoreConflict for a trajectory that is not of the leased rollout, group, task and seed."""
    wanted = (rollout.rollout_id, rollout.group_id, rollout.task_id, rollout.seed)
    found = (trajectory.rollout_id, trajectory.group_id, trajectory.task_id, trajectory.seed)
    if wanted != found:
        raise StoreConflict(
            f"expected a trajectory of (rollout, group, task, seed) {wanted}, as leased, got {found}"
        )
