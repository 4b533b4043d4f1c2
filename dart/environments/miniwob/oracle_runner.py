"""Letting an oracle play episodes, one or many at a time, and keeping what it saw and did."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dart.environments.miniwob.dom_queries import Move, OracleLost, QueriedPage
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.protocol import Observation

DEADLINE_S = 10.0
"""For every call to the environment while an oracle plays."""

Oracle = Callable[[QueriedPage, str], AsyncIterator[Move]]
"""Moves for a page and its instruction; resumed when the move was made."""


@dataclass(frozen=True, slots=True)
class OracleStep:
    """What was on the screen, and the oracle's move."""

    observation: Observation
    move: Move


@dataclass(frozen=True, slots=True)
class OracleEpisode:
    """An episode an oracle played."""

    task_id: str
    seed: int
    instruction: str
    steps: tuple[OracleStep, ...]
    reward: float
    lost: str = ""
    """What the oracle did not find, if it gave up."""


async def play(environment: MiniWobEnvironment, oracle: Oracle, task_id: str, seed: int) -> OracleEpisode:
    """Let ``oracle`` play one episode of ``task_id`` from ``seed``."""
    observation = await environment.reset(task_id, seed, deadline_s=DEADLINE_S)
    instruction = observation.instruction
    steps: list[OracleStep] = []
    lost = ""
    try:
        async for move in oracle(environment, instruction):
            steps.append(OracleStep(observation, move))
            if (await environment.step(move.action, deadline_s=DEADLINE_S)).terminated:
                break
            observation = await environment.observe(deadline_s=DEADLINE_S)
    except OracleLost as error:
        lost = str(error)
    reward = await environment.evaluate(deadline_s=DEADLINE_S)
    return OracleEpisode(task_id, seed, instruction, tuple(steps), reward, lost)


async def play_all(
    oracles: Mapping[str, Oracle], episodes: Sequence[tuple[str, int]], environments: int
) -> AsyncIterator[OracleEpisode]:
    """Play every (task id, seed), several environments at a time; in the order they end."""
    waiting = iter(episodes)
    played: asyncio.Queue[OracleEpisode] = asyncio.Queue(maxsize=environments)

    async def worker(scratch_dir: Path) -> None:
        environment = MiniWobEnvironment(scratch_dir)
        try:
            for task_id, seed in waiting:
                await played.put(await play(environment, oracles[task_id], task_id, seed))
        finally:
            await environment.close()

    with tempfile.TemporaryDirectory(prefix="dartrl-oracles-") as scratch:
        async with asyncio.TaskGroup() as group:
            for number in range(environments):
                group.create_task(worker(Path(scratch) / str(number)))
            for _ in episodes:
                yield await played.get()
