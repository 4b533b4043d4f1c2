"""One deadline for an operation that makes several calls."""

import time
from collections.abc import Callable

LeftS = Callable[[], float]
"""Returns the seconds that are left of a deadline; always more than 0, so that a late call still times out
by itself."""

LEAST_S = 0.001


def counting_down(deadline_s: float) -> LeftS:
    """Return a function that says how much of ``deadline_s`` is left, counted from this call."""
    ends_s = time.monotonic() + deadline_s
    return lambda: max(LEAST_S, ends_s - time.monotonic())
