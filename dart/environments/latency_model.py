"""Random waits that imitate the latency of virtual machines: lognormal with a maximum.

Most answers of a virtual machine take about the median, a few take far longer (DART reports 5 to 30 s for a
reset, 1 to 4 s for a step). Pure: a seed in, seconds out.
"""

import math
import random

from dart.config.sections import LatencySettings


class LatencySampler:
    """Draws the waits of one environment in order; the same seed gives the same waits."""

    def __init__(self, latency: LatencySettings, seed: str) -> None:
        self._latency = latency
        self._resets = random.Random(f"{seed}/reset")
        self._steps = random.Random(f"{seed}/step")

    def reset_s(self) -> float:
        """Return the wait of the next reset, in seconds."""
        latency = self._latency
        wait_s = clipped_lognormal(
            self._resets, latency.reset_median_s, latency.reset_sigma, latency.reset_max_s
        )
        return latency.scale * wait_s

    def step_s(self) -> float:
        """Return the wait of the next step, in seconds."""
        latency = self._latency
        wait_s = clipped_lognormal(self._steps, latency.step_median_s, latency.step_sigma, latency.step_max_s)
        return latency.scale * wait_s


def clipped_lognormal(rng: random.Random, median: float, sigma: float, maximum: float) -> float:
    """Draw a lognormal number with this median, at most ``maximum``."""
    return min(maximum, median * math.exp(sigma * rng.gauss(0.0, 1.0)))
