"""Runs one function for many episodes, on several environments at a time."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

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

    An exception in ``work`` cancels all other work.
    """
    waiting = iter(episodes)
    done: asyncio.Queue[T] = asyncio.Queue(maxsize=environments)

    async def worker(scratch_dir: Path) -> None:
        environment = make(scratch_dir)
        try:
            for task_id, seed in waiting:
                await done.put(await work(environment, task_id, seed))
        finally:
            await environment.close()

    with tempfile.TemporaryDirectory(prefix="dartrl-episodes-") as scratch:
        async with asyncio.TaskGroup() as group:
            for number in range(environments):
                group.create_task(worker(Path(scratch) / str(number)))
            for _ in episodes:
                yield await done.get()
