"""Blocking work beside the mailbox: in threads or on an asyncio loop, with results on the actor's own thread.

So the actor's own thread stays free to take mail. A result returns through a queue and an eventfd that the
actor's loop watches, so nothing is polled.
"""

import asyncio
import contextlib
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

from actors.board import Board
from actors.clock import Clock
from actors.errors import WorkOverdue
from actors.future import Future
from actors.lateness import Lateness
from actors.runtime import Runtime
from actors.timers import Timers

T = TypeVar("T")

LOOK_EVERY_S = 1.0
"""How often an actor with work in a thread looks whether it was suspended. A suspension that is too short to
be noticed (`actors.lateness`) costs the work its time."""


class _InThread(NamedTuple):
    """A piece of work in a thread."""

    name: str
    since_ns: int
    """When it began, in nanoseconds of the board's clock."""
    setting: str
    """The setting that holds its deadline; empty: it has no setting."""

    def overdue(self, deadline_s: float) -> WorkOverdue:
        """Return the error of this work when its deadline has passed."""
        remedy = f"; if it was only slow, raise {self.setting}" if self.setting else ""
        return WorkOverdue(f"the work {self.name!r} is not done after {deadline_s} s, its deadline{remedy}")


class BackgroundWork:
    """The background work of one actor. The board shows the name of the work that runs longest in a thread.

    on_end   called on the actor's thread whenever a piece of work in a thread has ended
    """

    def __init__(
        self,
        board: Board,
        slot: int,
        runtime: Runtime,
        timers: Timers,
        clock: Clock,
        on_end: Callable[[], None],
    ) -> None:
        self._board = board
        self._slot = slot
        self._runtime = runtime
        self._timers = timers
        self._clock = clock
        self._on_end = on_end
        self._worker: BackgroundWorker | None = None
        """The worker, made for the first piece of work; None before."""
        self._numbers = itertools.count()
        self._in_threads: dict[int, _InThread] = {}
        """The work in each thread, oldest first."""
        self._lateness = Lateness()
        self._is_looking = False
        self._looked_s = 0.0

    def in_thread(self, work: Callable[[], T], name: str, deadline_s: float, setting: str = "") -> Future[T]:
        """Run `work` in a thread. WorkOverdue is raised in the actor's loop when the deadline passes.

        The time in which this process was suspended does not count.
        """
        result = self._own_worker().in_thread(work)
        number = next(self._numbers)
        self._in_threads[number] = _InThread(name, self._board.now_ns(), setting)
        self._show_oldest()
        result.then(lambda: self._ended(number))
        began_s = self._clock.monotonic_s()
        due_s = began_s + deadline_s
        self._timers.after(deadline_s, lambda: self._crash_if_overdue(number, began_s, deadline_s, due_s))
        if not self._is_looking:
            self._is_looking, self._looked_s = True, began_s
            self._look_later()
        return result

    def in_loop(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the actor's asyncio loop."""
        return self._own_worker().in_loop(coroutine)

    def deliver(self) -> None:
        """Finish the futures whose work is done."""
        if self._worker is not None:
            self._worker.deliver()

    def close(self) -> None:
        """Cancel what runs on the asyncio loop and end the loop. Threads that still work are left alone."""
        if self._worker is not None:
            self._worker.close()

    def _own_worker(self) -> "BackgroundWorker":
        if self._worker is None:
            self._worker = BackgroundWorker()
            self._runtime.watch(self._worker.fd, lambda: None)  # each turn of the actor delivers
        return self._worker

    def _ended(self, number: int) -> None:
        del self._in_threads[number]
        self._on_end()
        self._show_oldest()

    def _crash_if_overdue(self, number: int, began_s: float, deadline_s: float, due_s: float) -> None:
        """Raise WorkOverdue, or look again when the work has had the time that was lost before ``due_s``."""
        if number not in self._in_threads:
            return
        self._note_lateness(due_s)
        now_s = self._clock.monotonic_s()
        lost_s = now_s - began_s - self._lateness.counted_s(now_s - began_s, now_s)
        again_s = began_s + deadline_s + lost_s
        if again_s <= due_s:
            raise self._in_threads[number].overdue(deadline_s)
        self._timers.after(
            again_s - now_s, lambda: self._crash_if_overdue(number, began_s, deadline_s, again_s)
        )

    def _look_later(self) -> None:
        due_s = self._looked_s + LOOK_EVERY_S
        self._timers.after(LOOK_EVERY_S, lambda: self._look(due_s))

    def _look(self, due_s: float) -> None:
        """Note whether this process was suspended, for as long as there is work in a thread."""
        self._note_lateness(due_s)
        self._is_looking = bool(self._in_threads)
        if self._is_looking:
            self._look_later()

    def _note_lateness(self, due_s: float) -> None:
        now_s = self._clock.monotonic_s()
        self._lateness.note(self._looked_s, due_s, now_s)
        self._looked_s = now_s

    def _show_oldest(self) -> None:
        oldest = next(iter(self._in_threads.values()), _InThread("", 0, ""))
        self._board.set(self._slot, work=oldest.name, work_since_ns=oldest.since_ns)


class BackgroundWorker:
    """Runs each piece of work in a thread of its own and coroutines on one asyncio loop.

    The results come back on the thread of the owner, which calls `deliver`.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._results: deque[Callable[[], None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def in_thread(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` in a thread of its own; its future is finished on the owner's thread."""
        result: Future[T] = Future(on_unseen_error=self._crash_owner)

        # Taken out when the work is done: the frames in an error's traceback must not keep it alive.
        waiting = [result]

        def run() -> None:
            finish = _outcome_of(work)
            self._hand_back(partial(finish, waiting.pop()))

        threading.Thread(target=run, daemon=True, name="work").start()
        return result

    def in_loop(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on this worker's asyncio loop."""
        result: Future[T] = Future(on_unseen_error=self._crash_owner)

        def finished(task: "asyncio.Task[T]") -> None:
            self._tasks.discard(task)
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                self._hand_back(lambda: result.fail(error))
            else:
                self._hand_back(lambda: result.succeed(task.result()))

        def start() -> None:
            task = loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(finished)

        loop = self._running_loop()
        loop.call_soon_threadsafe(start)
        return result

    def deliver(self) -> None:
        """Finish the futures whose work is done. Call when `fd` is readable."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        while self._results:
            self._results.popleft()()

    def close(self) -> None:
        """Cancel the coroutines and end the loop.

        Threads that still work are left alone; the descriptor they write to stays open."""
        if self._loop is not None and self._loop_thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join()
            self._loop.close()

    def _hand_back(self, finish: Callable[[], None]) -> None:
        self._results.append(finish)
        os.eventfd_write(self.fd, 1)

    def _crash_owner(self, error: BaseException) -> None:
        """Raise an error on the owner's thread, as an await would have. A cancellation is no error."""

        def crash() -> None:
            raise error

        if not isinstance(error, asyncio.CancelledError):
            self._hand_back(crash)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            run = partial(_run_until_stopped, self._loop)
            self._loop_thread = threading.Thread(target=run, daemon=True, name="asyncio")
            self._loop_thread.start()
        return self._loop


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped.

    A coroutine that raises SystemExit or KeyboardInterrupt ends the run of the loop. Its future gets this
    error when the loop runs again.
    """
    while True:
        try:
            return loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue


async def _cancel_others() -> None:
    """Cancel all other tasks of this loop, and wait until they have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _outcome_of(work: Callable[[], T]) -> Callable[[Future[T]], None]:
    """Do the work; return a function that finishes a future with the work's value or its error."""
    try:
        value = work()
    except BaseException as error:
        failure = error
        return lambda result: result.fail(failure)
    return lambda result: result.succeed(value)
