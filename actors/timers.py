"""An actor's timers: callbacks that are due at a moment of its clock."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from actors.clock import Clock
from actors.errors import ActorError
from actors.future import settle
from actors.runtime import Runtime

LONGEST_S = 1e10
"""The longest deadline or delay: three hundred years, which can be counted even in nanoseconds."""


def check_seconds(name: str, what: str, seconds: float) -> None:
    """Raise ActorError, naming the actor and the call, unless `seconds` is a number from 0 to LONGEST_S."""
    if not 0 <= seconds <= LONGEST_S:
        raise ActorError(
            f"{name!r} called {what} with {seconds!r}; the call takes 0 to {LONGEST_S:g} seconds"
        )


class Timers:
    """The timers of one actor. Each fires once, in a turn of the actor."""

    def __init__(self, clock: Clock, runtime: Runtime) -> None:
        self._clock = clock
        self._runtime = runtime
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, Callable[[], Any]]] = []
        """The timers by due time. Those that are due at the same moment fire in the order they were set."""

    def after(self, seconds: float, callback: Callable[[], Any]) -> None:
        """Call back once; a coroutine that the callback returns is run."""
        due_s = self._clock.monotonic_s() + seconds
        heapq.heappush(self._heap, (due_s, next(self._numbers), callback))
        self._runtime.wake_at(due_s)

    def run_due(self) -> None:
        """Fire every timer that is due now."""
        now_s = self._clock.monotonic_s()
        while self._heap and self._heap[0][0] <= now_s:
            _, _, callback = heapq.heappop(self._heap)
            settle(callback())

    def wake_for_next(self) -> None:
        """Have the runtime call the actor when the next timer is due."""
        if self._heap:
            self._runtime.wake_at(self._heap[0][0])
