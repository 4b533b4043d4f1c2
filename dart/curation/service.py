"""Decisions carried out: the curator's book and the record kept in step.

Each method decides, writes to the record, shows the curator what came of it, and goes on until there is an
answer. What an environment or a trainer says is only a reason to look: the record is believed, so a lost,
repeated or late message changes nothing. The whole record is read when the service opens, and again only when
it contradicts the book: another process wrote, or a message got lost.

One method at a time: the awaits in between belong together. If the record contradicts the book for good, or a
call does not end, the exception passes; the next service starts from the record.
"""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from dart.core.messages import (
    Call,
    DropGroup,
    InjectDemonstration,
    LeaseBatch,
    LeaseRollout,
    OpenGroup,
    ReassignBatch,
    ReassignRollout,
    RecordDecisions,
    RefuseBatch,
    ReleaseRollout,
)
from dart.core.records import Batch, DemonstrationSummary, Release, RolloutRecord, Snapshot, TaskDecision
from dart.core.types import FaultKind, RolloutLease
from dart.curation.curator import Curator, CuratorSettings, Liveness
from dart.curation.decisions import NewLease, NoBatch, NoWork, ReassignLease, RevokeLease
from dart.curation.groups import DropReason
from dart.store.errors import StoreConflict

T = TypeVar("T")


class Record(Protocol):
    """What the service needs of the store. A write goes to its process, a read may be local."""

    async def write(self, call: Call[T]) -> T: ...

    def rollout(self, rollout_id: int) -> RolloutRecord: ...

    def demonstrations(self, task_id: str) -> tuple[DemonstrationSummary, ...]: ...

    def snapshot(self, recent_rewards: int) -> Snapshot: ...


Clock = Callable[[], float]
"""Unix seconds."""


async def open_service(
    settings: CuratorSettings,
    record: Record,
    clock: Clock = time.time,
    on_decision: Callable[[TaskDecision], None] = lambda _: None,
) -> "CurationService":
    """A service that goes on where the last one stopped; `on_decision` is told what is recorded of tasks."""
    service = CurationService(
        settings, record, Curator(settings, record.snapshot(settings.kept_rewards)), clock, on_decision
    )
    await service.give_back_stale_batch()
    await service.settle()
    return service


