"""Everything that blocks, off the event loop and bounded: the record, the board, files, templates.

A few threads do the work; what is asked for at the same time is done once and answered to all, and stays good
for a moment, so any number of open pages costs as much as one. Who would have to wait too long is told so.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from dart.core.errors import TemporaryError

T = TypeVar("T")

THREADS = 2
WAITING_MOST = 64
"""Jobs under way, those that wait for a thread included."""

DEADLINE_S = 10.0
KEPT_MOST = 128


class Busy(TemporaryError):
    """Too much is asked for at once, or it takes too long."""


class BlockingPool:
    """Runs blocking functions for the event loop it is used in."""

    def __init__(self, deadline_s: float = DEADLINE_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="web")
        self._deadline_s = deadline_s
        self._now_s = now_s
        self._under_way = 0
        self._kept: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, what: str, job: Callable[[], T]) -> T:
        """The result of a blocking function. Raises Busy, and whatever the function does."""
        return await self._in_time(what, self._start(what, job))

    async def shared(self, key: Hashable, fresh_s: float, job: Callable[[], T]) -> T:
        """The same, done once for all who ask for `key` within `fresh_s`, or while it is done; a failure
        is not kept."""
        found = self._kept.get(key)
        if found is None or (found[0] <= self._now_s() and found[1].done()) or _failed(found[1]):
            self._forget_the_old()
            found = self._now_s() + fresh_s, self._start(str(key), job)
            self._kept[key] = found
        return await self._in_time(str(key), found[1])

    def _start(self, what: str, job: Callable[[], T]) -> asyncio.Future[T]:
        if self._under_way >= WAITING_MOST:
            raise Busy(f"{self._under_way} questions are waiting already, {what} among them; ask again later")
        self._under_way += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, job)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # whoever waited for it may have gone; it is no news then

    async def _in_time(self, what: str, future: asyncio.Future[T]) -> T:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(future)
        except TimeoutError:
            raise Busy(
                f"{what}: no answer of the record within {self._deadline_s:g} s; machine or disk are busy"
            ) from None

    def _forget_the_old(self) -> None:
        now_s = self._now_s()
        for key in [
            key for key, (until_s, future) in self._kept.items() if until_s <= now_s and future.done()
        ]:
            del self._kept[key]
        if len(self._kept) >= KEPT_MOST:
            self._kept.clear()


def _failed(future: asyncio.Future[Any]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
