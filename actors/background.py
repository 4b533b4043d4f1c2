"""Blocking work beside the mailbox: a thread or an asyncio loop, answers through one descriptor.

The actor's main thread must stay answerable. Work goes to a thread; its result
returns through a queue and an eventfd that the main loop watches, so nothing is
polled.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from actors.future import Future

T = TypeVar("T")


class BackgroundWorker:
    """A thread for each piece of work, one loop for coroutines; results come back on the owner's thread."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._results: deque[Callable[[], None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def in_thread(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` in a thread of its own; the completion is done on the owner's thread."""
        completion: Future[T] = Future(unseen=self._nobody_looked)

        # Taken out when the work is done: the frames in an error's traceback must not keep it alive.
        waiting = [completion]

        def run() -> None:
            finish = _outcome_of(work)
            self._hand_back(partial(finish, waiting.pop()))

        threading.Thread(target=run, daemon=True, name="work").start()
        return completion

    def in_loop(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on this worker's asyncio loop."""
        completion: Future[T] = Future(unseen=self._nobody_looked)

        def finished(task: "asyncio.Task[T]") -> None:
            self._tasks.discard(task)
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                self._hand_back(lambda: completion.fail(error))
            else:
                self._hand_back(lambda: completion.succeed(task.result()))

        def start() -> None:
            task = loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(finished)

        loop = self._running_loop()
        loop.call_soon_threadsafe(start)
        return completion

    def deliver(self) -> None:
        """Finish every completion whose work is done. Call when `fd` is readable."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        while self._results:
            self._results.popleft()()

    def close(self) -> None:
        """End the loop. Threads that still work are left alone, like the descriptor they will write to."""
        if self._loop is not None and self._loop_thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join()
            self._loop.close()

    def _hand_back(self, finish: Callable[[], None]) -> None:
        self._results.append(finish)
        os.eventfd_write(self.fd, 1)

    def _nobody_looked(self, error: BaseException) -> None:
        """Raise it on the owner's thread, as if the owner had awaited the work. A cancellation was meant."""

        def crash() -> None:
            raise error

        if not isinstance(error, asyncio.CancelledError):
            self._hand_back(crash)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop_thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="asyncio")
            self._loop_thread.start()
        return self._loop


def _outcome_of(work: Callable[[], T]) -> Callable[[Future[T]], None]:
    """Do the work; returns what finishes its completion."""
    try:
        value = work()
    except BaseException as error:
        failure = error
        return lambda completion: completion.fail(failure)
    return lambda completion: completion.succeed(value)
