"""What it costs to start a process of each actor that imports much: processor time, and memory of its own.

    python -m benchmarks.process_start                      # five starts of each, in turns
    python -m benchmarks.process_start --beside ../before   # another checkout, in the same turns

A process imports the actor's modules. Engine and trainer also load `configs/base-policy`, the small policy.
The own memory of a process is what no other process shares (USS). Processor time is user and system; a busy
machine lengthens it less than the wait.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.runs import REPOSITORY

OUT = Path(__file__).parent / "out" / "process_start.json"
TIMES = 5

LOADING = "from pathlib import Path; from dart.policy.load import load; load(Path('configs/base-policy'))"
PROGRAMS = {
    "store": "import dart.store.actor",
    "curator": "import dart.curation.actor",
    "engine": f"import dart.inference.actor, dart.inference.transformers_engine; {LOADING}",
    "trainer": f"import dart.training.actor, dart.training.learner; {LOADING}",
}
"""What a process of each actor does before its first message."""

MEASURED = """
import resource, psutil
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, psutil.Process().memory_full_info().uss)
"""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a process."""

    processor_s: float
    own_mib: float


def started(program: str, checkout: Path) -> Start:
    """Start a process of a checkout and measure it at its end. Raises CalledProcessError."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\n{MEASURED}"],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=True,
    )
    processor_s, own_bytes = ended.stdout.split()
    return Start(float(processor_s), int(own_bytes) / 2**20)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=TIMES, help="starts of each")
    parser.add_argument("--beside", type=Path, help="another checkout of this project")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    checkouts = {"here": REPOSITORY} | ({"beside": options.beside.resolve()} if options.beside else {})
    found: dict[str, dict[str, list[Start]]] = {actor: {name: [] for name in checkouts} for actor in PROGRAMS}
    for _ in range(options.times):
        for actor, program in PROGRAMS.items():
            for name, checkout in checkouts.items():
                found[actor][name].append(started(program, checkout))
    Console().print(table(found))
    raw = {
        "command": " ".join(["python -m benchmarks.process_start", *sys.argv[1:]]),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "starts": {
            actor: {name: [asdict(start) for start in starts] for name, starts in checkout.items()}
            for actor, checkout in found.items()
        },
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(raw, indent=1) + "\n")
    return 0


def table(found: dict[str, dict[str, list[Start]]]) -> Table:
    """Median (least to most) of each actor and checkout."""
    made = Table("actor", "checkout", "processor, s", "own memory, MiB")
    for actor, checkouts in found.items():
        for name, starts in checkouts.items():
            seconds = [start.processor_s for start in starts]
            memory = [start.own_mib for start in starts]
            made.add_row(actor, name, _spread(seconds, ".2f"), _spread(memory, ".0f"))
    return made


def _spread(values: Sequence[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


if __name__ == "__main__":
    sys.exit(main())
