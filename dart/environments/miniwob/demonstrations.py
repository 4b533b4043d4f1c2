"""Demonstrations: episodes that the oracles played on training seeds, as screenshots and actions.

``python -m dart.environments.miniwob.demonstrations --tasks miniwob/click-test --episodes 100 --out DIR``
writes, for every task, that many *successful* episodes::

    DIR/demonstrations.jsonl          one line for each episode: task_id, seed, instruction, reward, steps
    DIR/screenshots/<sha256>.png      each screenshot once

A step is ``{"screenshot_sha256", "action", "box"}``: the screenshot before the action, the action's text, and
the box of the element under its point if it has one point.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dart.core.actions import Action, Click, LeftDouble, RightSingle, format_action
from dart.core.seeds import TRAINING_SEEDS
from dart.environments.browser.dom_queries import TargetNotFound
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.miniwob.oracles import ORACLES, Oracle
from dart.environments.miniwob.pages import HEIGHT, WIDTH

DEADLINE_S = 10.0
"""Deadline of every call to the environment while an oracle plays."""

SPARE = 1.1
"""Number of seeds to try for each wanted episode, because an oracle fails on up to 5 % of the seeds."""


BOX_AT = """(() => {{
    const element = document.elementFromPoint({x}, {y});
    if (element === null) return null;
    const {{left, top, right, bottom}} = element.getBoundingClientRect();
    return [left, top, right, bottom];
}})()"""
"""JavaScript for the box of the topmost element at a point, in pixels of the screenshot."""

PlayedStep = tuple[bytes, Action, list[float] | None]
"""A screenshot (PNG), the action after it, and the box of the element that the action is for."""


@dataclass(frozen=True, slots=True)
class OracleEpisode:
    """An episode that an oracle played."""

    task_id: str
    seed: int
    instruction: str
    steps: tuple[PlayedStep, ...]
    reward: float


async def play(environment: MiniWobEnvironment, oracle: Oracle, task_id: str, seed: int) -> OracleEpisode:
    """Let ``oracle`` play an episode until the episode ends or the page lacks what the oracle looks for."""
    observation = await environment.reset(task_id, seed, deadline_s=DEADLINE_S)
    instruction = observation.instruction
    steps: list[PlayedStep] = []
    with contextlib.suppress(TargetNotFound):
        async for action in oracle(environment, instruction):
            steps.append((observation.screenshot, action, await _box_at(environment, action)))
            if (await environment.step(action, deadline_s=DEADLINE_S)).terminated:
                break
            observation = await environment.observe(deadline_s=DEADLINE_S)
    reward = await environment.evaluate(deadline_s=DEADLINE_S)
    return OracleEpisode(task_id, seed, instruction, tuple(steps), reward)


async def _box_at(environment: MiniWobEnvironment, action: Action) -> list[float] | None:
    """Return the visible part of the box of the element that an action is for; None without one."""
    if not isinstance(action, Click | LeftDouble | RightSingle):
        return None
    found = await environment.inspect(BOX_AT.format(x=action.x, y=action.y))
    if found is None:
        return None
    left, top, right, bottom = found
    visible = [max(left, 0.0), max(top, 0.0), min(right, float(WIDTH)), min(bottom, float(HEIGHT))]
    return visible if visible[0] < visible[2] and visible[1] < visible[3] else None


async def play_all(episodes: Sequence[tuple[str, int]], environments: int) -> AsyncIterator[OracleEpisode]:
    """Play each task id and seed on several environments in parallel; yield episodes in order of their
    end."""
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


def save_screenshot(folder: Path, png: bytes) -> str:
    """Write ``png`` under its sha256 unless it is there already. Returns the sha256 in hex."""
    digest = hashlib.sha256(png).hexdigest()
    path = folder / f"{digest}.png"
    if not path.exists():
        path.write_bytes(png)
    return digest


def episode_record(play: OracleEpisode, screenshots: Path) -> dict[str, Any]:
    """Write the screenshots of an episode and return its line of demonstrations.jsonl, as plain data."""
    steps = [
        {"screenshot_sha256": save_screenshot(screenshots, png), "action": format_action(action)}
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


def collect(
    tasks: Sequence[str], episodes: int, out: Path, *, first: int = 0, environments: int = 4
) -> Counter[str]:
    """Let oracles play training seeds, and add their successes to the folder ``out``.

    first   how many training seeds to skip

    Returns the number of added episodes by task.
    """
    return asyncio.run(_collected(tasks, episodes, out, first, environments))


async def _collected(
    tasks: Sequence[str], episodes: int, out: Path, first: int, environments: int
) -> Counter[str]:
    screenshots = out / "screenshots"
    screenshots.mkdir(parents=True, exist_ok=True)
    kept: Counter[str] = Counter(dict.fromkeys(tasks, 0))
    seeds = TRAINING_SEEDS[first : first + int(episodes * SPARE) + 1]
    wanted = [(task, seed) for seed in seeds for task in tasks]
    with (out / "demonstrations.jsonl").open("a") as lines:
        async for play in play_all(wanted, environments):
            if play.reward == 1.0 and kept[play.task_id] < episodes:
                kept[play.task_id] += 1
                lines.write(json.dumps(episode_record(play, screenshots)) + "\n")
    return kept


def main() -> None:
    """Add demonstrations to a folder; the demonstrations of earlier calls stay there."""
    parser = argparse.ArgumentParser(description="Collect successful oracle episodes on training seeds.")
    parser.add_argument(
        "--tasks", nargs="+", default=sorted(ORACLES), choices=sorted(ORACLES), metavar="TASK"
    )
    parser.add_argument("--episodes", type=int, default=100, help="successful episodes for each task")
    parser.add_argument("--first", type=int, default=0, help="index of the first training seed")
    parser.add_argument("--environments", type=int, default=4, help="browsers at a time")
    parser.add_argument("--out", type=Path, required=True)
    for task, count in collect(**vars(parser.parse_args())).items():
        print(f"{task:34} {count} episodes")


if __name__ == "__main__":
    main()
