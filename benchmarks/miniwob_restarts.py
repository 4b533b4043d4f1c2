"""Which MiniWoB++ pages play another episode like a loaded page: `python -m benchmarks.miniwob_restarts`

Two browsers play the same seeds of a task. One loads the page for every episode, the other lets the page
start the next episode by itself, after an episode of random actions that may leave anything behind. For every
seed the instruction and the first screenshot must be equal to the last bit; then both browsers take the same
random actions, and each screenshot, the end of the episode and the score must be equal, too. Screenshots that
differ only until half a second later are counted as late: a timer of the page ran out before one of the two.

The table has the processor time of a reset of each kind. The tasks that pass belong into
`dart.environments.miniwob.restartable`; exit code 1 when one of that list does not pass.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dart.core.actions import Action, Click, Drag, Hotkey, Scroll, Type
from dart.environments.faults import InfrastructureFault
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.miniwob.pages import HEIGHT, WIDTH, task_ids
from dart.environments.miniwob.restartable import RESTARTABLE

OUT = Path(__file__).parent / "out" / "miniwob_restarts.json"
RESULTS = Path(__file__).parent / "results" / "miniwob_restarts.json"

DEADLINE_S = 60.0
ACTIONS = 4
"""Random actions of an episode, before a restart and after it."""

SETTLE_S = 0.5
"""Time after which a page shows what an action did. jQuery UI opens the tab of an arrow key after 0.3 s."""

TASK_TOP = 50
"""The part of a page above has the instruction alone."""

OTHER_SEEDS = 10_000
"""The first seed of the episodes that leave something behind."""

TICKS = os.sysconf("SC_CLK_TCK")

Acted = tuple[bool, bytes, float]
"""Whether the episode is over, the screenshot and the score."""


@dataclass(slots=True)
class TaskResult:
    """What came of one task."""

    task_id: str
    seeds: int = 0
    unequal_starts: list[int] = field(default_factory=list)
    """Seeds whose instruction or first screenshot differs."""
    unequal_steps: list[int] = field(default_factory=list)
    """Seeds with a difference after an action."""
    late_steps: list[int] = field(default_factory=list)
    """Seeds with a screenshot that differed after an action, and no more `SETTLE_S` later."""
    not_restarted: int = 0
    """How often the page had to be loaded."""
    load_ms: list[float] = field(default_factory=list)
    """Processor time of each reset by a load, in all processes of the browser."""
    restart_ms: list[float] = field(default_factory=list)
    problem: str = ""

    @property
    def passes(self) -> bool:
        is_equal = not self.unequal_starts and not self.unequal_steps
        return is_equal and self.seeds > self.not_restarted and not self.problem


class Browser:
    """An environment and the processor time of its browser."""

    def __init__(self, folder: Path, restartable: Sequence[str]) -> None:
        self.environment = MiniWobEnvironment(folder, restartable=restartable)

    async def reset(self, task_id: str, seed: int) -> tuple[tuple[str, bytes], float]:
        """Return the instruction with the screenshot, and the milliseconds of processor time."""
        before = self._processor_s()
        seen = await self.environment.reset(task_id, seed, deadline_s=DEADLINE_S)
        return (seen.instruction, seen.screenshot), 1e3 * (self._processor_s() - before)

    async def act(self, action: Action) -> Acted:
        """Apply the action and return what came of it."""
        ended = (await self.environment.step(action, deadline_s=DEADLINE_S)).terminated
        screenshot = await self.look()
        score = await self.environment.evaluate(deadline_s=DEADLINE_S) if ended else 0.0
        return ended, screenshot, score

    async def look(self) -> bytes:
        """Return the screenshot."""
        return (await self.environment.observe(deadline_s=DEADLINE_S)).screenshot

    def _processor_s(self) -> float:
        browser = self.environment._browser
        return 0.0 if browser is None else group_processor_s(browser.pid)


def group_processor_s(group: int) -> float:
    """Return the processor time of all processes of a process group."""
    used = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            used += int(fields[11]) + int(fields[12]) if int(fields[2]) == group else 0
    return used / TICKS


def drawn_action(choose: random.Random) -> Action:
    """Return an action that may leave something behind: a focus, text, a selection, a scrolled page."""
    x, y = choose.randrange(WIDTH), choose.randrange(TASK_TOP, HEIGHT)
    kind = choose.randrange(10)
    if kind < 5:
        return Click(x, y)
    if kind < 7:
        return Type(choose.choice(("ab", "1", "x y")))
    if kind < 8:
        return Drag(x, y, choose.randrange(WIDTH), choose.randrange(TASK_TOP, HEIGHT))
    return Scroll(x, y, "down") if kind < 9 else Hotkey((choose.choice(("tab", "down", "enter")),))


async def try_task(task_id: str, seeds: int, loading: Browser, restarting: Browser) -> TaskResult:
    """Compare the two browsers on the seeds of a task."""
    result = TaskResult(task_id)
    try:
        for seed in range(seeds):
            await restarting.reset(task_id, OTHER_SEEDS + seed)
            await _leave_traces(restarting, random.Random(f"traces {task_id} {seed}"))
            await _compare(result, seed, loading, restarting)
    except InfrastructureFault as fault:
        result.problem = f"{type(fault).__name__}: {fault}"
    return result


async def _leave_traces(browser: Browser, choose: random.Random) -> None:
    for _ in range(ACTIONS):
        if (await browser.act(drawn_action(choose)))[0]:
            break


async def _compare(result: TaskResult, seed: int, loading: Browser, restarting: Browser) -> None:
    loads = restarting.environment.loads
    loaded, load_ms = await loading.reset(result.task_id, seed)
    restarted, restart_ms = await restarting.reset(result.task_id, seed)
    result.seeds += 1
    result.load_ms.append(load_ms)
    if restarting.environment.loads > loads:
        result.not_restarted += 1
        return
    result.restart_ms.append(restart_ms)
    if loaded != restarted:
        result.unequal_starts.append(seed)
        return
    choose = random.Random(f"{result.task_id} {seed}")
    for _ in range(ACTIONS):
        action = drawn_action(choose)
        one, other = await loading.act(action), await restarting.act(action)
        if one != other and not await _is_late(one, other, loading, restarting):
            result.unequal_steps.append(seed)
            return
        if one != other:
            result.late_steps.append(seed)
        if one[0]:
            return


async def _is_late(one: Acted, other: Acted, loading: Browser, restarting: Browser) -> bool:
    """Return whether only the screenshots differ, and no more after `SETTLE_S`."""
    if (one[0], one[2]) != (other[0], other[2]):
        return False
    await asyncio.sleep(SETTLE_S)
    return await loading.look() == await restarting.look()


async def try_tasks(tasks: Sequence[str], seeds: int) -> list[TaskResult]:
    """Compare task after task, with a line for each."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        loading = Browser(Path(folder) / "loading", ())
        restarting = Browser(Path(folder) / "restarting", tasks)
        for task_id in tasks:
            results.append(await try_task(task_id, seeds, loading, restarting))
            print(row(results[-1]), flush=True)
        await loading.environment.close()
        await restarting.environment.close()
    return results


