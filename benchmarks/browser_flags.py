"""What command-line flags of the browser cost or save: processor time of an episode's work, by process.

    python -m benchmarks.browser_flags            # RenderDocument switched on again
    python -m benchmarks.browser_flags --flags="--in-process-gpu" --flags="--num-raster-threads=1"
    python -m benchmarks.browser_flags --quick    # few episodes, in seconds

An episode is a reset of one of the laptop job's eight tasks, its screenshot, one click that hits nothing, and
the screenshot after it. Each --flags is a set of flags after the usual ones, separated by spaces. The usual
flags and the sets take turns, --rounds times, each time in a new browser whose eight pages are loaded before.

Prints the processor time of an episode as the median and range over the rounds, its parts by kind of process,
and whether all screenshots are those of the usual flags. Writes OUT as JSON. Exit code 1 if one differs.
"""

import argparse
import asyncio
import hashlib
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.actors import machine
from benchmarks.laptop_seeds import CONFIG
from dart.config.config import load_config
from dart.core.actions import Click
from dart.environments.browser.cdp import FLAGS
from dart.environments.miniwob.environment import MiniWobEnvironment

OUT = Path(__file__).parent / "out" / "browser_flags.json"
USUAL = "usual"
WITH_RENDER_DOCUMENT = next(
    flag.replace(",RenderDocument", "") for flag in FLAGS if flag.startswith("--disable-features=")
)
"""Of several --disable-features, Chromium takes the last."""

ELSEWHERE = Click(5, 205)
DEADLINE_S = 60.0
FIRST_SEED = 100

Turn = dict[str, Any]


def cpu_s() -> Counter[str]:
    """Return the processor time of all processes below this one, by kind of Chromium's processes."""
    spent: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            words = process.cmdline()
            kind = next((word[len("--type=") :] for word in words if word.startswith("--type=")), "browser")
            spent[kind] += sum(process.cpu_times()[:2])
    return spent


async def turn(tasks: Sequence[str], flags: Sequence[str], episodes: int) -> Turn:
    """Play the episodes in a new browser."""
    screens = hashlib.sha256()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment = MiniWobEnvironment(Path(folder), flags=flags)
        try:
            for task in tasks:
                await environment.reset(task, 0, deadline_s=DEADLINE_S)
            before = cpu_s()
            for number in range(episodes):
                task, seed = tasks[number % len(tasks)], FIRST_SEED + number
                screens.update((await environment.reset(task, seed, deadline_s=DEADLINE_S)).screenshot)
                await environment.step(ELSEWHERE, deadline_s=DEADLINE_S)
                screens.update((await environment.observe(deadline_s=DEADLINE_S)).screenshot)
            spent = cpu_s() - before
        finally:
            await environment.close()
    by_kind = {kind: 1000 * value / episodes for kind, value in spent.items()}
    return {"cpu_ms": sum(by_kind.values()), "by_kind": by_kind, "screens": screens.hexdigest()}


async def compare(sets: Sequence[str], episodes: int, rounds: int) -> dict[str, list[Turn]]:
    """Measure all sets of flags in turns, in another order each round."""
    tasks = load_config(CONFIG).tasks.train
    found: dict[str, list[Turn]] = {name: [] for name in sets}
    for number in range(rounds):
        for name in sets if number % 2 == 0 else reversed(sets):
            flags = () if name == USUAL else name.split()
            found[name].append(await turn(tasks, flags, episodes))
    return found


def row(turns: Sequence[Turn], usual: Sequence[Turn]) -> dict[str, Any]:
    """Return the figures of one set of flags."""
    values = [one["cpu_ms"] for one in turns]
    kinds = {kind for one in turns for kind in one["by_kind"]}
    return {
        "cpu_ms": {"median": statistics.median(values), "least": min(values), "most": max(values)},
        "ratio": statistics.median(values) / statistics.median(one["cpu_ms"] for one in usual),
        "by_kind": {
            kind: statistics.median(one["by_kind"].get(kind, 0.0) for one in turns) for kind in sorted(kinds)
        },
        "same_screens": {one["screens"] for one in turns} == {one["screens"] for one in usual},
        "turns": turns,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flags", action="append", help="a set of flags; may be given several times")
    parser.add_argument("--episodes", type=int, default=120, help="of each turn")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="one round of 8 episodes")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    episodes, rounds = (8, 1) if options.quick else (options.episodes, options.rounds)
    sets = [USUAL, *(options.flags or [WITH_RENDER_DOCUMENT])]
    turns = asyncio.run(compare(sets, episodes, rounds))
    rows = {name: row(found, turns[USUAL]) for name, found in turns.items()}
    table = Table("flags", "ms of an episode", "of the usual", "by process, ms", "screens")
    for name, one in rows.items():
        cpu_ms, kinds = one["cpu_ms"], one["by_kind"].items()
        table.add_row(
            name,
            f"{cpu_ms['median']:.1f} ({cpu_ms['least']:.1f} to {cpu_ms['most']:.1f})",
            f"{one['ratio']:.2f}",
            ", ".join(f"{kind} {value:.1f}" for kind, value in kinds if value >= 0.1),
            "the same" if one["same_screens"] else "OTHERS",
        )
    Console().print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    written = {"machine": machine(), "episodes": episodes, "rounds": rounds, "rows": rows}
    options.out.write_text(json.dumps(written, indent=1) + "\n")
    return int(not all(one["same_screens"] for one in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
