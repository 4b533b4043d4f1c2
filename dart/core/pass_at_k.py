"""pass@k: the probability that at least one of k episodes of a task succeeds, and its confidence interval.

The unbiased estimate from n episodes with c successes is 1 - C(n - c, k) / C(n, k).
Source: M. Chen et al. 2021, Evaluating Large Language Models Trained on Code, arXiv 2107.03374, section 2.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dart.core.statistics import ConfidenceInterval, Score


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAtK:
    """Mean over tasks of pass@k; all tasks have the same weight."""

    k: int
    rate: float
    interval: ConfidenceInterval
    """95 % confidence interval of `rate`. It covers the chance of episodes, not the choice of the tasks."""


def pass_at_k(score: Score, k: int) -> float:
    """Return the estimate of pass@k for one task. Raises ValueError unless 1 <= k <= number of episodes."""
    if not 1 <= k <= score.episodes:
        raise ValueError(f"expected k between 1 and the {score.episodes} episodes of a task, got {k}")
    return 1.0 - math.comb(score.episodes - score.successes, k) / math.comb(score.episodes, k)


def mean_pass_at_k(scores: Sequence[Score], k: int) -> PassAtK:
    """Return the mean of the tasks' estimates, with its interval. There must be at least one score.

    The interval of a task is computed from Wilson's interval of its success rate p: both ends are mapped by
    1 - (1 - p)^k, and the result is widened if it does not contain the estimate. The distances from the
    estimates to the ends of the intervals are added in quadrature (MOVER, as in
    `dart.core.statistics.mean_interval`).
    """
    estimates = [pass_at_k(score, k) for score in scores]
    intervals = [_interval(score, k, one) for score, one in zip(scores, estimates, strict=True)]
    pairs = list(zip(estimates, intervals, strict=True))
    mean = sum(estimates) / len(scores)
    low = math.sqrt(sum((one - interval.low) ** 2 for one, interval in pairs)) / len(scores)
    high = math.sqrt(sum((interval.high - one) ** 2 for one, interval in pairs)) / len(scores)
    return PassAtK(k=k, rate=mean, interval=ConfidenceInterval(max(0.0, mean - low), min(1.0, mean + high)))


def _interval(score: Score, k: int, estimate: float) -> ConfidenceInterval:
    low, high = (1.0 - (1.0 - end) ** k for end in (score.interval.low, score.interval.high))
    return ConfidenceInterval(min(low, estimate), max(high, estimate))


def ks_of(scores: Sequence[Score]) -> list[int]:
    """Return the values of k to report: powers of 2, and the smallest number of episodes of a task.

    The powers of 2 begin with 1 and are below that number.
    The list is empty without scores.
    """
    most = min((score.episodes for score in scores), default=0)
    doubled = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*doubled, most] if most else []