def row(result: TaskResult) -> str:
    """One line of the table."""
    load, restart = (statistics.median(one or [0.0]) for one in (result.load_ms, result.restart_ms))
    verdict = "equal" if result.passes else result.problem or "differs"
    differing = result.unequal_starts, result.unequal_steps, result.late_steps
    counts = " ".join(f"{count:6}" for count in (*map(len, differing), result.not_restarted))
    return f"{result.task_id:36} {result.seeds:5} {counts} {load:8.0f} {restart:10.0f}  {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=None, help="default: all that are installed")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="two seeds of two tasks; nothing is kept")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    tasks = options.tasks or (sorted(RESTARTABLE)[:2] if options.quick else list(task_ids()))
    head = "task", "seeds", "starts", "steps", "late", "loads", "load ms", "restart ms"
    print("{:36} {:>5} {:>6} {:>6} {:>6} {:>6} {:>8} {:>10}".format(*head))
    results = asyncio.run(try_tasks(tasks, 2 if options.quick else options.seeds))
    passed = [one.task_id for one in results if one.passes]
    wrong = [one for one in results if one.task_id in RESTARTABLE and not one.passes]
    load, restart = (
        statistics.median([ms for one in results if one.passes for ms in getattr(one, name)] or [0.0])
        for name in ("load_ms", "restart_ms")
    )
    print(
        f"{len(passed)} of {len(tasks)} tasks are equal; a restart takes {restart:.0f} ms of processor time,"
    )
    print(f"a load {load:.0f} ms")
    for one in wrong:
        print(f"{one.task_id} is in dart.environments.miniwob.restartable, and is not equal", file=sys.stderr)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = {"restart_ms": restart, "load_ms": load, "tasks": [asdict(one) for one in results]}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if wrong or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
