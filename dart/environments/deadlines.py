"""What is left of the deadline of an operation that takes several steps."""

import time
from collections.abc import Callable

LeftS = Callable[[], float]
"""How many seconds there are left; never none, so that what is late ends by its own deadline."""

LEAST_S = 0.001


def counting_down(deadline_s: float) -> LeftS:
    """What is left of ``deadline_s`` from now on, whenever it is asked."""
    ends_s = time.monotonic() + deadline_s
    return lambda: max(LEAST_S, ends_s - time.monotonic())
