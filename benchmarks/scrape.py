"""What a scrape of `/metrics` costs with a thousand actors: the board is real, nobody runs.

Every actor has a row on a board with vitals that change from scrape to scrape, the pid of this process, so
that the kernel is asked as often as in a run, and a supervisor with reports. The record has no trajectories.
Measured is the whole answer: board, kernel, reports and record read, text written.

``python -m benchmarks.scrape`` prints the figures and ends with exit code 1 when the median is over 50 ms.
With `--quick` there are fewer actors and scrapes, and the median is printed, not judged.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from actors.board import ActorState, Board
from actors.process import start_ticks
from dart.config.config import Config, load_config
from dart.core.run_directory import RunPaths
from dart.inspect.metrics import exposition
from dart.inspect.snapshot_reader import SnapshotReader
from dart.store.store import Store
from supervision import reports
from supervision.reports import Offender, SupervisorReport

ACTORS = 1000
SCRAPES = 50

GOAL_MS = 50.0
"""Of the median."""

POOLS = ("environment_pool", "rollout_pool")
"""Supervisors the actors are spread over."""

REPORTS = 500
"""Deaths each of them has on file, one a second up to now."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--actors", type=int, default=ACTORS)
    parser.add_argument("--scrapes", type=int, default=SCRAPES)
    parser.add_argument("--quick", action="store_true", help="20 actors, 3 scrapes, no goal is judged")
    options = parser.parse_args(arguments)
    if options.quick:
        options.actors, options.scrapes = 20, 3
    with tempfile.TemporaryDirectory(prefix="dartrl-scrape-") as folder:
        took, size = measure(Path(folder), options.actors, options.scrapes)
    wall_ms, processor_ms = (statistics.median(times) for times in zip(*took, strict=True))
    print(f"{options.actors} actors, {options.scrapes} scrapes of {size / 1024:.0f} KiB each")
    print(f"median {wall_ms:.1f} ms (goal: below {GOAL_MS:g}), of which on a processor {processor_ms:.1f} ms")
    return int(wall_ms >= GOAL_MS and not options.quick)


def measure(folder: Path, actors: int, scrapes: int) -> tuple[list[tuple[float, float]], int]:
    """Milliseconds of each scrape, by the clock and on a processor; the size of the last answer in bytes."""
    paths, config = RunPaths(folder), load_config()
    board = Board.create(paths.board)
    slots = claim(board, actors - len(POOLS))
    fill(paths, config)
    took_ms: list[tuple[float, float]] = []
    with SnapshotReader(paths, config) as reader:
        for number in range(scrapes + 1):
            live_on(board, slots, number)
            began_s, used_s = time.perf_counter(), time.process_time()
            text = exposition(reader.read())
            took_ms.append((1000 * (time.perf_counter() - began_s), 1000 * (time.process_time() - used_s)))
    board.close()
    return took_ms[1:], len(text)  # the first one also imports


def claim(board: Board, workers: int) -> list[int]:
    """Rows for the supervisors and, below them, for environments."""
    slots = [board.claim(name, "root") for name in POOLS]
    slots += [board.claim(f"env-{index:04d}", POOLS[index % len(POOLS)]) for index in range(workers)]
    own = {"pid": os.getpid(), "pid_start_ticks": start_ticks(os.getpid())}
    for slot in slots:
        board.set_state(slot, ActorState.RUNNING, ready=1, started_unix_s=time.time(), **own)
    return slots


def fill(paths: RunPaths, config: Config) -> None:
    session = {"elapsed_s": 1.0, "budget_s": 60.0, "training_ends_unix_s": time.time() + 60.0}
    session |= {"started_unix_s": time.time() - 1.0, "used_before_s": 0.0}
    (paths.root / "session.json").write_text(json.dumps(session))
    with Store(paths.store) as store:
        store.add_version()
    for pool in POOLS:
        for number in range(REPORTS):
            reports.append(paths.root, _report(pool, time.time() - REPORTS + number))


def _report(supervisor: str, unix_s: float) -> SupervisorReport:
    return SupervisorReport(
        unix_s=unix_s,
        supervisor=supervisor,
        context="child_terminated",
        reason="SIGKILL",
        offender=Offender(id="env-0001", incarnation=1, pid=1),
        log_lines=("{}",) * 5,
    )


def live_on(board: Board, slots: Sequence[int], number: int) -> None:
    """Everybody beats and handles something."""
    for slot in slots:
        now_ns = board.now_ns()
        board.set(slot, beat_ns=now_ns, busy_since_ns=now_ns, handler="Step", messages=number, restarts=1)


if __name__ == "__main__":
    sys.exit(main())
