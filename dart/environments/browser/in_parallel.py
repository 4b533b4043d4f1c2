"""Runs one function for many episodes, on several environments at a time."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dart.environments.faults import InfrastructureFault
from dart.environments.protocol import Environment

EnvironmentT = TypeVar("EnvironmentT", bound=Environment)
T = TypeVar("T")


async def in_parallel(
    make: Callable[[Path], EnvironmentT],
    work: Callable[[EnvironmentT, str, int], Awaitable[T]],
    episodes: Sequence[tuple[str, int]],
    environments: int,
) -> AsyncIterator[T]:
    """Call ``work`` for each task id and seed of ``episodes``; yield each result as soon as it is there.

    make           makes an environment, given a scratch folder that no other environment uses
    work           called with an environment, a task id and a seed
    environments   number of environments that work at the same time

    After an `InfrastructureFault`, ``work`` is called once more for the episode, because a reset repairs the
    environment. A second fault, and any other exception, cancels all other work and is raised.
    """
    waiting = iter(episodes)
    done: asyncio.Queue[T] = asyncio.Queue(maxsize=environments)

    async def tried(environment: EnvironmentT, task_id: str, seed: int) -> T:
        try:
            return await work(environment, task_id, seed)
        except InfrastructureFault:
            return await work(environment, task_id, seed)

    async def worker(scratch_dir: Path) -> None:
        environment = make(scratch_dir)
        try:
            for task_id, seed in waiting:
                await done.put(await tried(environment, task_id, seed))
        finally:
            await environment.close()

    try:
        with tempfile.TemporaryDirectory(prefix="dartrl-episodes-") as scratch:
            async with asyncio.TaskGroup() as group:
                for number in range(environments):
                    group.create_task(worker(Path(scratch) / str(number)))
                for _ in episodes:
                    yield await done.get()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
