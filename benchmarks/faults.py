"""A training run while its processes are killed: does it reach its goal, is anything lost or left behind?

    python -m benchmarks.faults configs/laptop.toml --run-dir runs/faults --set run.seed=1

Starts `dartrl train` and, once training has begun, SIGKILLs one environment every `--period` seconds, and
once each a rollout actor, the curator, the store and the trainer, and SIGSTOPs one environment. At the end it
prints what was done, how long each victim took to come back, whether the books hold
(issued = trained + dropped + stored + leased), whether any process of the run is still there, and the run's
table; the same goes to a JSON file. Exit code 1 when the run failed, the books do not hold, or a process
was left behind.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from actors.board import Board, Vitals
from dart.rundir import RunPaths
from dart.store.reader import StoreReader

MARK = "DARTRL_FAULT_RUN"
"""An environment variable every process of the run inherits: how those left behind are found."""

RECOVERY_DEADLINE_S = 90.0
FIRST_FAULT_S = 5.0
"""After the first policy version exists."""

ONCE_EACH = ("rollout-0", "curator", "store", "trainer")


@dataclass(frozen=True, slots=True)
class Fault:
    """One process hit."""

    at_s: float
    signal: str
    actor: str
    pid: int
    back_after_s: float | None
    """Until a later incarnation was ready; None if it was not within the deadline."""


class Injector:
    """Hits actors of a running run and waits for each to come back."""

    def __init__(self, board: Board, period_s: float, draw: random.Random, started_s: float) -> None:
        self._board = board
        self._period_s = period_s
        self._draw = draw
        self._started_s = started_s
        self.faults: list[Fault] = []

    def run(self, process: "subprocess.Popen[bytes]") -> None:
        """Inject until the run has ended."""
        specials = [(signal.SIGKILL, name) for name in ONCE_EACH] + [(signal.SIGSTOP, "env")]
        turn = 0
        while process.poll() is None:
            due_s = self._started_s + FIRST_FAULT_S + turn * self._period_s / 2
            if time.monotonic() < due_s:
                time.sleep(0.1)
                continue
            # Every other turn an environment is killed, which makes one per period.
            if turn % 2 == 0:
                self._hit(process, signal.SIGKILL, "env")
            elif specials and self._hit(process, *specials[0]):
                specials.pop(0)  # one that was down just then is hit at the next turn
            turn += 1

    def _hit(self, process: "subprocess.Popen[bytes]", number: int, name: str) -> bool:
        """Signal one actor and wait for its return; False when none of that name was up."""
        victims = [row for row in self._board.rows() if self._is_up(row) and row.name.startswith(name)]
        victims = [row for row in victims if name != "env" or row.name.startswith("env-")]
        if not victims:
            return False
        victim = self._draw.choice(victims)
        hit_s = time.monotonic()
        try:
            os.kill(victim.pid, number)
        except ProcessLookupError:
            return False
        back_s = self._wait_back(process, victim, hit_s)
        fault = Fault(hit_s - self._started_s, signal.Signals(number).name, victim.name, victim.pid, back_s)
        self.faults.append(fault)
        took = f"back after {back_s:.2f} s" if back_s is not None else "not back"
        print(f"{fault.at_s:7.1f} s  {fault.signal} {fault.actor} (pid {fault.pid}): {took}", flush=True)
        return True

    def _wait_back(self, process: "subprocess.Popen[bytes]", victim: Vitals, hit_s: float) -> float | None:
        while time.monotonic() < hit_s + RECOVERY_DEADLINE_S and process.poll() is None:
            row = self._board.vitals(victim.slot)
            if row.incarnation > victim.incarnation and self._is_up(row):
                return time.monotonic() - hit_s
            time.sleep(0.01)
        return None

    @staticmethod
    def _is_up(row: Vitals) -> bool:
        return row.state.value == "running" and row.ready


def marked_processes(mark: str) -> Iterator[tuple[int, str]]:
    """Every living process that carries the mark: (pid, command line)."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def wait_for_training(process: "subprocess.Popen[bytes]", paths: RunPaths) -> None:
    """Until the first policy version was made, so that the base evaluation is measured in peace."""
    while process.poll() is None:
        if paths.board.exists():  # made after the record
            with StoreReader(paths.store) as reader:
                newest = reader.latest_version()
                if newest is not None and newest.version > 0:
                    return
        time.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("config", type=Path)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--period", type=float, default=20.0, help="seconds between kills of an environment")
    parser.add_argument("--seed", type=int, default=0, help="which environments are hit")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/faults.json"))
    options = parser.parse_args()

    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "dart", "train", str(options.config), "--run-dir", str(options.run_dir)]
    for override in options.overrides:
        command += ["--set", override]
    started_s = time.monotonic()
    process = subprocess.Popen(command, env=os.environ | {MARK: mark})
    paths = RunPaths(options.run_dir)
    wait_for_training(process, paths)
    injector = Injector(Board(paths.board), options.period, random.Random(options.seed), time.monotonic())
    injector.run(process)
    ended_s = time.monotonic()

    while any(marked_processes(mark)) and time.monotonic() < ended_s + 5.0:
        time.sleep(0.1)
    left = dict(marked_processes(mark))
    with StoreReader(paths.store) as reader:
        books, violations = reader.conservation(), reader.integrity()
    return report(
        options.out, process.returncode, ended_s - started_s, injector.faults, left, books, violations
    )


def report(
    out: Path,
    returncode: int,
    seconds: float,
    faults: list[Fault],
    left: dict[int, str],
    books: "object",
    violations: tuple[str, ...],
) -> int:
    """Print and write what happened; the exit code."""
    holds = bool(getattr(books, "holds", False))
    not_back = [fault.actor for fault in faults[:-1] if fault.back_after_s is None]
    back = sorted(fault.back_after_s for fault in faults if fault.back_after_s is not None)
    median = back[len(back) // 2] if back else None
    print(
        f"\nexit code {returncode} after {seconds:.0f} s; {len(faults)} faults, median {median} s to be back"
    )
    print(f"{books}\nthe books hold: {holds}; violations: {list(violations)}; left behind: {left}")
    out.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "exit_code": returncode,
        "seconds": round(seconds, 1),
        "faults": [asdict(fault) for fault in faults],
        "median_back_after_s": median,
        "conservation_holds": holds,
        "violations": list(violations),
        "left_behind": left,
    }
    out.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if returncode == 0 and holds and not violations and not left and not not_back else 1


if __name__ == "__main__":
    sys.exit(main())
