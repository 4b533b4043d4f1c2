"""The environment without a browser: what repeats, what differs, how it ends."""

import io
import statistics

import pytest
from PIL import Image

from dart.config.sections import SimulationSettings
from dart.core.actions import Wait
from dart.environments.protocol import Environment, EpisodeKey
from dart.environments.simulated import SimulatedEnvironment

TASK = "simulated/0"
DEADLINE_S = 5.0


async def played(
    rollout_id: int,
    simulated: SimulationSettings = SimulationSettings(),  # noqa: B008
) -> tuple[int, float, list[bytes]]:
    """Steps, reward and screenshots of one episode."""
    environment: Environment = SimulatedEnvironment(simulated, 0)
    key = EpisodeKey(rollout_id=rollout_id)
    seen = [(await environment.reset(TASK, 3, deadline_s=DEADLINE_S, episode=key)).screenshot]
    while not (await environment.step(Wait(), deadline_s=DEADLINE_S)).terminated:
        seen.append((await environment.observe(deadline_s=DEADLINE_S)).screenshot)
    return len(seen), await environment.evaluate(deadline_s=DEADLINE_S), seen


async def test_an_episode_that_is_played_again_is_the_same() -> None:
    assert await played(7) == await played(7)


async def test_rollouts_of_a_group_start_alike_and_end_differently() -> None:
    episodes = [await played(rollout_id) for rollout_id in range(1, 9)]
    assert len({seen[0] for _, _, seen in episodes}) == 1
    assert len({steps for steps, _, _ in episodes}) > 1
    assert {reward for _, reward, _ in episodes} == {0.0, 1.0}


async def test_lengths_and_successes_are_those_of_the_configuration() -> None:
    episodes = [await played(rollout_id, SimulationSettings(success=0.3)) for rollout_id in range(1, 401)]
    assert statistics.median(steps for steps, _, _ in episodes) == pytest.approx(8, abs=1)
    assert statistics.mean(reward for _, reward, _ in episodes) == pytest.approx(0.3, abs=0.08)


async def test_every_screenshot_is_a_picture_of_the_frame_and_differs_from_the_one_before() -> None:
    _, _, seen = await played(7)
    for png in seen:
        with Image.open(io.BytesIO(png)) as image:
            image.load()
            assert image.size == (160, 210)
    assert len(set(seen)) == len(seen)


async def test_an_episode_that_is_left_early_is_worth_nothing() -> None:
    environment = SimulatedEnvironment(SimulationSettings(success=1.0, steps_sigma=0.0), 0)
    await environment.reset(TASK, 3, deadline_s=DEADLINE_S)
    await environment.step(Wait(), deadline_s=DEADLINE_S)
    assert await environment.evaluate(deadline_s=DEADLINE_S) == 0.0


async def test_nothing_can_be_done_before_a_reset_or_after_the_end() -> None:
    environment = SimulatedEnvironment(SimulationSettings(steps_median=1.0, steps_sigma=0.0), 0)
    with pytest.raises(RuntimeError, match="observe without an episode: call reset first"):
        await environment.observe(deadline_s=DEADLINE_S)
    await environment.reset(TASK, 3, deadline_s=DEADLINE_S)
    assert (await environment.step(Wait(), deadline_s=DEADLINE_S)).terminated
    with pytest.raises(RuntimeError, match="step after the end of the episode of simulated/0"):
        await environment.step(Wait(), deadline_s=DEADLINE_S)
