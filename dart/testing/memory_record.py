"""A record in dicts, without a database and without steps, that answers at once.

For simulations of thousands of environments. It keeps the same rows as the store and has the same semantics;
that they agree is tested.
"""

from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dart.core.messages import Call
from dart.core.records import (
    RECENT_REWARDS,
    Batch,
    BatchRefusal,
    Commit,
    Conservation,
    DecisionKind,
    DemonstrationSummary,
    GroupRecord,
    GroupState,
    Guided,
    Park,
    Reassignment,
    Release,
    RolloutRecord,
    Snapshot,
    StoredResult,
    TaskDecision,
    TaskStatistics,
)
from dart.core.types import SUCCESS_ABOVE, FaultKind, RolloutLease, RolloutState
from dart.curation import groups
from dart.store.calls import carry_out
from dart.store.errors import StoreConflict
from dart.store.serialization import record_of

T = TypeVar("T")


@dataclass(slots=True)
class _Rollout:
    """A row, and under which fence it was stored."""

    row: RolloutRecord
    stored_fence: int | None = None
    is_spent: bool = False
    """Its attempt ended by a fault: the next lease is the next attempt."""


@dataclass(slots=True)
class _Group:
    row: GroupRecord
    """Without its rollouts, which are `members`."""
    state: GroupState = GroupState.OPEN
    members: dict[int, _Rollout] = field(default_factory=dict)


@dataclass(slots=True)
class _Task:
    groups_opened: int = 0
    rewards: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_REWARDS))
    longest_success_steps: int | None = None
    decided: dict[DecisionKind, TaskDecision] = field(default_factory=dict)


