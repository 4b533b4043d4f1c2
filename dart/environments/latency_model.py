"""How long a simulated environment keeps one waiting: lognormal waits with a cut tail.

Virtual machines answer so: mostly near a median, now and then far above it (DART names 5 to 30 s for a
reset, 1 to 4 s for a step). Pure: a seed in, seconds out.
"""

import math
import random

from dart.config.sections import LatencySettings


class Waits:
    """The waits of one environment, in order; the same seed gives the same ones."""

    def __init__(self, latency: LatencySettings, seed: str) -> None:
        self._latency = latency
        self._resets = random.Random(f"{seed}/reset")
        self._steps = random.Random(f"{seed}/step")

    def reset_s(self) -> float:
        """Of the next reset."""
        latency = self._latency
        wait_s = cut_lognormal(self._resets, latency.reset_median_s, latency.reset_sigma, latency.reset_max_s)
        return latency.scale * wait_s

    def step_s(self) -> float:
        """Of the next step."""
        latency = self._latency
        wait_s = cut_lognormal(self._steps, latency.step_median_s, latency.step_sigma, latency.step_max_s)
        return latency.scale * wait_s


def cut_lognormal(rng: random.Random, median: float, sigma: float, maximum: float) -> float:
    """A lognormal number by its median; what is above the maximum is the maximum."""
    return min(maximum, median * math.exp(sigma * rng.gauss(0.0, 1.0)))
