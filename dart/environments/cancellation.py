"""Waiting for something, unless something else comes first."""

from typing import Any

from actors.future import Future


class Interruption:
    """Happens once, or never; whoever waits through it then waits no longer."""

    def __init__(self) -> None:
        self.has_come = False
        self._waits: set[Future[None]] = set()

    def set(self) -> None:
        self.has_come = True
        for wait in list(self._waits):
            wait.succeed(None)

    async def or_first_of(self, *completions: Future[Any]) -> None:
        """Until one of them is done, whatever came of it, or this came."""
        if self.has_come:
            return
        wait: Future[None] = Future()
        self._waits.add(wait)
        for completion in completions:
            completion.then(lambda: wait.succeed(None))
        await wait
        self._waits.discard(wait)