class MemoryRecord:
    """A record in dicts; what environments and the trainer report are plain methods.

    With `forgets` settled groups are forgotten, so that its size is that of what is live: a late report for
    one of them is fenced, and asking for its rows is a conflict.
    """

    def __init__(self, *, forgets: bool = False, success_above: float = SUCCESS_ABOVE) -> None:
        self._forgets, self._success_above = forgets, success_above
        self._groups: dict[int, _Group] = {}
        self._live: dict[int, None] = {}
        self._group_of: dict[int, int] = {}
        """Rollout to its group."""
        self._tasks: dict[str, _Task] = {}
        self._pool: dict[int, DemonstrationSummary] = {}
        self._decisions: set[tuple[str, DecisionKind, float, str, str]] = set()
        self._batch: Batch | None = None
        self._given_back: dict[int, int] = {}
        """Batch to its fence then."""
        self._consumed: dict[int, tuple[int, int]] = {}
        """Batch to the version it made, and the fence it was committed with."""
        self._next = {"group": 1, "rollout": 1, "batch": 1}
        self._totals = {"issued": 0, "trained": 0, "dropped": 0}
        self.version: int | None = 0
        self.fenced = 0
        self.drops: dict[str, int] = {}
        """Rollouts dropped, by reason."""

    async def write(self, call: Call[T]) -> T:
        """Carry out a call of the curator; its result."""
        return carry_out(self, call)

    # what the curator calls, and the service reads

    def open_group(
        self,
        task_id: str,
        seed: int,
        rollouts_wanted: int,
        step_cap: int,
        policy_version: int,
        probes_length: bool = False,
    ) -> int:
        group_id = self._new_id("group")
        row = GroupRecord(
            group_id=group_id,
            task_id=task_id,
            seed=seed,
            rollouts_wanted=rollouts_wanted,
            step_cap=step_cap,
            policy_version=policy_version,
            batch_id=None,
            rollouts=(),
            probes_length=probes_length,
        )
        self._groups[group_id] = _Group(row)
        self._live[group_id] = None
        self._tasks.setdefault(task_id, _Task()).groups_opened += 1
        return group_id

    def lease_rollout(self, group_id: int, environment: str, deadline_unix_s: float) -> RolloutLease:
        group = self._group(group_id)
        if group.state != GroupState.OPEN or len(group.members) >= group.row.rollouts_wanted:
            raise StoreConflict(
                f"group {group_id} is {group.state} with {len(group.members)} rollouts issued"
            )
        rollout_id = self._new_id("rollout")
        row = RolloutRecord(
            rollout_id=rollout_id,
            group_id=group_id,
            state=RolloutState.LEASED,
            environment=environment,
            attempt=1,
            fence=1,
            deadline_unix_s=deadline_unix_s,
            reward=None,
            oldest_version=None,
        )
        group.members[rollout_id] = _Rollout(row)
        self._group_of[rollout_id] = group_id
        self._totals["issued"] += 1
        return lease_of(group.row, row)

    def reassign_rollout(
        self, rollout_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease | Reassignment:
        group, rollout = self._member(rollout_id)
        row = rollout.row
        if row.state != RolloutState.LEASED:
            return Reassignment.SETTLED
        if row.environment is not None:
            return Reassignment.OWNED
        rollout.row = replace(
            row,
            environment=environment,
            deadline_unix_s=deadline_unix_s,
            attempt=row.attempt + rollout.is_spent,
            fence=row.fence + 1,
        )
        rollout.is_spent = False
        return lease_of(group.row, rollout.row)

    def release_rollout(
        self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str, max_attempts: int
    ) -> Release:
        if self._is_forgotten(rollout_id):
            return self._fenced(Release.FENCED)
        _, rollout = self._member(rollout_id)
        row = rollout.row
        if row.state != RolloutState.LEASED or row.fence != fence:
            if rollout.stored_fence == fence:
                return Release.SETTLED
            if row.fence == fence and row.state == RolloutState.DROPPED:
                return Release.DUPLICATE
            return self._fenced(Release.FENCED)
        if row.environment is None:
            return Release.DUPLICATE
        return self._end_attempt(rollout, fault_kind, max_attempts)

    def inject(self, group_id: int, pool_id: int) -> None:
        group, demonstration = self._group(group_id), self._pool.get(pool_id)
        if demonstration is None or demonstration.dropped:
            raise StoreConflict(f"demonstration {pool_id} is not in the pool")
        if pool_id in group.row.injected:
            return
        if group.state != GroupState.OPEN or not groups.is_complete(self._row(group)):
            raise StoreConflict(f"group {group_id} is {group.state} or not complete")
        group.row = replace(group.row, injected=(*group.row.injected, pool_id))
        self._pool[pool_id] = replace(demonstration, uses=demonstration.uses + 1)

    def demonstrations(self, task_id: str) -> tuple[DemonstrationSummary, ...]:
        return tuple(one for one in self._pool.values() if one.task_id == task_id)

    def drop_group(self, group_id: int, reason: str) -> int:
        group = self._group(group_id)
        if group.state == GroupState.DROPPED:
            return 0
        if group.state != GroupState.OPEN:
            raise StoreConflict(f"group {group_id} cannot be dropped: it is {group.state}")
        unsettled = [
            one
            for one in group.members.values()
            if one.row.state in (RolloutState.LEASED, RolloutState.STORED)
        ]
        for rollout in unsettled:
            self._drop(rollout, reason)
        self._settle(group_id, GroupState.DROPPED)
        return len(unsettled)

    def record_decisions(self, decisions: tuple[TaskDecision, ...]) -> int:
        return sum(self._record_decision(decision) for decision in decisions)

    def _record_decision(self, decision: TaskDecision) -> bool:
        """Whether it is new: told twice, it is kept once."""
        key = (decision.task_id, decision.kind, decision.unix_s, decision.before, decision.after)
        if key in self._decisions:
            return False
        self._decisions.add(key)
        self._tasks.setdefault(decision.task_id, _Task()).decided[decision.kind] = decision
        return True

    def lease_batch(self, group_ids: tuple[int, ...], deadline_unix_s: float) -> Batch:
        if self._batch is not None:
            raise StoreConflict(f"batch {self._batch.batch_id} is still leased")
        for group_id in group_ids:
            group = self._group(group_id)
            row = self._row(group)
            if group.state != GroupState.OPEN or not groups.is_complete(row) or not groups.rewards(row):
                raise StoreConflict(f"group {group_id} is {group.state} or not complete")
        self._batch = Batch(
            batch_id=self._new_id("batch"),
            group_ids=tuple(sorted(group_ids)),
            deadline_unix_s=deadline_unix_s,
        )
        for group_id in group_ids:
            group = self._groups[group_id]
            group.state = GroupState.BATCHED
            group.row = replace(group.row, batch_id=self._batch.batch_id)
        return self._batch

    def reassign_batch(self, batch_id: int, deadline_unix_s: float) -> Batch:
        if self._batch is None or self._batch.batch_id != batch_id:
            raise StoreConflict(f"batch {batch_id} is not leased")
        self._batch = replace(self._batch, fence=self._batch.fence + 1, deadline_unix_s=deadline_unix_s)
        return self._batch

    def refuse_batch(
        self,
        batch_id: int,
        fence: int,
        group_ids: tuple[int, ...],
        pool_ids: tuple[int, ...],
        reason: str,
        detail: str,
    ) -> BatchRefusal:
        batch = self._batch
        is_open = batch is not None and batch.batch_id == batch_id
        newest = batch.fence if batch is not None and is_open else self._given_back.get(batch_id)
        if newest is None or fence > newest:
            raise StoreConflict(f"batch {batch_id} is not leased with fence {fence}")
        if fence < newest:
            return self._fenced(BatchRefusal.FENCED)
        if batch is None or not is_open:
            return BatchRefusal.DUPLICATE
        for group_id in batch.group_ids:
            group = self._groups[group_id]
            group.state = GroupState.OPEN
            group.row = replace(group.row, batch_id=None)
        self._batch, self._given_back = None, {batch_id: fence}
        for group_id in group_ids:
            self.drop_group(group_id, reason)
        for pool_id in pool_ids:
            self.drop_demonstration(pool_id)
        return BatchRefusal.REFUSED

    def rollout(self, rollout_id: int) -> RolloutRecord:
        return self._member(rollout_id)[1].row

    def group(self, group_id: int) -> GroupRecord:
        return self._row(self._group(group_id))

    def snapshot(self, recent_rewards: int = RECENT_REWARDS) -> Snapshot:
        """Of each task this record has `RECENT_REWARDS` at most."""
        return Snapshot(
            groups=tuple(self._row(self._groups[group_id]) for group_id in self._live),
            tasks=tuple(self._statistics(task_id, recent_rewards) for task_id in sorted(self._tasks)),
            batch=self._batch,
            version=self.version,
        )

    # what environments, the trainer and the pool report

    def finish(
        self, rollout_id: int, fence: int, reward: float, num_steps: int, oldest_version: int
    ) -> StoredResult:
        """An episode was played to its end."""
        rollout = self._held(rollout_id, fence)
        if rollout is None:
            if self._is_stored_under(rollout_id, fence):
                return StoredResult.DUPLICATE
            return self._fenced(StoredResult.FENCED)
        rollout.stored_fence = fence
        rollout.row = replace(
            rollout.row,
            state=RolloutState.STORED,
            environment=None,
            reward=reward,
            oldest_version=oldest_version,
            num_steps=num_steps,
            parked_steps=0,
        )
        task = self._tasks[self._groups[rollout.row.group_id].row.task_id]
        task.rewards.append(reward)
        if reward > self._success_above:
            task.longest_success_steps = max(num_steps, task.longest_success_steps or 0)
        return StoredResult.ACCEPTED

    def park(
        self,
        rollout_id: int,
        fence: int,
        num_steps: int,
        oldest_version: int,
        *,
        max_resumes: int,
        max_attempts: int,
    ) -> Park:
        """An episode was interrupted after so many steps, those it had before included."""
        rollout = self._held(rollout_id, fence)
        if rollout is None:
            if self._is_same_lease(rollout_id, fence):
                return Park.DUPLICATE
            return self._fenced(Park.FENCED)
        row = rollout.row
        if row.resumes >= max_resumes:
            self._end_attempt(rollout, FaultKind.INFRASTRUCTURE, max_attempts)
            return Park.REFUSED
        if num_steps >= row.parked_steps:
            row = replace(row, parked_steps=num_steps, oldest_version=oldest_version)
        rollout.row = replace(row, environment=None, resumes=row.resumes + 1)
        return Park.PARKED

    def forget_parked(self, rollout_id: int, fence: int) -> StoredResult:
        """What was parked could not be replayed: its holder plays it anew."""
        rollout = self._held(rollout_id, fence)
        if rollout is None:
            return self._fenced(StoredResult.FENCED)
        row = rollout.row
        if row.oldest_version is None:
            return StoredResult.DUPLICATE
        rollout.row = replace(row, attempt=row.attempt + 1, parked_steps=0, oldest_version=None, resumes=0)
        return StoredResult.ACCEPTED

    def commit_update(self, batch_id: int, fence: int, version: int) -> Commit:
        """The open batch was trained into a version."""
        batch = self._batch
        if batch is None or batch.batch_id != batch_id:
            if self._consumed.get(batch_id) == (version, fence):
                return Commit.DUPLICATE
            raise StoreConflict(f"batch {batch_id} is not leased")
        if fence < batch.fence:
            return self._fenced(Commit.FENCED)
        if fence > batch.fence or self.version is None or version != self.version + 1:
            raise StoreConflict(f"version {version} under fence {fence} does not follow {self.version}")
        for group_id in batch.group_ids:
            for rollout in self._groups[group_id].members.values():
                if rollout.row.state == RolloutState.STORED:
                    rollout.row = replace(rollout.row, state=RolloutState.TRAINED)
                    self._totals["trained"] += 1
            self._settle(group_id, GroupState.CONSUMED)
        self._batch, self.version = None, version
        self._consumed = {batch_id: (version, fence)}
        return Commit.COMMITTED

    def add_demonstration(self, task_id: str, seed: int, num_steps: int, origin: str = "oracle") -> int:
        """Add one to the experience pool; returns its key."""
        pool_id = len(self._pool) + 1
        self._tasks.setdefault(task_id, _Task())
        self._pool[pool_id] = DemonstrationSummary(
            pool_id=pool_id,
            task_id=task_id,
            seed=seed,
            origin=origin,
            num_steps=num_steps,
            uses=0,
            dropped=False,
        )
        return pool_id

    def record_guided(self, guide_id: int, attempt: int, *, succeeded: bool) -> Guided:
        """An episode that the policy played under a demonstration's actions."""
        guide = self._pool[guide_id]
        if attempt <= guide.rolls:
            return Guided.DUPLICATE
        self._pool[guide_id] = replace(guide, rolls=attempt)
        if not succeeded:
            return Guided.FAILED
        own = self.add_demonstration(guide.task_id, guide.seed, guide.num_steps, "self-rolled")
        self._pool[own] = replace(self._pool[own], guide_id=guide_id)
        return Guided.ADDED

    def drop_demonstration(self, pool_id: int) -> None:
        """Take one out of use."""
        self._pool[pool_id] = replace(self._pool[pool_id], dropped=True)

    def conservation(self) -> Conservation:
        """The books of invariant one-fate."""
        states = [one.row.state for group_id in self._live for one in self._groups[group_id].members.values()]
        # Of live groups some rollouts are dropped; those are in the total.
        return Conservation(
            **self._totals,
            stored=states.count(RolloutState.STORED),
            leased=states.count(RolloutState.LEASED),
        )

    # how

    def _new_id(self, kind: str) -> int:
        self._next[kind] += 1
        return self._next[kind] - 1

    def _group(self, group_id: int) -> _Group:
        if group_id not in self._groups:
            raise StoreConflict(f"the record has no group {group_id}")
        return self._groups[group_id]

    def _member(self, rollout_id: int) -> tuple[_Group, _Rollout]:
        if rollout_id not in self._group_of:
            raise StoreConflict(f"the record has no rollout {rollout_id}")
        group = self._groups[self._group_of[rollout_id]]
        return group, group.members[rollout_id]

    def _is_forgotten(self, rollout_id: int) -> bool:
        return self._forgets and rollout_id < self._next["rollout"] and rollout_id not in self._group_of

    def _held(self, rollout_id: int, fence: int) -> _Rollout | None:
        """The rollout if this lease of it is still good."""
        if self._is_forgotten(rollout_id):
            return None
        rollout = self._member(rollout_id)[1]
        row = rollout.row
        is_good = row.state == RolloutState.LEASED and row.environment is not None and row.fence == fence
        return rollout if is_good else None

    def _is_stored_under(self, rollout_id: int, fence: int) -> bool:
        return not self._is_forgotten(rollout_id) and self._member(rollout_id)[1].stored_fence == fence

    def _is_same_lease(self, rollout_id: int, fence: int) -> bool:
        """Whether the rollout was not leased again since, and nothing of it was stored."""
        if self._is_forgotten(rollout_id):
            return False
        rollout = self._member(rollout_id)[1]
        return rollout.row.fence == fence and rollout.stored_fence is None

    def _end_attempt(self, rollout: _Rollout, fault_kind: FaultKind, max_attempts: int) -> Release:
        rollout.row = replace(rollout.row, environment=None, parked_steps=0, oldest_version=None, resumes=0)
        rollout.is_spent = True
        if rollout.row.attempt < max_attempts:
            return Release.AWAITING
        self._drop(rollout, f"attempts_spent:{fault_kind.value}")
        return Release.DROPPED

    def _row(self, group: _Group) -> GroupRecord:
        return replace(group.row, rollouts=tuple(one.row for one in group.members.values()))

    def _statistics(self, task_id: str, recent_rewards: int) -> TaskStatistics:
        task = self._tasks[task_id]
        return TaskStatistics(
            task_id=task_id,
            groups_opened=task.groups_opened,
            recent_rewards=tuple(task.rewards)[-recent_rewards:],
            longest_success_steps=task.longest_success_steps,
            decided=dict(task.decided),
            demonstrations=tuple(one for one in self._pool.values() if one.task_id == task_id),
        )

    def _drop(self, rollout: _Rollout, reason: str) -> None:
        rollout.row = replace(rollout.row, state=RolloutState.DROPPED, environment=None)
        self._totals["dropped"] += 1
        self.drops[reason] = self.drops.get(reason, 0) + 1

    def _settle(self, group_id: int, state: GroupState) -> None:
        self._groups[group_id].state = state
        del self._live[group_id]
        if self._forgets:
            for rollout_id in self._groups.pop(group_id).members:
                del self._group_of[rollout_id]

    def _fenced(self, answer: T) -> T:
        self.fenced += 1
        return answer


def lease_of(group: GroupRecord, rollout: RolloutRecord) -> RolloutLease:
    """The lease a row stands for."""
    return record_of(RolloutLease, rollout, task_id=group.task_id, seed=group.seed, step_cap=group.step_cap)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError(f"{coroutine!r} waited; at_once runs only what waits for nothing but this record")
