"""Confidence intervals of success rates, and quantiles."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A 95 % confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Score:
    """The number of successes among independent episodes."""

    successes: int
    episodes: int

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.episodes or self.episodes == 0:
            raise ValueError(
                f"expected 0 <= successes <= episodes and at least one episode, "
                f"got {self.successes} of {self.episodes}"
            )

    @property
    def rate(self) -> float:
        return self.successes / self.episodes

    @property
    def interval(self) -> ConfidenceInterval:
        """Wilson's score interval of the rate. Unlike the normal approximation it is valid near 0 and 1, too.

        Source: E. B. Wilson 1927, J. Am. Stat. Assoc. 22, 209.
        """
        n, p, z2 = self.episodes, self.rate, Z_95 * Z_95
        centre = (p + z2 / (2 * n)) / (1 + z2 / n)
        half = Z_95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
        # Where all failed or all succeeded, centre and half are equal but for the error of their rounding.
        low = 0.0 if self.successes == 0 else max(0.0, centre - half)
        high = 1.0 if self.successes == n else min(1.0, centre + half)
        return ConfidenceInterval(low, high)


def mean_interval(scores: Sequence[Score]) -> ConfidenceInterval:
    """Return the confidence interval of `mean_rate`. There must be at least one score.

    The distances from each rate to the ends of its interval are added in quadrature (MOVER).
    Source: G. Y. Zou and A. Donner 2008, Stat. Med. 27, 1693.
    """
    mean = mean_rate(scores)
    low = math.sqrt(sum((s.rate - s.interval.low) ** 2 for s in scores)) / len(scores)
    high = math.sqrt(sum((s.interval.high - s.rate) ** 2 for s in scores)) / len(scores)
    return ConfidenceInterval(max(0.0, mean - low), min(1.0, mean + high))


def mean_rate(scores: Sequence[Score]) -> float:
    """Return the mean success rate over tasks; all tasks have the same weight."""
    return sum(score.rate for score in scores) / len(scores)


def difference_interval(before: Sequence[Score], after: Sequence[Score]) -> ConfidenceInterval:
    """Return the confidence interval of the mean rate `after` minus the mean rate `before`.

    For a single task it equals Newcombe's interval.

    Source: R. G. Newcombe 1998, Stat. Med. 17, 873, method 10.
    """
    first, second = mean_interval(before), mean_interval(after)
    rate_1, rate_2 = mean_rate(before), mean_rate(after)
    low = math.hypot(rate_2 - second.low, first.high - rate_1)
    high = math.hypot(second.high - rate_2, rate_1 - first.low)
    return ConfidenceInterval(rate_2 - rate_1 - low, rate_2 - rate_1 + high)


def nearest_rank(in_order: Sequence[float], share: float) -> float:
    """Return the quantile ``share`` of values in ascending order, by the nearest-rank method.

    This is the smallest of the values that is greater than or equal to at least this share of them. There
    must be at least one value."""
    return float(in_order[max(0, math.ceil(share * len(in_order)) - 1)])
