"""Waits of simulated environments: where they lie, that they repeat, that they come out of the deadline."""

import statistics

import pytest

from dart.config.sections import LatencySettings, SimulationSettings
from dart.core.actions import Click
from dart.environments.faults import EnvironmentTimeout
from dart.environments.latency import LatencyEnvironment, LatencySampler
from dart.environments.simulated import SimulatedEnvironment

LATENCY = LatencySettings(enabled=True)


def test_waits_have_the_median_that_is_set_and_none_is_longer_than_the_maximum() -> None:
    waits = LatencySampler(LATENCY, "0")
    resets = [waits.reset_s() for _ in range(2000)]
    steps = [waits.step_s() for _ in range(2000)]
    assert statistics.median(resets) == pytest.approx(10.0, rel=0.1)
    assert statistics.median(steps) == pytest.approx(2.0, rel=0.1)
    assert max(resets) == 30.0
    assert max(steps) == 4.0
    assert min(steps) > 0


def test_the_scale_shortens_every_wait_its_cut_included() -> None:
    long, short = (
        LatencySampler(LATENCY, "0"),
        LatencySampler(LATENCY.model_copy(update={"scale": 0.01}), "0"),
    )
    for _ in range(100):
        assert short.reset_s() == pytest.approx(0.01 * long.reset_s())


def test_the_same_seed_waits_as_long_and_resets_do_not_disturb_steps() -> None:
    one, same, other = (
        LatencySampler(LATENCY, "a"),
        LatencySampler(LATENCY, "a"),
        LatencySampler(LATENCY, "b"),
    )
    one.reset_s()
    steps = [one.step_s() for _ in range(5)]
    assert steps == [same.step_s() for _ in range(5)]
    assert steps != [other.step_s() for _ in range(5)]


class Slept:
    """Sleeps no time and remembers how long it was asked to."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def test_each_reset_and_each_step_waits_and_nothing_else_does() -> None:
    slept, waits = Slept(), LatencySampler(LATENCY, "a")
    environment = LatencyEnvironment(
        SimulatedEnvironment(SimulationSettings(), 0), LatencySampler(LATENCY, "a"), slept
    )
    await environment.reset("simulated/0", 1, deadline_s=100)
    await environment.step(Click(1, 1), deadline_s=100)
    await environment.observe(deadline_s=100)
    await environment.evaluate(deadline_s=100)
    assert slept.seconds == [waits.reset_s(), waits.step_s()]


async def test_a_wait_that_is_longer_than_the_deadline_ends_with_it() -> None:
    slept = Slept()
    environment = LatencyEnvironment(
        SimulatedEnvironment(SimulationSettings(), 0), LatencySampler(LATENCY, "a"), slept
    )
    with pytest.raises(EnvironmentTimeout, match=r"reset did not end within 0\.5 s.*environments\.latency"):
        await environment.reset("simulated/0", 1, deadline_s=0.5)
    assert slept.seconds == [0.5]
