"""The record as an actor uses it: writes go to the store actor, reads are done here."""

from typing import Any

from actors.actor import Actor
from dart import messages as m
from dart.store.errors import StoreConflict
from dart.store.reader import StoreReader
from dart.store.records import GroupRecord, Release, Relet, RolloutRecord, Snapshot
from dart.types import FaultKind, RolloutLease

WRITE_DEADLINE_S = 15.0
"""A write waits behind others and for the disk; beyond this the store is as good as gone."""


async def write(actor: Actor, call: Any) -> Any:
    """Ask the store actor. Raises AskError when it is gone or silent, StoreConflict when it contradicts."""
    answer = await actor.ask("store", call, deadline_s=WRITE_DEADLINE_S)
    if isinstance(answer, m.Contradiction):
        raise StoreConflict(answer.text)
    return answer


class RecordClient:
    """What the curator's desk needs of the record (`dart.curation.desk.Record`)."""

    def __init__(self, actor: Actor, reader: StoreReader) -> None:
        self._actor = actor
        self._reader = reader

    async def open_group(
        self, task_id: str, seed: int, rollouts_wanted: int, step_cap: int, policy_version: int
    ) -> int:
        call = m.OpenGroup(
            task_id=task_id,
            seed=seed,
            rollouts_wanted=rollouts_wanted,
            step_cap=step_cap,
            policy_version=policy_version,
        )
        number: m.Number = await write(self._actor, call)
        return number.value

    async def lease_rollout(self, group_id: int, environment: str, deadline_unix_s: float) -> RolloutLease:
        call = m.LeaseRollout(group_id=group_id, environment=environment, deadline_unix_s=deadline_unix_s)
        lease: RolloutLease = await write(self._actor, call)
        return lease

    async def relet_rollout(
        self, rollout_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease | Relet:
        call = m.ReletRollout(rollout_id=rollout_id, environment=environment, deadline_unix_s=deadline_unix_s)
        answer = await write(self._actor, call)
        return answer if isinstance(answer, RolloutLease) else Relet(answer.value)

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
        return Release((await write(self._actor, call)).value)

    async def drop_group(self, group_id: int, reason: str) -> int:
        number: m.Number = await write(self._actor, m.DropGroup(group_id=group_id, reason=reason))
        return number.value

    async def lease_batch(self, group_ids: tuple[int, ...]) -> int:
        number: m.Number = await write(self._actor, m.LeaseBatch(group_ids=group_ids, deadline_unix_s=0.0))
        return number.value

    async def rollout(self, rollout_id: int) -> RolloutRecord:
        return self._reader.rollout(rollout_id)

    async def group(self, group_id: int) -> GroupRecord:
        return self._reader.group(group_id)

    async def snapshot(self) -> Snapshot:
        return self._reader.snapshot()
