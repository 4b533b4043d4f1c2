"""A record for the curator's service (`dart.curation.service.Record`) with the store in the same process, for
tests and examples."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from dart.core.messages import Call
from dart.store.store import Store

T = TypeVar("T")


class LocalRecord:
    """The `Record` of a curator's service that writes to and reads from a store in this process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.rollout, self.demonstrations = store.rollout, store.demonstrations
        self.snapshot = store.snapshot

    async def write(self, call: Call[T]) -> T:
        return self.store.write(call)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never has to wait, and return its result. No event loop is needed.

    raises   RuntimeError if the coroutine waits for something
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError(
        f"{coroutine!r} waited, but at_once runs only coroutines that never wait; use asyncio.run"
    )
