"""Where the time goes before a command answers: `python -X importtime`, sorted, and the command itself timed.

``python -m benchmarks.command_line`` prints the modules that cost most by themselves when `dartrl --help`
is asked for, and how long `--help` and `--version` take from start to end, as a median. Exit code 1 when
`--help` takes 0.3 s or longer.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

GOAL_S = 0.3
TIMES = 7
ROWS = 15

_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")


@dataclass(frozen=True, slots=True)
class Import:
    """One module as `-X importtime` reports it."""

    name: str
    own_us: int
    """Microseconds in the module itself."""
    all_us: int
    """With everything it imports for the first time."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=TIMES)
    options = parser.parse_args(arguments)
    found = imports_of(["-m", "dart", "--help"])
    print(f"{len(found)} modules, {sum(one.own_us for one in found) / 1000:.0f} ms of imports; the dearest:")
    print("| module | by itself, ms | with what it imports, ms |\n|---|---|---|")
    for one in sorted(found, key=lambda one: -one.own_us)[:ROWS]:
        print(f"| {one.name} | {one.own_us / 1000:.1f} | {one.all_us / 1000:.1f} |")
    for option in ("--help", "--version"):
        took_s = [_timed(option) for _ in range(options.times)]
        print(f"dartrl {option}: median {statistics.median(took_s):.3f} s, fastest {min(took_s):.3f} s")
        if option == "--help":
            help_s = statistics.median(took_s)
    return int(help_s >= GOAL_S)


def imports_of(command: Sequence[str]) -> list[Import]:
    """What a Python command imports."""
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True
    )
    return parse(ran.stderr)


def parse(report: str) -> list[Import]:
    """The table that `-X importtime` writes, without its heading."""
    return [Import(match[4], int(match[1]), int(match[2])) for match in _LINE.finditer(report)]


def _timed(option: str) -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "dart", option], capture_output=True, check=True)
    return time.perf_counter() - began_s


if __name__ == "__main__":
    sys.exit(main())
