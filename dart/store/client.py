"""The record as an actor uses it: writes go to the store actor, reads are done here."""

from collections.abc import Callable
from typing import Any

from actors.actor import Actor
from dart.core import messages as m
from dart.core.records import (
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
from dart.store.errors import StoreConflict
from dart.store.reader import StoreReader

WRITE_DEADLINE_S = 15.0
"""A write waits behind others and for the disk; beyond this the store is as good as gone."""


async def write(
    actor: Actor, call: Any, on_pause: Callable[[str], None] = lambda _: None, to: str = "store"
) -> Any:
    """Ask the store actor, or who writes to it, again and again while the disk refuses writes.

    `on_pause` is told the reason when that begins and an empty one when it is over. Raises AskError when the
    store is gone or silent, StoreConflict when it contradicts.
    """
    since_s = actor.clock.monotonic_s()
    answer = await actor.ask(to, call, deadline_s=WRITE_DEADLINE_S)
    if isinstance(answer, m.Paused):
        on_pause(answer.reason)
        actor.log.warning("store_paused", call=type(call).__name__, reason=answer.reason)
        try:
            while isinstance(answer, m.Paused):
                await actor.sleep(answer.retry_after_s)
                answer = await actor.ask(to, call, deadline_s=WRITE_DEADLINE_S)
        finally:
            on_pause("")
        actor.log.info(
            "store_goes_on", call=type(call).__name__, paused_s=actor.clock.monotonic_s() - since_s
        )
    if isinstance(answer, m.Contradiction):
        raise StoreConflict(answer.text)
    return answer


class RecordClient:
    """What the curator's service needs of the record (`dart.curation.service.Record`)."""

    def __init__(self, actor: Actor, reader: StoreReader) -> None:
        self._actor = actor
        self._reader = reader
        self.paused = ""
        """Why the disk refuses writes now; empty while it does not."""

    async def _write(self, call: Any) -> Any:
        return await write(self._actor, call, self._note_pause)

    def _note_pause(self, reason: str) -> None:
        self.paused = reason

    async def open_group(
        self,
        task_id: str,
        seed: int,
        rollouts_wanted: int,
        step_cap: int,
        policy_version: int,
        probes_length: bool = False,
    ) -> int:
        call = m.OpenGroup(
            task_id=task_id,
            seed=seed,
            rollouts_wanted=rollouts_wanted,
            step_cap=step_cap,
            policy_version=policy_version,
            probes_length=probes_length,
        )
        number: m.Number = await self._write(call)
        return number.value

    async def lease_rollout(self, group_id: int, environment: str, deadline_unix_s: float) -> RolloutLease:
        call = m.LeaseRollout(group_id=group_id, environment=environment, deadline_unix_s=deadline_unix_s)
        lease: RolloutLease = await self._write(call)
        return lease

    async def reassign_rollout(
        self, rollout_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease | Reassignment:
        call = m.ReassignRollout(
            rollout_id=rollout_id, environment=environment, deadline_unix_s=deadline_unix_s
        )
        answer = await self._write(call)
        return answer if isinstance(answer, RolloutLease) else Reassignment(answer.value)

    async def release_rollout(
        self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str, max_attempts: int
    ) -> Release:
        call = m.ReleaseRollout(
            rollout_id=rollout_id,
            fence=fence,
            fault_kind=fault_kind,
            detail=detail,
            max_attempts=max_attempts,
        )
        return Release((await self._write(call)).value)

    async def drop_group(self, group_id: int, reason: str) -> int:
        number: m.Number = await self._write(m.DropGroup(group_id=group_id, reason=reason))
        return number.value

    async def inject(self, group_id: int, pool_id: int) -> None:
        await self._write(m.InjectDemonstration(group_id=group_id, pool_id=pool_id))

    async def record_decisions(self, decisions: tuple[TaskDecision, ...]) -> None:
        await self._write(m.RecordDecisions(decisions=decisions))

    async def lease_batch(self, group_ids: tuple[int, ...], deadline_unix_s: float) -> Batch:
        call = m.LeaseBatch(group_ids=group_ids, deadline_unix_s=deadline_unix_s)
        number: m.Number = await self._write(call)
        return Batch(batch_id=number.value, group_ids=group_ids, deadline_unix_s=deadline_unix_s)

    async def reassign_batch(self, batch_id: int, deadline_unix_s: float) -> Batch:
        call = m.ReassignBatch(batch_id=batch_id, deadline_unix_s=deadline_unix_s)
        lease: m.BatchLease = await self._write(call)
        return Batch(
            batch_id=lease.batch_id,
            group_ids=lease.group_ids,
            fence=lease.fence,
            deadline_unix_s=deadline_unix_s,
        )

    async def give_back_batch(self, batch_id: int, fence: int, reason: str, detail: str) -> BatchRefusal:
        call = m.RefuseBatch(
            batch_id=batch_id, fence=fence, group_ids=(), pool_ids=(), reason=reason, detail=detail
        )
        return BatchRefusal((await self._write(call)).value)

    async def rollout(self, rollout_id: int) -> RolloutRecord:
        return self._reader.rollout(rollout_id)

    async def group(self, group_id: int) -> GroupRecord:
        return self._reader.group(group_id)

    async def demonstrations(self, task_id: str) -> tuple[DemonstrationSummary, ...]:
        return self._reader.demonstrations(task_id)

    async def snapshot(self, recent_rewards: int) -> Snapshot:
        return self._reader.snapshot(recent_rewards)
