"""The desk without actors, for tests: a store of the same process, and coroutines that never wait."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from dart.store.records import Batch, GroupRecord, Release, Relet, RolloutRecord, Snapshot
from dart.store.store import Store
from dart.types import FaultKind, RolloutLease

T = TypeVar("T")


class LocalRecord:
    """A store as the desk wants it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def open_group(
        self, task_id: str, seed: int, rollouts_wanted: int, step_cap: int, policy_version: int
    ) -> int:
        return self.store.open_group(task_id, seed, rollouts_wanted, step_cap, policy_version)

    async def lease_rollout(self, group_id: int, environment: str, deadline_unix_s: float) -> RolloutLease:
        return self.store.lease_rollout(group_id, environment, deadline_unix_s)

    async def relet_rollout(
        self, rollout_id: int, environment: str, deadline_unix_s: float
    ) -> RolloutLease | Relet:
        return self.store.relet_rollout(rollout_id, environment, deadline_unix_s)

    async def release_rollout(
        self, rollout_id: int, fence: int, fault_kind: FaultKind, detail: str, max_attempts: int
    ) -> Release:
        return self.store.release_rollout(rollout_id, fence, fault_kind, detail, max_attempts)

    async def drop_group(self, group_id: int, reason: str) -> int:
        return self.store.drop_group(group_id, reason)

    async def lease_batch(self, group_ids: tuple[int, ...], deadline_unix_s: float) -> Batch:
        return self.store.lease_batch(group_ids, deadline_unix_s)

    async def rollout(self, rollout_id: int) -> RolloutRecord:
        return self.store.rollout(rollout_id)

    async def group(self, group_id: int) -> GroupRecord:
        return self.store.group(group_id)

    async def snapshot(self) -> Snapshot:
        return self.store.snapshot()


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError(f"{coroutine!r} waited, but its record answers at once")
