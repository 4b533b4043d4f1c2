"""A reward of your own: a success is worth less with every step that it took."""

import asyncio

from dart.config.config import Config
from dart.core.actions import Action, Click, Wait
from dart.core.run_directory import RunPaths
from dart.environments.miniwob import environment as miniwob
from dart.environments.protocol import NO_ROLLOUT, EpisodeKey, Observation, StepResult, WrappedEnvironment

PER_STEP = 0.9
"""A success after n steps is worth PER_STEP ** (n - 1) of its score."""


class ShorterIsBetter(WrappedEnvironment):
    """Passes every call on to the environment inside, and counts its steps."""

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        self._steps = 0
        return await super().reset(task_id, seed, deadline_s=deadline_s, episode=episode)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        self._steps += 1
        return await super().step(action, deadline_s=deadline_s)

    async def evaluate(self, *, deadline_s: float) -> float:
        score = await super().evaluate(deadline_s=deadline_s)
        return score * PER_STEP ** max(0, self._steps - 1)


def make(config: Config, name: str, paths: RunPaths) -> ShorterIsBetter:
    """The browser of the actor `name`, with this reward."""
    return ShorterIsBetter(miniwob.make(config, name, paths))


async def main() -> None:
    from examples.own_environment import SquareEnvironment

    environment = ShorterIsBetter(SquareEnvironment())
    for actions in ([Click(80, 130)], [Wait(), Wait(), Click(80, 130)]):
        await environment.reset("own/square", seed=7, deadline_s=1.0)
        for action in actions:
            await environment.step(action, deadline_s=1.0)
        print(f"{len(actions)} steps: reward {await environment.evaluate(deadline_s=1.0):.2f}")


if __name__ == "__main__":
    asyncio.run(main())
