"""What the command line costs before it answers: every command that looks at a run, and what it imports.

``python -m benchmarks.command_line`` makes up a running run (board, record and configuration are real, nobody
runs) and asks each command that attaches to one, `--help` and `--version`, several times in turns. Told is
the processor time of the whole process, user and system: a busy machine lengthens the wait and not that. The
modules that `--help` and `status` import are listed by the least time of several runs.

Exit code 1 when `--help` takes 0.3 s of a processor or more, or any command 0.5 s. With `--quick` every
command is asked once, and its cost is printed, not judged.
"""

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from actors.board import Board
from benchmarks import scrape
from dart.config.config import load_config
from dart.core.run_directory import RunPaths, claimed

HELP_GOAL_S = 0.3
GOAL_S = 0.5
TIMES = 7
ROWS = 12
ACTORS = 16

LOOKING = (
    *("status", "tree", "top", "actors list", "actors show env-0000", "why env-0000", "events", "metrics"),
    *("tasks list", "tasks show click-tab", "trajectories list", "policy versions", "checkpoints list"),
    *("quarantine list", "pool list", "config show"),
)
"""Commands that look at a run; what they print is checked by `benchmarks.live_commands`."""

_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")


@dataclass(frozen=True, slots=True)
class Import:
    """One module as `-X importtime` reports it."""

    name: str
    own_us: int
    """Microseconds in the module itself."""
    all_us: int
    """With everything it imports for the first time."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One command, once."""

    processor_s: float
    """User and system, of the whole process."""
    wall_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--quick", action="store_true", help="each command once, no goal is judged")
    options = parser.parse_args(arguments)
    times = 1 if options.quick else options.times
    with made_up_run() as folder:
        commands = {"--help": ["--help"], "--version": ["--version"]} | {
            name: arguments_of(name, folder) for name in LOOKING
        }
        for name in ("--help", "status"):
            show_imports(name, least([imports_of(["-m", "dart", *commands[name]]) for _ in range(3)]))
        costs: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(times):  # in turns: what else the machine does is shared by all
            for name, words in commands.items():
                costs[name].append(cost_of(words))
    print(f"median of {times}, in turns; goals: --help below {HELP_GOAL_S:g} s, all below {GOAL_S:g} s")
    print("| dartrl | processor, s | wall, s |\n|---|---|---|")
    missed = False
    for name, found in costs.items():
        processor_s = statistics.median(one.processor_s for one in found)
        wall_s = statistics.median(one.wall_s for one in found)
        is_missed = processor_s >= (HELP_GOAL_S if name == "--help" else GOAL_S)
        print(f"| {name} | {processor_s:.3f}{' MISSED' if is_missed else ''} | {wall_s:.3f} |")
        missed |= is_missed
    return int(missed and not options.quick)


@contextmanager
def made_up_run() -> Iterator[Path]:
    """A run directory that is held as by a running run; the actors on its board are this process."""
    with tempfile.TemporaryDirectory(prefix="dartrl-looking-") as name:
        folder = Path(name) / "run"
        config = load_config(None, [f"run.dir={str(folder)!r}"])
        with claimed(folder, resume=False, config_toml=config.to_toml()):
            board = Board.create(RunPaths(folder).board)
            slots = scrape.claim(board, ACTORS - len(scrape.POOLS))
            scrape.fill(RunPaths(folder), config)
            scrape.live_on(board, slots, 1)
            yield folder
            board.close()


def arguments_of(command: str, folder: Path) -> list[str]:
    """The command about that run."""
    words = command.split()
    if words[0] == "config":
        return [*words, str(RunPaths(folder).config)]
    return [*words, "--run-dir", str(folder)]


def cost_of(words: Sequence[str]) -> Cost:
    """One command from start to end; whatever it says, it must not break. Raises RuntimeError."""
    before, began_s = _children_s(), time.perf_counter()
    ran = subprocess.run([sys.executable, "-m", "dart", *words], capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - began_s
    if "Traceback" in ran.stderr or ran.returncode > 4:
        raise RuntimeError(f"dartrl {' '.join(words)} ended with {ran.returncode}: {ran.stderr[-500:]}")
    return Cost(_children_s() - before, wall_s)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- imports ----


def show_imports(command: str, found: Sequence[Import]) -> None:
    total_ms = sum(one.own_us for one in found) / 1000
    print(f"dartrl {command}: {len(found)} modules, {total_ms:.0f} ms of imports; the dearest:")
    print("| module | by itself, ms | with what it imports, ms |\n|---|---|---|")
    for one in sorted(found, key=lambda one: -one.own_us)[:ROWS]:
        print(f"| {one.name} | {one.own_us / 1000:.1f} | {one.all_us / 1000:.1f} |")
    print()


def imports_of(command: Sequence[str]) -> list[Import]:
    """What a Python command imports."""
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    return parse(ran.stderr)


def parse(report: str) -> list[Import]:
    """The table that `-X importtime` writes, without its heading."""
    return [Import(match[4], int(match[1]), int(match[2])) for match in _LINE.finditer(report)]


def least(reports: Sequence[Sequence[Import]]) -> list[Import]:
    """Of several runs the least time of each module: what is more was the machine."""
    found: dict[str, Import] = {}
    for one in (one for report in reports for one in report):
        known = found.get(one.name, one)
        found[one.name] = Import(one.name, min(one.own_us, known.own_us), min(one.all_us, known.all_us))
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
