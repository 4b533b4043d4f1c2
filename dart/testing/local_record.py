"""The service over a store of the same process, for tests."""

from typing import TypeVar

from dart.core.messages import Call
from dart.store.store import Store

T = TypeVar("T")


class LocalRecord:
    """A store as the service wants it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.rollout, self.demonstrations = store.rollout, store.demonstrations
        self.snapshot = store.snapshot

    async def write(self, call: Call[T]) -> T:
        return self.store.write(call)
