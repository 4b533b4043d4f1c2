"""An environment that is as slow as a virtual machine: it waits before each reset and each step.

The waits are lognormal with a maximum: most are near the median, a few far longer (DART reports 5 to 30 s for
a reset, 1 to 4 s for a step). A wait counts as time of the environment and against the deadline of its call.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable

from dart.config.sections import LatencySettings
from dart.core.actions import Action
from dart.environments.faults import EnvironmentTimeout
from dart.environments.protocol import (
    NO_ROLLOUT,
    Environment,
    EpisodeKey,
    Observation,
    StepResult,
    WrappedEnvironment,
)


def clipped_lognormal(rng: random.Random, median: float, sigma: float, maximum: float) -> float:
    """Draw a lognormal number with this median; return ``maximum`` instead of a larger number."""
    return min(maximum, median * math.exp(sigma * rng.gauss(0.0, 1.0)))


class LatencySampler:
    """Draws the waits of one environment one after the other; the same seed gives the same waits."""

    def __init__(self, latency: LatencySettings, seed: str) -> None:
        self._latency = latency
        self._resets = random.Random(f"{seed}/reset")
        self._steps = random.Random(f"{seed}/step")

    def reset_s(self) -> float:
        asked = self._latency
        return asked.scale * clipped_lognormal(
            self._resets, asked.reset_median_s, asked.reset_sigma, asked.reset_max_s
        )

    def step_s(self) -> float:
        asked = self._latency
        return asked.scale * clipped_lognormal(
            self._steps, asked.step_median_s, asked.step_sigma, asked.step_max_s
        )


class LatencyEnvironment(WrappedEnvironment):
    """Waits before each reset and step, as long as `waits` draws, then calls the inner environment."""

    def __init__(
        self,
        inner: Environment,
        waits: LatencySampler,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        self._waits = waits
        self._sleep = sleep

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        left_s = await self._wait("reset", self._waits.reset_s(), deadline_s)
        return await self._inner.reset(task_id, seed, deadline_s=left_s, episode=episode)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        left_s = await self._wait("step", self._waits.step_s(), deadline_s)
        return await self._inner.step(action, deadline_s=left_s)

    async def _wait(self, operation: str, wait_s: float, deadline_s: float) -> float:
        """Wait and return what is left of the deadline. Raises EnvironmentTimeout when nothing is left."""
        await self._sleep(min(wait_s, deadline_s))
        if wait_s >= deadline_s:
            raise EnvironmentTimeout(
                operation, deadline_s, f"an added latency of {wait_s:.1f} s (environments.latency)"
            )
        return deadline_s - wait_s
