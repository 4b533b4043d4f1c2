"""Demonstrations: episodes that the oracles played on training seeds, as screenshots and actions.

``python -m dart.environments.miniwob.demonstrations --tasks miniwob/click-test --episodes 100 --out DIR``
writes, for every task, that many *successful* episodes::

    DIR/demonstrations.jsonl          one episode a line: task_id, seed, instruction, reward, steps
    DIR/screenshots/<sha256>.png      each distinct screen once

A step is ``{"screenshot_sha256", "action"}``: the screenshot before the action, and the action's text.
"""

import argparse
import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from dart.core.actions import format_action
from dart.core.seeds import training_seed
from dart.environments.miniwob.oracle_runner import OracleEpisode, OracleStep, play_all
from dart.environments.miniwob.oracles import ORACLES

SPARE = 1.1
"""Seeds to try for each wanted episode: an oracle fails on up to 5 % of them."""


def save_screenshot(folder: Path, png: bytes) -> str:
    """Write ``png`` under its sha256 unless it is there already. Returns the sha256 in hex."""
    digest = hashlib.sha256(png).hexdigest()
    path = folder / f"{digest}.png"
    if not path.exists():
        path.write_bytes(png)
    return digest


def episode_record(play: OracleEpisode, screenshots: Path) -> dict[str, Any]:
    """Write the screenshots of an episode and return its line of the file."""
    return {
        "task_id": play.task_id,
        "seed": play.seed,
        "instruction": play.instruction,
        "reward": play.reward,
        "steps": [_step_record(step, screenshots) for step in play.steps],
    }


def _step_record(step: OracleStep, screenshots: Path) -> dict[str, Any]:
    return {
        "screenshot_sha256": save_screenshot(screenshots, step.observation.screenshot),
        "action": format_action(step.action),
    }


async def collect(
    tasks: Sequence[str], episodes: int, first: int, environments: int, lines: TextIO, out: Path
) -> Counter[str]:
    """Play training seeds from the ``first`` on. Returns the number of episodes by task."""
    screenshots = out / "screenshots"
    screenshots.mkdir(parents=True, exist_ok=True)
    kept: Counter[str] = Counter(dict.fromkeys(tasks, 0))
    tries = range(first, first + int(episodes * SPARE) + 1)
    wanted = [(task, training_seed(index)) for index in tries for task in tasks]
    async for play in play_all(wanted, environments):
        if play.reward == 1.0 and kept[play.task_id] < episodes:
            kept[play.task_id] += 1
            lines.write(json.dumps(episode_record(play, screenshots)) + "\n")
    return kept


def main() -> None:
    """Collect demonstrations into a folder and append them to an existing file."""
    parser = argparse.ArgumentParser(description="Collect successful oracle episodes on training seeds.")
    parser.add_argument(
        "--tasks", nargs="+", default=sorted(ORACLES), choices=sorted(ORACLES), metavar="TASK"
    )
    parser.add_argument("--episodes", type=int, default=100, help="successful episodes for each task")
    parser.add_argument("--first", type=int, default=0, help="index of the first training seed")
    parser.add_argument("--environments", type=int, default=4, help="browsers at a time")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "demonstrations.jsonl").open("a") as lines:
        kept = asyncio.run(
            collect(options.tasks, options.episodes, options.first, options.environments, lines, options.out)
        )
    for task, count in kept.items():
        print(f"{task:34} {count} episodes")


if __name__ == "__main__":
    main()
