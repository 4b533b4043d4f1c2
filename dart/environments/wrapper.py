"""A base class for environments that wrap another one."""

from dart.core.actions import Action
from dart.environments.protocol import NO_ROLLOUT, Environment, EpisodeKey, Observation, StepResult


class WrappedEnvironment:
    """Passes every call to the inner environment; a subclass overrides the calls that it changes."""

    def __init__(self, inner: Environment) -> None:
        self._inner = inner

    async def reset(
        self, task_id: str, seed: int, *, deadline_s: float, episode: EpisodeKey = NO_ROLLOUT
    ) -> Observation:
        return await self._inner.reset(task_id, seed, deadline_s=deadline_s, episode=episode)

    async def observe(self, *, deadline_s: float) -> Observation:
        return await self._inner.observe(deadline_s=deadline_s)

    async def step(self, action: Action, *, deadline_s: float) -> StepResult:
        return await self._inner.step(action, deadline_s=deadline_s)

    async def evaluate(self, *, deadline_s: float) -> float:
        return await self._inner.evaluate(deadline_s=deadline_s)

    def is_infeasible(self, task_id: str) -> bool:
        return self._inner.is_infeasible(task_id)

    async def park(self, *, deadline_s: float) -> None:
        await self._inner.park(deadline_s=deadline_s)

    async def unpark(self, *, deadline_s: float) -> None:
        await self._inner.unpark(deadline_s=deadline_s)

    async def healthy(self, *, deadline_s: float) -> bool:
        return await self._inner.healthy(deadline_s=deadline_s)

    async def close(self) -> None:
        await self._inner.close()
