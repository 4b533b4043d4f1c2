"""Moments and spans of time for people."""

import re
import time

from dart.core.errors import UsageError

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(?:(\d+(?:\.\d+)?)([smhd]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def clock(unix_s: float) -> str:
    """Local time of day; with the date when it is not today's."""
    moment = time.localtime(unix_s)
    is_today = moment[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", moment)


def seconds_of(span: str) -> float:
    """`90s`, `10m`, `1h30m`, `2d` as seconds.

    raises    UsageError
    """
    if not _SPAN.fullmatch(span):
        raise UsageError(f"expected a time such as 90s, 10m, 1h30m or 2d, got {span!r}")
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(span))
