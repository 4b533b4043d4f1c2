"""The curator's service over a store of the same process, for tests and examples."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from dart.core.messages import Call
from dart.store.store import Store

T = TypeVar("T")


class LocalRecord:
    """A store of this process as the `Record` of the curator's service."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.rollout, self.demonstrations = store.rollout, store.demonstrations
        self.snapshot = store.snapshot

    async def write(self, call: Call[T]) -> T:
        return self.store.write(call)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError(f"{coroutine!r} waited; at_once runs only what waits for nothing outside this process")