class CurationService:
    """Where environments get rollouts and the trainer gets batches."""

    def __init__(
        self,
        settings: CuratorSettings,
        record: Record,
        curator: Curator,
        clock: Clock,
        on_decision: Callable[[TaskDecision], None],
    ) -> None:
        self.settings = settings
        self.record = record
        self.curator = curator
        self._clock = clock
        self._on_decision = on_decision
        self._told_overdue: tuple[int, int] | None = None
        """Batch and fence of which it was told that it is overdue."""

    # environments

    def serving(self, version: int | None) -> None:
        """The oldest version that any engine serves; None while none does."""
        self.curator.serving_version = version

    def outside(self, seen: Liveness) -> None:
        """Who of the environments and engines is there."""
        self.curator.outside = seen

    async def work(self, environment: str) -> RolloutLease | NoWork:
        """What an idle environment plays next."""
        while True:
            decision = self.curator.work_for(environment, self._clock())
            if isinstance(decision, NoWork):
                return decision
            lease = await self._carry_out(decision, environment)
            if lease is not None:
                return lease

    async def _carry_out(
        self, decision: RevokeLease | ReassignLease | NewLease | OpenGroup, environment: str
    ) -> RolloutLease | None:
        """One step towards a lease; None when it only prepared one."""
        match decision:
            case RevokeLease():
                await self.take_back(decision)
                return None
            case OpenGroup():
                self.curator.group_seen(await self.record.write(decision))
                return None
            case ReassignLease(rollout_id=rollout_id, deadline_unix_s=deadline):
                reassigned = await self.record.write(
                    ReassignRollout(rollout_id=rollout_id, environment=environment, deadline_unix_s=deadline)
                )
                await self._seen(reassigned.rollout)
                return reassigned.result if isinstance(reassigned.result, RolloutLease) else None
            case NewLease(group_id=group_id, deadline_unix_s=deadline):
                leased = await self.record.write(
                    LeaseRollout(group_id=group_id, environment=environment, deadline_unix_s=deadline)
                )
                await self._seen(leased.rollout)
                return leased.result

    async def failed(self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str) -> Release:
        """An environment gives up its lease."""
        return await self.take_back(self.curator.after_fault(rollout_id, fence, fault_kind, detail))

    async def take_back(self, decision: RevokeLease) -> Release:
        """End a lease without a reward."""
        released = await self.record.write(
            ReleaseRollout(
                rollout_id=decision.rollout_id,
                fence=decision.fence,
                fault_kind=decision.fault_kind,
                detail=decision.detail,
                max_attempts=decision.max_attempts,
            )
        )
        self.curator.rollout_seen(released.rollout)
        if released.result in (Release.AWAITING, Release.DROPPED):
            self.curator.attempt_failed(
                released.rollout.group_id, decision.fault_kind, environment_lost=decision.environment_lost
            )
        await self.settle()
        return released.result

    async def look(self, rollout_id: int) -> None:
        """Something happened to a rollout, for instance it was stored: read what, and do what follows."""
        await self._seen(self.record.rollout(rollout_id))

    async def _seen(self, rollout: RolloutRecord) -> None:
        self.curator.rollout_seen(rollout)
        await self.settle()

    async def take_back_overdue(self) -> int:
        """Take back every lease past its deadline; returns how many."""
        overdue = self.curator.overdue(self._clock())
        for decision in overdue:
            await self.take_back(decision)
        return len(overdue)

    # groups and tasks

    async def settle(self) -> None:
        """Everything that follows from what the book knows: demonstrations, drops, decisions about tasks."""
        while True:
            await self._inject()
            for drop in self.curator.drops():
                await self.record.write(DropGroup(group_id=drop.group_id, reason=drop.reason.value))
                self.curator.group_dropped(drop.group_id, self._clock())
            decisions = self.curator.decisions(self._clock())
            if not decisions:
                return
            await self.record.write(RecordDecisions(decisions=decisions))
            self.curator.decided(decisions)
            for decision in decisions:
                self._on_decision(decision)

    async def _inject(self) -> None:
        """Add demonstrations where everything failed.

        A command that drops one from the pool sends no message: the record refuses it, and is read again.
        """
        refused: InjectDemonstration | None = None
        while (decision := self.curator.injection()) is not None:
            try:
                await self.record.write(decision)
            except StoreConflict:
                if decision == refused:
                    raise
                refused = decision
                await self._read_again()
            else:
                self.curator.injected(decision)

    async def pool_changed(self, task_id: str) -> None:
        """An episode was played under a demonstration of this task: read what the pool holds by now."""
        self.curator.tasks.pool_changed(task_id, self.record.demonstrations(task_id))

    # the trainer

    async def batch(self) -> Batch | NoBatch:
        """The batch to train next: the one leased before if it was not consumed, else a new one."""
        deadline_unix_s = self._clock() + self.settings.batch_lease_s
        refused: int | None = None
        while (leased := self.curator.open_batch) is not None:
            try:
                batch = await self.record.write(
                    ReassignBatch(batch_id=leased.batch_id, deadline_unix_s=deadline_unix_s)
                )
            except StoreConflict:
                if leased.batch_id == refused:
                    raise
                # It was consumed or given back, and the message about it was lost.
                refused = leased.batch_id
                await self.reload()
            else:
                self.curator.batch_leased(batch)
                return batch
        decision = self.curator.batch()
        if isinstance(decision, NoBatch):
            return decision
        batch = await self.record.write(
            LeaseBatch(group_ids=decision.group_ids, deadline_unix_s=deadline_unix_s)
        )
        self.curator.batch_leased(batch)
        return batch

    async def committed(self, version: int) -> None:
        """The trainer committed an update; what it says is in the record before it says it."""
        known = self.curator.trainer_version
        if known is not None and version <= known:
            return
        if known is None or version != known + 1 or self.curator.open_batch is None:
            await self.reload()
            return
        self.curator.update_committed(version)
        await self.settle()

    async def give_back_stale_batch(self) -> None:
        """Open the groups of the leased batch again when the bound has been lowered below the age of one.

        The trainer asserts the bound: it would end on that batch again and again. Groups that are fresh
        enough are leased anew, the others are dropped.
        """
        if (stale := self.curator.stale_batch()) is None:
            return
        batch, staleness = stale
        detail = (
            f"batch {batch.batch_id} holds a step {staleness} versions old and curation.staleness is "
            f"{self.settings.staleness_bound} now: its groups are judged anew"
        )
        await self.record.write(
            RefuseBatch(
                batch_id=batch.batch_id,
                fence=batch.fence,
                group_ids=(),
                pool_ids=(),
                reason=DropReason.STALE.value,
                detail=detail,
            )
        )
        await self._read_again()

    def overdue_batch(self) -> Batch | None:
        """The open batch when it is past its deadline; each lease of it once."""
        batch = self.curator.open_batch
        if batch is None or self._clock() < batch.deadline_unix_s:
            return None
        lease = (batch.batch_id, batch.fence)
        if lease == self._told_overdue:
            return None
        self._told_overdue = lease
        return batch

    # the whole record

    async def reload(self) -> None:
        """Start the book anew from the record: it says something else than the book."""
        await self._read_again()
        await self.settle()

    async def _read_again(self) -> None:
        snapshot = self.record.snapshot(self.settings.kept_rewards)
        before = self.curator
        self.curator = Curator(self.settings, snapshot, before.serving_version)
        self.curator.outside, self.curator.wanted_guides = before.outside, before.wanted_guides
