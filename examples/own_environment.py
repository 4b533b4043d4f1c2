"""An environment of your own: a square on a white screen, and the task to click it."""

import asyncio
import random
from io import BytesIO

from PIL import Image

from dart.config.config import Config
from dart.core.actions import Action, Click
from dart.core.run_directory import RunPaths
from dart.environments.protocol import NO_ROLLOUT, Environment, EpisodeKey, Observation, StepResult

WIDTH, HEIGHT, SIDE = 160, 210, 40


class SquareEnvironment(Environment):
    """One click ends the episode; it is worth 1 if it hit the square."""

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        place = random.Random(f"{task_id}/{seed}")
        self._x, self._y = place.randrange(WIDTH - SIDE), place.randrange(HEIGHT - SIDE)
        self._was_hit = False
        return await self.observe(deadline_s=deadline_s)

    async def observe(self, *, deadline_s: float) -> Observation:
        screen, file = Image.new("RGB", (WIDTH, HEIGHT), "white"), BytesIO()
        screen.paste("black", (self._x, self._y, self._x + SIDE, self._y + SIDE))
        screen.save(file, "PNG")
        return Observation(screenshot=file.getvalue(), instruction="Click the square.")

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        if not isinstance(action, Click):
            return StepResult(terminated=False)
        self._was_hit = 0 <= action.x - self._x < SIDE and 0 <= action.y - self._y < SIDE
        return StepResult(terminated=True)

    async def evaluate(self, *, deadline_s: float) -> float:
        return float(self._was_hit)

    async def healthy(self, *, deadline_s: float) -> bool:
        return True


def make(config: Config, name: str, paths: RunPaths) -> SquareEnvironment:
    """The environment of the actor `name`."""
    return SquareEnvironment()


async def main() -> None:
    square = SquareEnvironment()
    for click in (Click(80, 130), Click(5, 5)):
        seen = await square.reset("own/square", seed=7, deadline_s=1.0)
        result = await square.step(click, deadline_s=1.0)
        reward = await square.evaluate(deadline_s=1.0)
        print(f"{seen.instruction} {click} ended: {result.terminated}, reward {reward}")


if __name__ == "__main__":
    asyncio.run(main())
