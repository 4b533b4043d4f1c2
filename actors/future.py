"""Waiting inside an actor: an awaitable that the actor's own loop resumes.

A handler may be `async def` and await asks, sleeps and worker threads; while it
waits, the actor takes other mail. There is no event loop here: each await hands
the coroutine back to the actor, which resumes it when the future is done.
"""

import os
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from inspect import iscoroutine
from typing import Any, Generic, TypeVar

from actors.errors import ActorError

T = TypeVar("T")

NO_LOOP = "no running event loop"
"""Message of the error that asyncio raises where it runs no loop."""


class _Turns:
    """Coroutines and callbacks that are due. They run one after the other, never one inside another.

    Otherwise a coroutine would run inside the call that completed its future, and raise its errors there.
    A thousand coroutines that wait for one lock would then be a thousand calls deep.
    """

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()
        self._is_running = False

    def take(self, turn: Callable[[], None]) -> None:
        """Run a turn now, or after the one that is running.

        A turn that raises ends the actor, so what else is due is dropped.
        """
        self._due.append(turn)
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._due:
                self._due.popleft()()
        finally:
            self.forget()

    def forget(self) -> None:
        """Drop everything that is due, and note that nothing runs."""
        self._is_running = False
        self._due.clear()


_turns = _Turns()
"""One for each process: a process has one actor, which completes all its futures on its own thread."""

os.register_at_fork(after_in_child=_turns.forget)  # a supervisor forks in the middle of a coroutine


class Future(Generic[T]):
    """A value that will be there later, or the error that came instead.

    on_unseen_error   called with the error when the future is dropped and its result was never read, in the
                      thread that drops it; None ignores such an error
    """

    def __init__(self, *, on_unseen_error: Callable[[BaseException], None] | None = None) -> None:
        self.is_done = False
        self._on_unseen_error = on_unseen_error
        self._value: T | None = None
        self._error: BaseException | None = None
        self._then: list[Callable[[], None]] = []

    def succeed(self, value: T) -> None:
        self._finish(value, None)

    def fail(self, error: BaseException) -> None:
        self._finish(None, error)

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once when done (at once if it is already)."""
        if self.is_done:
            _turns.take(callback)
        else:
            self._then.append(callback)

    def result(self) -> T:
        """Return the value or raise the error. To be called only when the future is done."""
        self._on_unseen_error = None
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set whenever there is no error

    def __await__(self) -> Generator["Future[T]", None, T]:
        if not self.is_done:
            yield self
        return self.result()

    def __del__(self) -> None:
        if self._error is not None and self._on_unseen_error is not None:
            self._on_unseen_error(self._error)

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        if self.is_done:
            return
        self.is_done, self._value, self._error = True, value, error
        waiting, self._then = self._then, []
        for callback in waiting:
            _turns.take(callback)


def drive(coroutine: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None:
    """Run a coroutine to its next await, and on from there whenever what it awaits is done.

    An error it does not catch is raised to the actor's loop, where it crashes the actor.
    """
    _turns.take(lambda: _step(coroutine, done))


def settle(outcome: Any, done: Callable[[Any], None] = lambda _: None) -> None:
    """Call `done` with a value: at once, or when `outcome`, a coroutine or future, has given its value."""
    if iscoroutine(outcome):
        drive(outcome, done)
    elif isinstance(outcome, Future):
        outcome.then(lambda: done(outcome.result()))
    else:
        done(outcome)


def _step(coroutine: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None:
    try:
        waiting_for: object = coroutine.send(None)
    except StopIteration as stop:
        done(stop.value)
        return
    except RuntimeError as error:
        if str(error) == NO_LOOP:
            raise _needs_loop(coroutine) from error
        raise
    if not isinstance(waiting_for, Future):  # a future of asyncio, or what `asyncio.sleep(0)` yields
        raise _needs_loop(coroutine)
    waiting_for.then(lambda: _step(coroutine, done))


def _needs_loop(coroutine: Coroutine[Any, Any, Any]) -> ActorError:
    name = getattr(coroutine, "__qualname__", repr(coroutine))
    return ActorError(
        f"{name!r} awaits what needs an asyncio loop, and handlers run without one; "
        "write await self.in_loop(coroutine), or self.sleep(seconds) for asyncio.sleep"
    )


class Lock:
    """A lock that one coroutine of the actor holds at a time: `async with lock:`. Waiters get it in order."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._is_held:
            turn: Future[None] = Future()
            self._waiting.append(turn)
            await turn
        self._is_held = True

    async def __aexit__(self, *_: object) -> None:
        if self._waiting:
            self._waiting.popleft().succeed(None)
        else:
            self._is_held = False
