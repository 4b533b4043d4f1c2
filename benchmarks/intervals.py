"""Confidence intervals of means over runs, seeds or tasks, by Student's t."""

import math
import statistics
from collections.abc import Sequence

T_95 = (
    *(math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""Two-sided 95 % quantiles of Student's t, by degrees of freedom. With more degrees the last one is taken,
which makes the interval a little too wide."""


def half_width(values: Sequence[float]) -> float | None:
    """Return half the width of the 95 % interval of the mean; None with fewer than two values."""
    freedom = len(values) - 1
    if freedom < 1:
        return None
    t = T_95[min(freedom, len(T_95) - 1)]
    return t * statistics.stdev(values) / math.sqrt(len(values))
