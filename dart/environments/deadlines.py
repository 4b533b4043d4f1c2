"""A deadline that is shared by all calls of one operation."""

import time
from collections.abc import Callable

LeftS = Callable[[], float]
"""A function that returns the seconds left until a deadline, and always more than 0. A call that begins after
the deadline thus gets a timeout close to 0 and times out by itself."""

LEAST_S = 0.001


def counting_down(deadline_s: float) -> LeftS:
    """Return a function that returns the seconds that are left of ``deadline_s``, which starts now."""
    ends_s = time.monotonic() + deadline_s
    return lambda: max(LEAST_S, ends_s - time.monotonic())
