"""Episodes played by oracles, one or many at a time, with their screenshots and actions."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.core.actions import Action
from dart.environments.miniwob.dom_queries import Oracle, TargetNotFound
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.miniwob.oracles import ORACLES
from dart.environments.protocol import Observation

DEADLINE_S = 10.0
"""Deadline of every call to the environment while an oracle plays."""


@dataclass(frozen=True, slots=True)
class OracleStep:
    """The screen before an action, and the action."""

    observation: Observation
    action: Action


@dataclass(frozen=True, slots=True)
class OracleEpisode:
    """An episode that an oracle played."""

    task_id: str
    seed: int
    instruction: str
    steps: tuple[OracleStep, ...]
    reward: float


async def play(environment: MiniWobEnvironment, oracle: Oracle, task_id: str, seed: int) -> OracleEpisode:
    """Let ``oracle`` play an episode of ``task_id`` from ``seed``, until it ends or a target is missing."""
    observation = await environment.reset(task_id, seed, deadline_s=DEADLINE_S)
    instruction = observation.instruction
    steps: list[OracleStep] = []
    with contextlib.suppress(TargetNotFound):
        async for action in oracle(environment, instruction):
            steps.append(OracleStep(observation, action))
            if (await environment.step(action, deadline_s=DEADLINE_S)).terminated:
                break
            observation = await environment.observe(deadline_s=DEADLINE_S)
    reward = await environment.evaluate(deadline_s=DEADLINE_S)
    return OracleEpisode(task_id, seed, instruction, tuple(steps), reward)


async def play_all(episodes: Sequence[tuple[str, int]], environments: int) -> AsyncIterator[OracleEpisode]:
    """Play every (task id, seed) on several environments at a time; yields episodes in the order they end."""
    waiting = iter(episodes)
    played: asyncio.Queue[OracleEpisode] = asyncio.Queue(maxsize=environments)

    async def worker(scratch_dir: Path) -> None:
        environment = MiniWobEnvironment(scratch_dir)
        try:
            for task_id, seed in waiting:
                await played.put(await play(environment, ORACLES[task_id], task_id, seed))
        finally:
            await environment.close()

    with tempfile.TemporaryDirectory(prefix="dartrl-oracles-") as scratch:
        async with asyncio.TaskGroup() as group:
            for number in range(environments):
                group.create_task(worker(Path(scratch) / str(number)))
            for _ in episodes:
                yield await played.get()
