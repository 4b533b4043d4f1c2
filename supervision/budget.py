"""The restart budget: at most max_restarts in any max_seconds (OTP restart intensity). Pure.

`add_restart` is the budget of one child (one kind of failure, a circuit breaker), `add_restart_of` the budget
that the children of a supervisor share.

OTP restarts a child at once. Here a backoff may come first. On the wall clock, the failures of a child would
leave the window while the child waits, and its budget would never be spent. So the moments are taken on
the child's own clock, which stops while the child waits (`Child.own_clock_s`). A wait delays the end of a
budget, but does not prevent it.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def add_restart(
    restarts: tuple[float, ...], now_s: float, *, max_restarts: int, max_seconds: float
) -> tuple[tuple[float, ...], bool]:
    """Note one more restart.

    restarts   the moments of earlier restarts, in seconds on the same clock as now_s
    returns    the moments inside the window, with this one added, and whether they are within the budget
    """
    window = (*(moment for moment in restarts if now_s - moment <= max_seconds), now_s)
    return window, len(window) <= max_restarts


def add_restart_of(
    child: T,
    restarts: tuple[tuple[T, float], ...],
    clock_s: Callable[[T], float],
    *,
    max_restarts: int,
    max_seconds: float,
) -> tuple[tuple[tuple[T, float], ...], bool]:
    """Note one more restart, of `child`, among those of all children.

    restarts   earlier restarts: the child of each, and the moment on that child's own clock
    clock_s    gives the present moment on a child's own clock
    returns    the restarts inside the window, with this one added, and whether they are within the budget
    """
    kept = ((one, moment_s) for one, moment_s in restarts if clock_s(one) - moment_s <= max_seconds)
    window = (*kept, (child, clock_s(child)))
    return window, len(window) <= max_restarts
