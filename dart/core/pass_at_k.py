"""pass@k: the probability that at least one of k episodes of a task succeeds, and its confidence interval.

Source: M. Chen et al. 2021, Evaluating Large Language Models Trained on Code, arXiv 2107.03374, section 2.1:
of n episodes with c successes, 1 - C(n - c, k) / C(n, k) estimates it without bias.
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
    """95 % interval; it is about episodes, with these tasks given."""


def pass_at_k(score: Score, k: int) -> float:
    """Return the estimate for one task. Raises ValueError unless 1 <= k <= the number of its episodes."""
    if not 1 <= k <= score.episodes:
        raise ValueError(f"expected k between 1 and the {score.episodes} episodes of a task, got {k}")
    return 1.0 - math.comb(score.episodes - score.successes, k) / math.comb(score.episodes, k)


def mean_pass_at_k(scores: Sequence[Score], k: int) -> PassAtK:
    """Return the mean of the tasks' estimates.

    A task's interval is that of its success rate p (Wilson's), taken through 1 - (1 - p)^k, and widened to
    hold the estimate. The distances from the estimates to the ends of the intervals are added in quadrature
    (MOVER, as in `dart.core.statistics.mean_interval`).
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
    """Return the k to report: 1, 2, 4 and so on, and the fewest episodes that any task has."""
    most = min((score.episodes for score in scores), default=0)
    doubled = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*doubled, most] if most else []
