"""A bounded pool of threads for blocking work: reading the record, the board and files, rendering templates.

Requests for the same result share one job, and the result is kept for a moment. So many open pages cost as
much as one. A request raises Busy if there are too many jobs or its job takes too long.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dart.core.errors import TemporaryError

T = TypeVar("T")

THREADS = 2
WAITING_MOST = 64
"""Largest number of jobs at a time, including those that wait for a thread."""

DEADLINE_S = 10.0
KEPT_MOST = 128


class Busy(TemporaryError):
    """There are too many jobs, or a job takes too long."""


class BlockingPool:
    """Runs blocking functions in threads, for one event loop.

    deadline_s   longest wait for a job; a job that takes longer continues, but its callers get Busy
    """

    def __init__(self, deadline_s: float = DEADLINE_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="web")
        self._deadline_s = deadline_s
        self._now_s = now_s
        self._under_way = 0
        self._kept: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Serve as the `lifespan` of an ASGI application: close the pool when the application ends."""
        yield
        self.close()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, what: str, job: Callable[[], T]) -> T:
        """Run a blocking function in a thread and return its result.

        what     name of the job in the messages of errors
        raises   Busy, and the errors of `job`
        """
        return await self._in_time(what, self._start(what, job))

    async def shared(self, key: Hashable, fresh_s: float, job: Callable[[], T]) -> T:
        """Run a blocking function once for all calls with this `key` within `fresh_s`, and return its result.

        After a failure, the next call runs the function again.

        key      identifies the result; its text names the job in the messages of errors
        raises   Busy, and the errors of `job`
        """
        found = self._kept.get(key)
        if found is None or (found[0] <= self._now_s() and found[1].done()) or _failed(found[1]):
            self._forget_the_old()
            found = self._now_s() + fresh_s, self._start(str(key), job)
            self._kept[key] = found
        return await self._in_time(str(key), found[1])

    def _start(self, what: str, job: Callable[[], T]) -> asyncio.Future[T]:
        if self._under_way >= WAITING_MOST:
            raise Busy(f"no thread is free for {what}: {self._under_way} jobs are waiting; try again later")
        self._under_way += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, job)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # retrieved here, because the client that waited may have gone

    async def _in_time(self, what: str, future: asyncio.Future[T]) -> T:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(future)
        except TimeoutError:
            raise Busy(
                f"{what} took over {self._deadline_s:g} s: the machine or its disk is busy; try again later"
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
