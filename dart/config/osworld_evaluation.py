"""The times within an evaluation by OSWorld's evaluators. The check of a configuration needs them, too."""

import math

RESERVE_S = 5.0
RESERVE_SHARE = 0.2
"""Share of the evaluation's deadline, at most `RESERVE_S` seconds, that the child does not get. In this time
the machine is checked after the child was too late."""

LIMIT_SHARE = 0.75
"""Share of the child's time that one call of a getter that reads pages may take, if `PAGE_CALL_S` is less:
131 s with the default deadline of 180 s."""

PAGE_CALL_S = 125.0
"""Least limit, in seconds, of such a call, while the child has so much time. Getters wait 60 s for a page
that never comes to rest, try a second time and then go on. That outcome is a score, and no limit may take its
place.

Some getters take longer with such pages, and the limit ends them: two try three times, and one waits 60 s for
each open page. Their evaluation then has no score."""


def child_s(left_s: float) -> float:
    """Return how many seconds the child gets of what is left of an evaluation's deadline."""
    return left_s - min(RESERVE_S, RESERVE_SHARE * left_s)


def page_call_s(within_s: float) -> float:
    """Return the limit, in seconds, of one call of a getter that reads pages.

    within_s   how many seconds the child gets
    """
    return max(LIMIT_SHARE * within_s, min(PAGE_CALL_S, within_s))


def least_deadline_s() -> int:
    """Return the shortest deadline, in whole seconds, of which a call of `PAGE_CALL_S` leaves enough for the
    rest of the evaluation: a share of 1 - `LIMIT_SHARE` for what comes before the call and after it."""
    return math.ceil(PAGE_CALL_S / LIMIT_SHARE + RESERVE_S)
