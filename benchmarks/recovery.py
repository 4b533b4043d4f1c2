"""How long is a run without its store or its curator after a kill, and where does the time go?

    python -m benchmarks.recovery                       # each is killed five times
    python -m benchmarks.recovery --beside ../before    # another checkout, the same kills at the same moments

A training run with real browsers, a real policy and a real optimizer (configs/chaos.toml without faults, two
environments, one engine, no latency of virtual machines). Store and curator are killed by SIGKILL in turn.
For each kill it prints when every actor takes work again, or that it went on; and the time to the first real
work: the start screen of an episode that gets stored, as `benchmarks.chaos` counts it.

With `--beside` both runs share the machine, so that what else runs there weighs on both. Exit code 1 when a
victim does not come back. What a process costs to start: `benchmarks.process_start`.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from actors.board import Board, Vitals
from benchmarks import runs
from benchmarks.actors import machine
from benchmarks.chaos import CONFIG, await_training
from benchmarks.chaos_faults import is_up
from benchmarks.chaos_report import episodes_of

OUT = Path(__file__).parent / "out" / "recovery.json"
VICTIMS = ("store", "curator")
WATCHED = ("store", "curator", "rollout-0", "weight_sync", "env-000", "env-001", "trainer")
OVERRIDES = {
    "run.minutes": 60.0,
    "environments.count": 2,
    "rollout.count": 1,
    "environments.latency.enabled": False,
    "training.groups_per_update": 1,
    "curation.rollouts_per_group": 4,
    "supervision.root.max_restarts": 1000,
    # Nothing is stopped here, and a busy machine is no hang: only the kills may end a process.
    **{
        f"supervision.{child}.{limit}_deadline_s": 600.0
        for child in ("store", "curator", "rollout_pool", "weight_sync", "environment_pool", "trainer")
        for limit in ("start", "hang")
    },
}
GOAL_S = 3.0
SETTLE_S = 10.0
"""Between two kills, at least: the run works again."""

START_DEADLINE_S, BACK_DEADLINE_S = 600.0, 300.0
POLL_S = 0.01


@dataclass(slots=True)
class Recovery:
    """What happened after one kill. Times are seconds since the kill."""

    victim: str
    unix_s: float
    ready_s: dict[str, float] = field(default_factory=dict)
    """When each actor took work again; 0 for one that was not started again."""
    work_s: float | None = None
    """To the first screen of an episode that was stored; None when there was none."""


class Watched:
    """A run and the recoveries after its kills."""

    def __init__(self, run: runs.Run) -> None:
        self.run = run
        self._board = Board(run.paths.board)
        self.recoveries: list[Recovery] = []
        self._before: dict[str, Vitals] = {}

    def rows(self) -> dict[str, Vitals]:
        slots = {name: self._board.find(name) for name in WATCHED}
        return {name: self._board.vitals(slot) for name, slot in slots.items() if slot is not None}

    def is_whole(self) -> bool:
        rows = self.rows()
        return len(rows) == len(WATCHED) and all(is_up(row) for row in rows.values())

    def kill(self, victim: str) -> None:
        self._before = self.rows()
        self.recoveries.append(Recovery(victim, time.time()))
        os.kill(self._before[victim].pid, signal.SIGKILL)

    def watch(self) -> bool:
        """Note who is back since the kill; True when all are up, and the victim is a new one."""
        recovery, rows = self.recoveries[-1], self.rows()
        for name, row in rows.items():
            is_new = row.incarnation > self._before[name].incarnation
            if is_new and is_up(row) and name not in recovery.ready_s:
                recovery.ready_s[name] = time.time() - recovery.unix_s
        return recovery.victim in recovery.ready_s and self.is_whole()

    def settled(self) -> None:
        for name in WATCHED:
            self.recoveries[-1].ready_s.setdefault(name, 0.0)

    def conclude(self) -> None:
        """Read from the record when work began again."""
        self._board.close()
        episodes = episodes_of(self.run.paths.store)
        for recovery in self.recoveries:
            back_unix_s = recovery.unix_s + recovery.ready_s[recovery.victim]
            later = [one.began_unix_s for one in episodes if one.began_unix_s >= back_unix_s]
            recovery.work_s = min(later) - recovery.unix_s if later else None


def await_all(watched: Sequence[Watched], what: str, holds: Any) -> None:
    """Until it holds for every run. Raises TimeoutError."""
    give_up_s = time.monotonic() + BACK_DEADLINE_S
    waiting = list(watched)
    while waiting := [one for one in waiting if not holds(one)]:
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"not within {BACK_DEADLINE_S:g} s: {what} in {waiting[0].run.directory}")
        time.sleep(POLL_S)


def recover(watched: Sequence[Watched], kills: int) -> None:
    """Kill each victim so often, at the same moment in every run."""
    for _ in range(kills):
        for victim in VICTIMS:
            await_all(watched, "every actor is up", Watched.is_whole)
            time.sleep(SETTLE_S)
            await_all(watched, "every actor is up", Watched.is_whole)
            for one in watched:
                one.kill(victim)
            await_all(watched, f"{victim} and all others are back", Watched.watch)
            time.sleep(1.0)  # the supervisor has stopped by now what it restarts
            await_all(watched, f"{victim} and all others are back", Watched.watch)
            for one in watched:
                one.settled()


def table(names: Sequence[str], watched: Sequence[Watched]) -> str:
    """The median (worst) of every time, a column for each checkout and victim."""
    columns = [(name, one, victim) for victim in VICTIMS for name, one in zip(names, watched, strict=True)]
    heads = "".join(f"{f'{victim}, {name}':>24}" for name, _, victim in columns)
    lines = [f"seconds after the SIGKILL; median (worst){'':7}", f"{'':18}{heads}"]
    for actor in (*WATCHED, "first real work"):
        cells = [_cell([_time(one, actor) for one in run.recoveries if one.victim == victim])
                 for _, run, victim in columns]  # fmt: skip
        lines.append(f"{actor:18}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


def _time(recovery: Recovery, actor: str) -> float | None:
    return recovery.work_s if actor == "first real work" else recovery.ready_s[actor]


def _cell(times: Sequence[float | None]) -> str:
    known = [found for found in times if found is not None]
    if len(known) < len(times):
        return "never"
    if not any(known):
        return "goes on"
    return f"{statistics.median(known):.2f} ({max(known):.2f})"


def main() -> int:
    """Run, print, write; 1 when a victim does not come back."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=5, help="of each victim")
    parser.add_argument("--beside", type=Path, help="another checkout of this project")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    checkouts = {"here": runs.REPOSITORY}
    if options.beside:
        checkouts["beside"] = options.beside.resolve()
    with tempfile.TemporaryDirectory(prefix="recovery-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        with ExitStack() as stack:
            started = [
                stack.enter_context(
                    runs.training(CONFIG, Path(folder) / name / "run", OVERRIDES, repository=checkout)
                )
                for name, checkout in checkouts.items()
            ]
            await_training(started, START_DEADLINE_S)
            watched = [Watched(run) for run in started]
            with suppress(TimeoutError):
                recover(watched, options.kills)
            time.sleep(SETTLE_S)
        for one in watched:
            one.conclude()
    print(table(list(checkouts), watched), flush=True)
    found = {
        "command": " ".join(["python -m benchmarks.recovery", *sys.argv[1:]]),
        "machine": machine(),
        "recoveries": {
            name: [asdict(one) for one in run.recoveries]
            for name, run in zip(checkouts, watched, strict=True)
        },
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    recoveries = watched[0].recoveries
    is_done = len(recoveries) == options.kills * len(VICTIMS)
    return int(not is_done or any(one.work_s is None for one in recoveries))


if __name__ == "__main__":
    sys.exit(main())
