"""The service over a store of the same process, for tests."""

from typing import TypeVar

from dart.core.messages import Call
from dart.core.records import RECENT_REWARDS, DemonstrationSummary, RolloutRecord, Snapshot
from dart.store.store import Store

T = TypeVar("T")


class LocalRecord:
    """A store as the service wants it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def write(self, call: Call[T]) -> T:
        return self.store.write(call)

    def rollout(self, rollout_id: int) -> RolloutRecord:
        return self.store.rollout(rollout_id)

    def demonstrations(self, task_id: str) -> tuple[DemonstrationSummary, ...]:
        return self.store.demonstrations(task_id)

    def snapshot(self, recent_rewards: int = RECENT_REWARDS) -> Snapshot:
        return self.store.snapshot(recent_rewards)
