"""Carries out the curator's decisions, and keeps its index in step with the record.

Each method asks the curator for a decision, writes it to the record, passes the resulting rows to the
curator, and repeats this until there is nothing more to do. A message from an environment or from the trainer
is only a reason to read the record, so a lost, repeated or late message does no harm. The whole record is
read when the service opens. It is read again only when the record contradicts the index, because another
process wrote to the record or a message got lost.

Only one method may run at a time, from its first await to its last. If the record contradicts the index even
after it was read again, or if a write fails, the exception leaves the method. A new service must then be
opened; it starts from the record.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from typing import Any, Protocol, TypeVar

from dart.core.messages import (
    BatchAhead,
    Call,
    LeaseRollout,
    NoWorkYet,
    OpenGroup,
    ReassignBatch,
    ReassignRollout,
    RecordDecisions,
    RefuseBatch,
    ReleaseRollout,
    UseDemonstration,
)
from dart.core.records import (
    Batch,
    DemonstrationSummary,
    Release,
    RolloutChange,
    RolloutRecord,
    Snapshot,
    TaskDecision,
)
from dart.core.types import FaultKind, RolloutLease
from dart.curation.curator import Curator, RevokeLease
from dart.curation.groups import DropReason
from dart.curation.settings import CuratorSettings
from dart.store.errors import StoreConflict

T = TypeVar("T")

DECISIONS_MOST = 100
"""About the largest number of decisions in one message, which carries 64 KiB. After a change of the
configuration every task may need a new decision."""


class Record(Protocol):
    """What the service needs of the record. Writes go to the store actor; reads may go to the database."""

    async def write(self, call: Call[T]) -> T: ...

    def rollout(self, rollout_id: int) -> RolloutRecord: ...

    def demonstrations(self, task_id: str) -> tuple[DemonstrationSummary, ...]: ...

    def snapshot(self, recent_rewards: int) -> Snapshot: ...


Clock = Callable[[], float]
"""Function that returns the time in unix seconds."""


async def open_service(
    settings: CuratorSettings,
    record: Record,
    clock: Clock = time.time,
    on_decision: Callable[[TaskDecision], None] = lambda _: None,
) -> "CurationService":
    """Return a service that continues from the record.

    on_decision   called with each decision about a task after it is in the record
    """
    service = CurationService(settings, record, clock, on_decision)
    await service.give_back_stale_batch()
    await service.settle()
    return service


class CurationService:
    """Leases rollouts to environments and batches to the trainer, as the curator decides."""

    def __init__(
        self,
        settings: CuratorSettings,
        record: Record,
        clock: Clock,
        on_decision: Callable[[TaskDecision], None],
    ) -> None:
        self.settings = settings
        self.record = record
        self.curator = Curator(settings, record.snapshot(settings.kept_episodes))
        self._clock = clock
        self._on_decision = on_decision
        self._reported_overdue: tuple[int, int] | None = None
        """Batch id and fence of the lease that `overdue_batch` returned last."""

    # ---- environments ----

    def serving(self, version: int | None) -> None:
        """Set the oldest version that any engine serves; None while no engine serves one."""
        self.curator.serving_version = version

    async def work(self, environment: str) -> RolloutLease | NoWorkYet:
        """Lease a rollout to an idle environment; NoWorkYet, with the reason, if there is none now."""
        while True:
            decision = self.curator.work_for(environment, self._clock())
            match decision:
                case NoWorkYet():
                    return decision
                case RevokeLease():
                    await self._revoke(decision.release, environment_lost=decision.environment_lost)
                case OpenGroup():
                    self.curator.group_seen(await self.record.write(decision))
                case ReassignRollout() | LeaseRollout():
                    change: RolloutChange[Any] = await self.record.write(decision)
                    await self._seen(change.rollout)
                    if isinstance(change.result, RolloutLease):
                        return change.result

    async def failed(self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str) -> None:
        """End the lease of an environment that met a fault."""
        release = self.curator.after_fault(rollout_id, fence, fault_kind, detail)
        await self._revoke(release, environment_lost=False)

    async def _revoke(self, release: ReleaseRollout, *, environment_lost: bool) -> None:
        """End a lease without a reward."""
        released = await self.record.write(release)
        self.curator.rollout_seen(released.rollout)
        if released.result in (Release.AWAITING, Release.DROPPED):
            self.curator.attempt_failed(
                released.rollout.group_id, release.fault_kind, environment_lost=environment_lost
            )
        await self.settle()

    async def look(self, rollout_id: int) -> None:
        """Read a rollout that changed in the record, such as one that was stored, into the index;
        `settle`."""
        await self._seen(self.record.rollout(rollout_id))

    async def _seen(self, rollout: RolloutRecord) -> None:
        self.curator.rollout_seen(rollout)
        await self.settle()

    async def revoke_overdue(self) -> int:
        """Revoke every lease past its deadline; return their number."""
        overdue = self.curator.overdue(self._clock())
        for decision in overdue:
            await self._revoke(decision.release, environment_lost=decision.environment_lost)
        return len(overdue)

    # ---- groups and tasks ----

    async def settle(self) -> None:
        """Carry out all decisions that are due: demonstrations, dropped groups, decisions about tasks."""
        while True:
            await self._use_demonstrations()
            self.curator.count_failed_groups()
            for drop in self.curator.drops():
                await self.record.write(drop)
                self.curator.group_dropped(drop.group_id)
            decisions = self.curator.decisions(self._clock())
            if not decisions:
                return
            for part in parts_of(decisions):
                await self._decide(part)

    async def _decide(self, decisions: tuple[TaskDecision, ...]) -> None:
        drops = self.curator.drops_by(decisions)
        await self.record.write(RecordDecisions(decisions=decisions, drops=drops))
        self.curator.decided(decisions)
        for drop in drops:
            self.curator.group_dropped(drop.group_id)
        for decision in decisions:
            self._on_decision(decision)

    async def _use_demonstrations(self) -> None:
        """Add demonstrations to groups in which every rollout failed.

        `dartrl pool` can drop a demonstration without a message to the curator. The store then refuses to add
        it, and the record is read again.
        """
        refused: UseDemonstration | None = None
        while (decision := self.curator.demonstration_to_use()) is not None:
            try:
                await self.record.write(decision)
            except StoreConflict:
                if decision == refused:
                    raise
                refused = decision
                self._read_again()
            else:
                self.curator.demonstration_used(decision)

    def pool_changed(self, task_id: str) -> None:
        """Read the demonstrations of a task from the record again, after a guided episode was stored."""
        self.curator.tasks.pool_changed(task_id, self.record.demonstrations(task_id))

    # ---- the trainer ----

    async def batch(self, trained_ahead: Collection[int] = ()) -> Batch | NoWorkYet:
        """Lease a batch to the trainer: the open batch again if there is one, else a new batch.

        trained_ahead   ids of the groups that `batch_ahead` named and that the trainer has trained on already

        Returns NoWorkYet, with the reason, if no batch can be leased now.
        """
        refused: int | None = None
        while (leased := self.curator.open_batch) is not None:
            deadline_unix_s = self._clock() + self.settings.batch_lease_s
            call = ReassignBatch(batch_id=leased.batch_id, deadline_unix_s=deadline_unix_s)
            try:
                return self._leased(await self.record.write(call))
            except StoreConflict:
                if leased.batch_id == refused:
                    raise
                # It was consumed or given back, and the message about it was lost.
                refused = leased.batch_id
                await self._reload()
        decision = self.curator.batch(self._clock(), trained_ahead)
        if isinstance(decision, NoWorkYet):
            return decision
        return self._leased(await self.record.write(decision))

    async def batch_ahead(self) -> BatchAhead | NoWorkYet:
        """Return the ids of the groups of the batch after the open one, without a lease.

        The trainer computes the next update with them while it writes the checkpoint of the open batch.
        Returns NoWorkYet, with the reason, if these groups are not known yet.
        """
        chosen = self.curator.batch_ahead()
        return chosen if isinstance(chosen, NoWorkYet) else BatchAhead(group_ids=chosen)

    def _leased(self, batch: Batch) -> Batch:
        self.curator.batch_leased(batch)
        return batch

    async def committed(self, version: int) -> None:
        """Update the index after the trainer committed the update to `version`, which the record has."""
        known = self.curator.trainer_version
        if known is not None and version <= known:
            return
        if known is None or version != known + 1 or self.curator.open_batch is None:
            await self._reload()
            return
        self.curator.update_committed(version)
        await self.settle()

    async def give_back_stale_batch(self) -> None:
        """Give the open batch back if one of its steps is older than the staleness bound allows.

        This happens when `curation.staleness` was lowered while the batch was open. The trainer asserts the
        bound, so it would crash on this batch again and again. Groups that are fresh enough are leased again
        in a later batch; the others are dropped.
        """
        if (stale := self.curator.stale_batch()) is None:
            return
        batch, staleness = stale
        detail = (
            f"batch {batch.batch_id} holds a step {staleness} versions old and curation.staleness is "
            f"{self.settings.staleness_bound} now: its groups that are too old are dropped, the others kept"
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
        self._read_again()

    def overdue_batch(self) -> Batch | None:
        """Return the open batch if its lease is past its deadline. Each lease is returned only once."""
        batch = self.curator.open_batch
        if batch is None or self._clock() < batch.deadline_unix_s:
            return None
        lease = (batch.batch_id, batch.fence)
        if lease == self._reported_overdue:
            return None
        self._reported_overdue = lease
        return batch

    # ---- the whole record ----

    async def _reload(self) -> None:
        """Build a new index from the whole record, because the record contradicts the old one; `settle`."""
        self._read_again()
        await self.settle()

    def _read_again(self) -> None:
        before = self.curator
        self.curator = Curator(
            self.settings, self.record.snapshot(self.settings.kept_episodes), before.serving_version
        )
        self.curator.continue_from(before)


def parts_of(decisions: Sequence[TaskDecision]) -> Iterator[tuple[TaskDecision, ...]]:
    """Cut decisions into parts of about `DECISIONS_MOST`. Decisions about one task stay in one part."""
    part: list[TaskDecision] = []
    for _, about_task in groupby(decisions, key=lambda decision: decision.task_id):
        part += about_task
        if len(part) >= DECISIONS_MOST:
            yield tuple(part)
            part = []
    if part:
        yield tuple(part)
