"""Demonstrations: episodes that oracles played on training seeds, as screenshots and actions.

`dart.environments.miniwob.demonstrations` and `dart.environments.sites.demonstrations` are the commands. They
write, for every task, as many *successful* episodes as asked for::

    DIR/demonstrations.jsonl          one line for each episode: task_id, seed, instruction, reward, steps
    DIR/screenshots/<sha256>.png      each screenshot once

A step is ``{"screenshot_sha256", "action", "box"}``: the screenshot before the action and the action's text.
A click on an element also has the element's box: [left, top, right, bottom] in pixels of the screenshot.
"""

import argparse
import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from dart.core.actions import Action, format_action
from dart.core.module_main import errors_as_messages
from dart.core.run_directory import append_line
from dart.core.screenspot import save_under_hash
from dart.core.seeds import TRAINING_SEEDS
from dart.environments.browser.dom_queries import TargetNotFound
from dart.environments.browser.environment import BrowserEnvironment
from dart.environments.browser.in_parallel import in_parallel
from dart.environments.protocol import Box

EnvironmentT = TypeVar("EnvironmentT", bound=BrowserEnvironment[Any])

DEADLINE_S = 60.0
"""Deadline of every call to the environment while an oracle plays; on a busy machine a call takes seconds."""

SPARE = 1.1
"""Number of seeds to try for each wanted episode, because an oracle fails on up to 5 % of the seeds."""


@dataclass(frozen=True, slots=True)
class OracleKind(Generic[EnvironmentT]):
    """A kind of environment whose oracles can play.

    make        makes an environment in a scratch folder
    oracle_of   returns the oracle of a task id: an async generator of the actions for a page and its
                instruction; each action is applied before the generator is resumed
    tasks       the ids of the tasks that have oracles
    """

    make: Callable[[Path], EnvironmentT]
    oracle_of: Callable[[str], Callable[[EnvironmentT, str], AsyncIterator[Action]]]
    tasks: tuple[str, ...]


PlayedStep = tuple[bytes, Action, Box | None]
"""A screenshot (PNG), the action after it, and the box of the element that the action clicked, if any."""


@dataclass(frozen=True, slots=True)
class OracleEpisode:
    """An episode that an oracle played."""

    task_id: str
    seed: int
    instruction: str
    steps: tuple[PlayedStep, ...]
    reward: float


async def play(
    environment: EnvironmentT,
    oracle: Callable[[EnvironmentT, str], AsyncIterator[Action]],
    task_id: str,
    seed: int,
) -> OracleEpisode:
    """Let ``oracle`` play an episode until the episode ends or the page lacks what the oracle looks for."""
    observation = await environment.reset(task_id, seed, deadline_s=DEADLINE_S)
    instruction = observation.instruction
    steps: list[PlayedStep] = []
    with contextlib.suppress(TargetNotFound):
        async for action in oracle(environment, instruction):
            result = await environment.step(action, deadline_s=DEADLINE_S)
            steps.append((observation.screenshot, action, result.box))
            if result.terminated:
                break
            observation = await environment.observe(deadline_s=DEADLINE_S)
    reward = await environment.evaluate(deadline_s=DEADLINE_S)
    return OracleEpisode(task_id, seed, instruction, tuple(steps), reward)


async def play_all(
    kind: OracleKind[EnvironmentT], episodes: Sequence[tuple[str, int]], environments: int
) -> AsyncIterator[OracleEpisode]:
    """Play each task id and seed, on several environments in parallel; yield episodes as they end."""

    async def played(environment: EnvironmentT, task_id: str, seed: int) -> OracleEpisode:
        return await play(environment, kind.oracle_of(task_id), task_id, seed)

    async for episode in in_parallel(kind.make, played, episodes, environments):
        yield episode


def episode_record(play: OracleEpisode, screenshots: Path) -> dict[str, Any]:
    """Write the screenshots of an episode and return its line of demonstrations.jsonl, as plain data."""
    steps = [
        {"screenshot_sha256": save_under_hash(screenshots, png).stem, "action": format_action(action)}
        | ({} if box is None else {"box": box})
        for png, action, box in play.steps
    ]
    return {
        "task_id": play.task_id,
        "seed": play.seed,
        "instruction": play.instruction,
        "reward": play.reward,
        "steps": steps,
    }


def add_episode(folder: Path, play: OracleEpisode) -> None:
    """Add an episode and its screenshots to a folder. Raises OSError; then the folder lacks the episode."""
    line = json.dumps(episode_record(play, folder / "screenshots"))
    append_line(folder / "demonstrations.jsonl", line.encode())


async def _collected(
    kind: OracleKind[EnvironmentT],
    tasks: Sequence[str],
    episodes: int,
    out: Path,
    *,
    first: int,
    environments: int,
) -> Counter[str]:
    """Let oracles play training seeds, add their successes to the folder ``out``, and count them by task."""
    kept: Counter[str] = Counter(dict.fromkeys(tasks, 0))
    seeds = TRAINING_SEEDS[first : first + int(episodes * SPARE) + 1]
    wanted = [(task, seed) for seed in seeds for task in tasks]
    async for play in play_all(kind, wanted, environments):
        if play.reward == 1.0 and kept[play.task_id] < episodes:
            kept[play.task_id] += 1
            add_episode(out, play)
    return kept


def collect(
    kind: OracleKind[EnvironmentT],
    tasks: Sequence[str],
    episodes: int,
    out: Path,
    *,
    first: int = 0,
    environments: int = 4,
) -> Counter[str]:
    """Let oracles play training seeds, and add their successes to the folder ``out``.

    episodes   largest number of episodes to add for each task; there are fewer when an oracle fails often
    first      how many training seeds to skip

    Returns the number of added episodes by task.
    """
    out.mkdir(parents=True, exist_ok=True)
    playing = _collected(kind, tasks, episodes, out, first=first, environments=environments)
    return asyncio.run(playing)


def run_command(kind: OracleKind[EnvironmentT]) -> None:
    """Parse the command line and add demonstrations to the folder ``--out``; those of earlier calls stay."""
    parser = argparse.ArgumentParser(description="Collect successful oracle episodes on training seeds.")
    tasks = list(kind.tasks)
    parser.add_argument("--tasks", nargs="+", default=tasks, choices=tasks, metavar="TASK")
    parser.add_argument("--episodes", type=int, default=100, help="successful episodes for each task")
    parser.add_argument("--first", type=int, default=0, help="how many training seeds to skip")
    parser.add_argument("--environments", type=int, default=4, help="number of browsers that play at a time")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with errors_as_messages(parser):
        counts = collect(kind, **vars(options))
    for task, count in counts.items():
        print(f"{task:34} {count} episodes")
