"""An event that ends waiting early."""

from typing import Any

from actors.future import Future


class StopEvent:
    """An event that is set once, or never. Setting it ends every wait that goes through it."""

    def __init__(self) -> None:
        self.is_set = False
        self._waits: set[Future[None]] = set()

    def set(self) -> None:
        """Set the event and end all waits."""
        self.is_set = True
        for wait in list(self._waits):
            wait.succeed(None)

    async def wait_first(self, *futures: Future[Any]) -> None:
        """Wait until one of the futures is done, with a result or an error, or the event is set."""
        if self.is_set:
            return
        wait: Future[None] = Future()
        self._waits.add(wait)
        for future in futures:
            future.then(lambda: wait.succeed(None))
        await wait
        self._waits.discard(wait)
