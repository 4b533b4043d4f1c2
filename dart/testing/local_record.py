"""The service over a store of the same process, for tests."""

from dart.core.records import (
    RECENT_REWARDS,
    Batch,
    BatchRefusal,
    DemonstrationSummary,
    GroupRecord,
    Reassignment,
    Release,
    RolloutRecord,
    Snapshot,
    TaskDecision,
)
from dart.core.types import FaultKind, RolloutLease
from dart.store.store import Store


class LocalRecord:
    """A store as the service wants it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def open_group(
        self,
        task_id: str,
        seed: int,
        rollouts_wanted: int,
        step_cap: int,
        policy_version: int,
        probes_length: bool = False,
    ) -> int:
        return self.store.open_group(
            task_id, seed, rollouts_wanted, step_cap, policy_version, probes_length=probes_length
        )

    async def lease_rollout(self, group_id: int, environment: str, deadline_unix_s: float) -> RolloutLease:
        return self.store.lease_rollout(group_id, environment, deadline_unix_s)

    async def reassign_rollout(
        self, rollout_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease | Reassignment:
        return self.store.reassign_rollout(rollout_id, environment, deadline_unix_s)

    async def release_rollout(
        self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str, max_attempts: int
    ) -> Release:
        return self.store.release_rollout(rollout_id, fence, fault_kind, detail, max_attempts)

    async def inject(self, group_id: int, pool_id: int) -> None:
        self.store.inject(group_id, pool_id)

    async def drop_group(self, group_id: int, reason: str) -> int:
        return self.store.drop_group(group_id, reason)

    async def record_decisions(self, decisions: tuple[TaskDecision, ...]) -> None:
        self.store.record_decisions(decisions)

    async def lease_batch(self, group_ids: tuple[int, ...], deadline_unix_s: float) -> Batch:
        return self.store.lease_batch(group_ids, deadline_unix_s)

    async def reassign_batch(self, batch_id: int, deadline_unix_s: float) -> Batch:
        return self.store.reassign_batch(batch_id, deadline_unix_s)

    async def give_back_batch(self, batch_id: int, fence: int, reason: str, detail: str) -> BatchRefusal:
        return self.store.refuse_batch(batch_id, fence, (), (), reason, detail)

    async def rollout(self, rollout_id: int) -> RolloutRecord:
        return self.store.rollout(rollout_id)

    async def group(self, group_id: int) -> GroupRecord:
        return self.store.group(group_id)

    async def demonstrations(self, task_id: str) -> tuple[DemonstrationSummary, ...]:
        return self.store.demonstrations(task_id)

    async def snapshot(self, recent_rewards: int = RECENT_REWARDS) -> Snapshot:
        return self.store.snapshot(recent_rewards)
