"""The restart budget: at most max_restarts in any max_seconds (OTP restart intensity). Pure.

`add_restart` is the budget of one child (one kind of failure, a circuit breaker), `add_restart_of` the budget
that the children of a supervisor share.

OTP restarts at once. Here a backoff may come first, and on the wall clock the failures of a child would leave
the window while it waits: its budget would never be spent. So moments are taken on the clock of each child,
which stops during its waits (`Child.own_clock_s`). A wait changes when a budget is spent, never whether.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def add_restart(
    restarts: tuple[float, ...], now_s: float, *, max_restarts: int, max_seconds: float
) -> tuple[tuple[float, ...], bool]:
    """Note one more restart.

    restarts   moments of earlier ones, in seconds on the same clock as now_s
    returns    the moments still inside the window with this one added, and whether the budget still holds
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

    restarts   earlier ones: the child, and the moment on its own clock
    clock_s    a child's own clock now
    returns    the restarts still inside the window with this one added, and whether the budget still holds
    """
    kept = ((one, moment_s) for one, moment_s in restarts if clock_s(one) - moment_s <= max_seconds)
    window = (*kept, (child, clock_s(child)))
    return window, len(window) <= max_restarts
