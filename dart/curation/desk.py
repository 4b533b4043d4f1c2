"""Decisions carried out: the curator's book and the record kept in step.

Each method decides, writes to the record, shows the curator the row that came of it, and goes on until
there is an answer. What an environment or a trainer says is only a reason to look: the record is believed,
so a lost, repeated or late message changes nothing.

One method at a time: the awaits in between belong together. If the record contradicts the book, or a call
does not end, the exception passes; the next desk starts from the record.
"""

import math
from typing import Protocol

from dart.curation.curator import Curator, Settings
from dart.curation.decisions import LeaseAgain, LeaseNew, NoBatch, NoWork, OpenGroup, TakeBack
from dart.store.records import Batch, GroupRecord, Release, Relet, RolloutRecord, Snapshot
from dart.types import FaultKind, RolloutLease


class Record(Protocol):
    """What the desk needs of the store; the writes go to its process, the reads may be local."""

    async def open_group(
        self, task_id: str, seed: int, rollouts_wanted: int, step_cap: int, policy_version: int
    ) -> int: ...

    async def lease_rollout(
        self, group_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease: ...

    async def relet_rollout(
        self, rollout_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease | Relet: ...

    async def release_rollout(
        self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str, max_attempts: int
    ) -> Release: ...

    async def drop_group(self, group_id: int, reason: str) -> int: ...

    async def lease_batch(self, group_ids: tuple[int, ...], deadline_unix_s: float) -> Batch: ...

    async def rollout(self, rollout_id: int) -> RolloutRecord: ...

    async def group(self, group_id: int) -> GroupRecord: ...

    async def snapshot(self) -> Snapshot: ...


async def open_desk(settings: Settings, record: Record) -> "Desk":
    """A desk that goes on where the last one stopped."""
    desk = Desk(settings, record, Curator(settings, await record.snapshot()))
    await desk.drop_untrainable()
    return desk


class Desk:
    """Where environments get rollouts and the trainer gets batches."""

    def __init__(self, settings: Settings, record: Record, curator: Curator) -> None:
        self.settings = settings
        self.record = record
        self.curator = curator

    def serving(self, version: int | None) -> None:
        """The oldest version that any engine serves; None while none does."""
        self.curator.serving_version = version

    async def work(self, environment: str, now_unix_s: float) -> RolloutLease | NoWork:
        """What an idle environment plays next."""
        while True:
            decision = self.curator.work_for(environment, now_unix_s)
            if isinstance(decision, NoWork):
                return decision
            lease = await self._carry_out(decision, environment)
            if lease is not None:
                return lease

    async def _carry_out(
        self, decision: TakeBack | LeaseAgain | LeaseNew | OpenGroup, environment: str
    ) -> RolloutLease | None:
        """One step towards a lease; None when it only prepared one."""
        match decision:
            case TakeBack():
                await self.take_back(decision)
                return None
            case OpenGroup():
                await self._open_group(decision)
                return None
            case LeaseAgain(rollout_id=rollout_id, deadline_unix_s=deadline):
                answer = await self.record.relet_rollout(rollout_id, environment, deadline)
                await self.look(rollout_id)
                return answer if isinstance(answer, RolloutLease) else None
            case LeaseNew(group_id=group_id, deadline_unix_s=deadline):
                lease = await self.record.lease_rollout(group_id, environment, deadline)
                await self.look(lease.rollout_id)
                return lease

    async def _open_group(self, decision: OpenGroup) -> None:
        group_id = await self.record.open_group(
            decision.task_id,
            decision.seed,
            decision.rollouts_wanted,
            decision.step_cap,
            decision.policy_version,
        )
        self.curator.group_seen(await self.record.group(group_id))

    async def failed(self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str) -> Release:
        """An environment gives up its lease."""
        return await self.take_back(self.curator.after_fault(rollout_id, fence, fault_kind, detail))

    async def take_back(self, decision: TakeBack) -> Release:
        """End a lease without a reward."""
        answer = await self.record.release_rollout(
            decision.rollout_id, decision.fence, decision.fault_kind, decision.detail, decision.max_attempts
        )
        await self.look(decision.rollout_id)
        return answer

    async def look(self, rollout_id: int) -> None:
        """Something happened to a rollout, for instance it was stored: read what, and drop what that ends."""
        self.curator.rollout_seen(await self.record.rollout(rollout_id))
        await self.drop_untrainable()

    async def take_back_overdue(self, now_unix_s: float) -> int:
        """Take back every lease past its deadline; returns how many."""
        overdue = self.curator.overdue(now_unix_s)
        for decision in overdue:
            await self.take_back(decision)
        return len(overdue)

    async def drop_untrainable(self) -> None:
        """Drop groups without spread, too small or stale; each is counted by its reason."""
        for decision in self.curator.drops():
            await self.record.drop_group(decision.group_id, decision.reason.value)
            self.curator.group_dropped(decision.group_id)

    async def batch(self) -> Batch | NoBatch:
        """The batch to train next: the one leased before if it was not consumed, else a new one."""
        leased = await self.reload()
        if leased is not None:
            return leased
        decision = self.curator.batch()
        if isinstance(decision, NoBatch):
            return decision
        batch = await self.record.lease_batch(decision.group_ids, math.inf)
        await self.reload()
        return batch

    async def reload(self) -> Batch | None:
        """Start the book anew from the record, for instance after an update; returns the open batch."""
        snapshot = await self.record.snapshot()
        self.curator = Curator(self.settings, snapshot, self.curator.serving_version)
        await self.drop_untrainable()
        return snapshot.batch
