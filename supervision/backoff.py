"""How long to wait before a restart. Pure."""

from supervision.child_spec import Backoff

MAX_EXPONENT = 32
"""The largest exponent of the backoff's factor. Beyond it every wait is `max_s` anyway, and floats stay
finite."""


def backoff_s(policy: Backoff, failures_in_row: int, draw: float) -> float:
    """The wait before restart number `failures_in_row` (1 for the first), in seconds.

    draw   a uniform random number in [0, 1); 0.5 gives the wait without jitter
    The first restart waits `initial_s`. With initial_s 0 the first restart comes at once, and the
    second in a row waits 0.1 s.
    """
    exponent = min(failures_in_row - 1, MAX_EXPONENT)
    base = policy.initial_s * policy.factor**exponent
    if policy.initial_s == 0 and exponent > 0:
        base = 0.1 * policy.factor ** (exponent - 1)
    return min(base, policy.max_s) * (1 + policy.jitter * (2 * draw - 1))
