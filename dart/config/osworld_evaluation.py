"""The times within an evaluation by OSWorld's evaluators. The check of a configuration needs them, too."""

import math

RESERVE_S = 5.0
RESERVE_SHARE = 0.2
"""Share of the evaluation's deadline, at most `RESERVE_S` seconds, that the child does not get. In this time
the machine is checked after the child was too late."""

LIMIT_SHARE = 0.75
"""Share of the child's time that one call of a getter that reads pages may take: 131 s with the default
deadline of 180 s."""

PAGE_CALL_S = 125.0
"""Least limit, in seconds, of such a call. Getters wait 60 s for a page that never comes to rest, try a
second time and then go on. That outcome is a score, and no limit may take its place.

Some getters take longer with such pages, and the limit ends them: two try three times, and one waits 60 s for
each open page. Their evaluation then has no score."""


def child_s(deadline_s: float) -> float:
    """Return how many seconds of an evaluation's deadline the child gets."""
    return deadline_s - min(RESERVE_S, RESERVE_SHARE * deadline_s)


def least_deadline_s() -> int:
    """Return the shortest deadline, in whole seconds, that gives a call `PAGE_CALL_S`."""
    return math.ceil(PAGE_CALL_S / LIMIT_SHARE + RESERVE_S)
