"""The record of a simulation, in dicts: what the curator's service reads and writes, and nothing else.

No environment of a simulation fails or parks, the trainer commits every batch, and the service never starts
again. A group is forgotten when it is trained or dropped, so that the record stays as small as what is live.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

from dart.core import messages as m
from dart.core.records import (
    RECENT_REWARDS,
    Batch,
    DemonstrationSummary,
    GroupRecord,
    RolloutChange,
    RolloutRecord,
    SeedReward,
    Snapshot,
    TaskStatistics,
)
from dart.core.types import SUCCESS_ABOVE, RolloutLease, RolloutState
from dart.store.serialization import record_of

T = TypeVar("T")


class SimulatedRecord:
    """A `dart.curation.service.Record`; the simulated run calls `finish` and `commit_update` itself."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._groups: dict[int, GroupRecord] = {}
        """Live ones, without their rollouts."""
        self._members: dict[int, dict[int, RolloutRecord]] = {}
        """The rollouts of each live group."""
        self._group_of: dict[int, int] = {}
        self._tasks: dict[str, TaskStatistics] = {}
        self._batch: Batch | None = None
        self._version = 0
        self._group_ids, self._rollout_ids, self._batch_ids = (itertools.count(1) for _ in range(3))

    async def write(self, call: m.Call[T]) -> T:
        """Carry out a call of the service; its result. Raises NotImplementedError for a call about faults."""
        result: Any
        match cast(Any, call):
            case m.OpenGroup() as wanted:
                result = self._open_group(wanted)
            case m.LeaseRollout() as wanted:
                result = self._lease_rollout(wanted)
            case m.DropGroup(group_id=group_id):
                result = self._forget(group_id)
            case m.RecordDecisions(decisions=decisions, drops=()):
                for one in decisions:
                    task = self._task(one.task_id)
                    self._tasks[one.task_id] = replace(task, decided={**task.decided, one.kind: one})
                result = len(decisions)
            case m.LeaseBatch() as wanted:
                result = self._lease_batch(wanted)
            case other:
                raise NotImplementedError(f"a simulation has no {type(other).__name__}")
        return cast(T, result)

    def rollout(self, rollout_id: int) -> RolloutRecord:
        return self._members[self._group_of[rollout_id]][rollout_id]

    def demonstrations(self, task_id: str) -> tuple[DemonstrationSummary, ...]:
        return ()

    def snapshot(self, recent_rewards: int = RECENT_REWARDS) -> Snapshot:
        """Of each task `RECENT_REWARDS` rewards at most."""
        tasks = (self._tasks[name] for name in sorted(self._tasks))
        return Snapshot(
            groups=tuple(
                replace(group, rollouts=tuple(self._members[group_id].values()))
                for group_id, group in self._groups.items()
            ),
            tasks=tuple(replace(task, recent=task.recent[-recent_rewards:]) for task in tasks),
            batch=self._batch,
            version=self._version,
        )

    def finish(self, lease: RolloutLease, reward: float, num_steps: int, oldest_version: int) -> None:
        """Store an episode that was played to its end."""
        self._members[lease.group_id][lease.rollout_id] = replace(
            self.rollout(lease.rollout_id),
            state=RolloutState.STORED,
            environment=None,
            reward=reward,
            oldest_version=oldest_version,
            num_steps=num_steps,
        )
        task = self._task(lease.task_id)
        longest = max(num_steps, task.longest_success_steps or 0)
        self._tasks[lease.task_id] = replace(
            task,
            recent=(*task.recent, SeedReward(lease.seed, reward))[-RECENT_REWARDS:],
            longest_success_steps=longest if reward > SUCCESS_ABOVE else task.longest_success_steps,
        )

    def commit_update(self, batch: Batch, version: int) -> None:
        """Train the open batch into a version."""
        for group_id in batch.group_ids:
            self._forget(group_id)
        self._batch, self._version = None, version

    def _open_group(self, wanted: m.OpenGroup) -> GroupRecord:
        group = record_of(
            GroupRecord,
            wanted,
            group_id=next(self._group_ids),
            opened_unix_s=self._clock(),
            batch_id=None,
            rollouts=(),
            demonstrations=(),
        )
        self._groups[group.group_id], self._members[group.group_id] = group, {}
        task = self._task(group.task_id)
        self._tasks[group.task_id] = replace(task, groups_opened=task.groups_opened + 1)
        return group

    def _lease_rollout(self, wanted: m.LeaseRollout) -> RolloutChange[RolloutLease]:
        group = self._groups[wanted.group_id]
        rollout = RolloutRecord(
            rollout_id=next(self._rollout_ids),
            group_id=wanted.group_id,
            state=RolloutState.LEASED,
            environment=wanted.environment,
            attempt=1,
            fence=1,
            deadline_unix_s=wanted.deadline_unix_s,
            reward=None,
            oldest_version=None,
        )
        self._members[wanted.group_id][rollout.rollout_id] = rollout
        self._group_of[rollout.rollout_id] = wanted.group_id
        lease = record_of(
            RolloutLease, rollout, task_id=group.task_id, seed=group.seed, step_cap=group.step_cap
        )
        return RolloutChange(result=lease, rollout=rollout)

    def _lease_batch(self, wanted: m.LeaseBatch) -> Batch:
        batch = Batch(
            batch_id=next(self._batch_ids),
            group_ids=tuple(sorted(wanted.group_ids)),
            deadline_unix_s=wanted.deadline_unix_s,
        )
        for group_id in batch.group_ids:
            self._groups[group_id] = replace(self._groups[group_id], batch_id=batch.batch_id)
        self._batch = batch
        return batch

    def _forget(self, group_id: int) -> int:
        """Forget a group; returns how many rollouts it had."""
        del self._groups[group_id]
        members = self._members.pop(group_id)
        for rollout_id in members:
            del self._group_of[rollout_id]
        return len(members)

    def _task(self, task_id: str) -> TaskStatistics:
        known = self._tasks.get(task_id)
        return known or TaskStatistics(
            task_id=task_id, groups_opened=0, recent=(), longest_success_steps=None
        )
