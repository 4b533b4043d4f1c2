"""Recorded screenshots as an environment. An episode shows one screenshot and ends with its first action.

A click is worth 1 for a hit and else 0, or GUI-G2's Gaussian (`dart.environments.grounding.rewards`). Any
other action is worth 0. Episodes on held-out seeds, those of evaluations, always count hits. There a success
is a hit, and runs with different rewards can be compared.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

from dart.config.config import Config
from dart.core.actions import Action, Click
from dart.core.png import opened_picture, without_rest
from dart.core.run_directory import RunPaths
from dart.core.screenspot import GroundingSample
from dart.core.seeds import is_held_out
from dart.environments.faults import EnvironmentTimeout, ResetFailed, UnknownTask
from dart.environments.grounding.data_sets import DataSet, load_data_set, task_id
from dart.environments.grounding.rewards import REWARDS, hit_reward
from dart.environments.protocol import (
    NO_ROLLOUT,
    Environment,
    EpisodeKey,
    Observation,
    StepResult,
    require_episode,
)
from dart.environments.screenshot_checks import frame_size


@dataclass(slots=True)
class _Episode:
    task_id: str
    seed: int
    sample: GroundingSample
    observation: Observation
    is_over: bool = False
    score: float = 0.0


class GroundingEnvironment(Environment):
    """Plays episodes of one step on the screenshots of data sets.

    data     the data sets by task id
    reward   what a click is worth on training seeds
    """

    def __init__(self, data: Mapping[str, DataSet], reward: Literal["hit", "gaussian"]) -> None:
        self._data = data
        self._reward = REWARDS[reward]
        self._episode: _Episode | None = None

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        self._episode = None
        if task_id not in self._data:
            raise UnknownTask(task_id, self._data)
        sample = self._data[task_id].sample_of(seed)
        try:
            async with asyncio.timeout(deadline_s):
                png = await asyncio.to_thread(_png_of, sample.image)
        except TimeoutError:
            raise EnvironmentTimeout("reset", deadline_s, str(sample.image)) from None
        except (OSError, SyntaxError, ValueError) as error:
            raise ResetFailed(task_id, f"the screenshot {sample.image} cannot be read: {error}") from error
        frame_size(png, (sample.width_px, sample.height_px))
        observation = Observation(screenshot=png, instruction=sample.instruction)
        self._episode = _Episode(task_id, seed, sample, observation)
        return observation

    async def observe(self, *, deadline_s: float) -> Observation:
        return require_episode(self._episode, "observe").observation

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        episode = require_episode(self._episode, "step")
        if episode.is_over:
            raise RuntimeError(f"step after the end of the episode of {episode.task_id}: call reset first")
        episode.is_over = True
        if isinstance(action, Click):
            reward = hit_reward if is_held_out(episode.seed) else self._reward
            episode.score = reward(action.x, action.y, episode.sample.box)
        return StepResult(terminated=True)

    async def evaluate(self, *, deadline_s: float) -> float:
        return require_episode(self._episode, "evaluate").score

    async def healthy(self, *, deadline_s: float) -> bool:
        return True


def _png_of(image: Path) -> bytes:
    """Return a screenshot as a PNG file without a rest after its end; other formats are converted.

    Raises OSError, SyntaxError or ValueError when the file cannot be read."""
    content = image.read_bytes()
    if content.startswith(b"\x89PNG"):
        return without_rest(content)
    with opened_picture(BytesIO(content)) as picture:
        file = BytesIO()
        picture.convert("RGB").save(file, "PNG")
    return file.getvalue()


def make(config: Config, name: str, paths: RunPaths) -> GroundingEnvironment:
    """Create the environment of an actor (`dart.config.environment_kinds`). Raises GroundingDataError.

    Screenshots are not read to their end here, because every environment of a run would read all of them: the
    checks before a run do that, and `reset` checks the one that it shows.
    """
    settings = config.environments.grounding
    data = {
        task_id(path): load_data_set(path, settings.held_out_share, whole=False) for path in settings.data
    }
    return GroundingEnvironment(data, settings.reward)
