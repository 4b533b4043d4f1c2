"""Local desktops with faults at the rates of the field, beside as many without: what gets through?

    python -m benchmarks.desktops                            # 8 desktops each, 30 minutes
    python -m benchmarks.desktops --minutes 3 --desktops 3   # the short one

Two `dartrl train` with configs/desktop.toml start at the same moment on the same machine: real applications
on desktops in sandboxes, played by scripts that give up a share of the episodes. One is left in peace. In the
other every kind of fault is injected at the rates of the file, and once a minute an environment's actor is
killed with SIGKILL or stopped with SIGSTOP.

What has to hold is found out from the record alone, by what the scripts make certain:

  * no failure as reward: an episode whose script was played is worth 1, one that was given up is worth 0. Any
    other reward was made by the infrastructure
  * no dirty start: all episodes of one task and seed begin with the same screenshot, to the byte
  * no attempt in which a fault struck became a trajectory; no rollout was lost or doubled
  * no orphan: when both runs have ended, no sandbox and no process of one is left

Both have the latencies of virtual machines added (resets of 10 s and steps of 2 s in the median), so that the
two fit beside each other without one taking processor time from the other.

It prints a table, with the throughput beside that of the run in peace; the same goes to OUT as JSON. A fault
costs mostly the episode it strikes, so the throughput follows from the rates; it is told, not judged.
Exit code 0 when all of the above holds and both runs finished.
"""

import argparse
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import psutil

from actors.board import ActorState, Board
from benchmarks import runs
from benchmarks.actors import BROKEN_OFF
from benchmarks.chaos_report import Verdict, conclude, faulted_and_stored, verdict_lines
from dart.environments.desktop.requirements import missing_for_desktops
from dart.environments.fault_injection import read_injections
from dart.store.reader import StoreReader

CONFIG = runs.REPOSITORY / "configs" / "desktop.toml"
OUT = Path(__file__).parent / "out" / "desktops.json"

KILL_EVERY_S = 60.0
LATENCY_SCALE = 1.0
OVERTIME_S = 180.0
"""A run that has not ended this long after it should have hangs."""

EPISODES = "SELECT task_id, seed, reward, steps_sha256 FROM trajectories"


def measure(desktops: int, minutes: float, seed: int, folder: Path) -> dict[str, Any]:
    """Both runs from start to end, and everything found."""
    told = {
        "run.minutes": minutes,
        "run.seed": seed,
        "environments.count": desktops,
        "environments.latency.enabled": True,
        "environments.latency.scale": LATENCY_SCALE,
    }
    struck_too = {**told, "environments.faults.enabled": True, "environments.faults.seed": seed}
    with ExitStack() as stack:
        struck = stack.enter_context(runs.training(CONFIG, folder / "struck", struck_too))
        calm = stack.enter_context(runs.training(CONFIG, folder / "calm", told))
        killed = torment(struck, calm, 60.0 * minutes, seed)
        hangs = [run.directory.name for run in (struck, calm) if not run.is_over]
        if hangs:
            return {
                "hangs": hangs,
                "last_words": {run.directory.name: run.last_words() for run in (struck, calm)},
            }
        left = struck.left_behind() | calm.left_behind()
        orphans = [*left_over(folder), *(f"{pid} {command}" for pid, command in left.items())]
        return {
            "hangs": [],
            "minutes": minutes,
            "desktops": desktops,
            "killed": killed,
            "orphans": orphans,
            "faults": dict(Counter(one.kind.value for one in read_injections(struck.directory / "faults"))),
            "faulted_and_stored": faulted_and_stored(
                struck.paths.store, read_injections(struck.directory / "faults")
            ),
            "struck": figures(struck),
            "calm": figures(calm),
        }


def torment(struck: runs.Run, calm: runs.Run, seconds: float, seed: int) -> dict[str, int]:
    """Signals to environments of one run until its time is nearly over; then wait until both have ended."""
    draw, done = random.Random(f"desktops/{seed}"), Counter[str]()
    began_s, next_s = time.monotonic(), KILL_EVERY_S / 2
    while not (struck.is_over and calm.is_over):
        now_s = time.monotonic() - began_s
        if now_s > seconds + OVERTIME_S:
            break
        if next_s <= now_s < 0.9 * seconds:
            next_s = now_s + KILL_EVERY_S
            number = draw.choice((signal.SIGKILL, signal.SIGSTOP))
            if signal_environment(struck, number, draw):
                done[number.name] += 1
        time.sleep(0.2)
    return dict(done)


def signal_environment(run: runs.Run, number: signal.Signals, draw: random.Random) -> bool:
    """To one of the actors that run."""
    if not run.paths.board.exists():
        return False
    rows = Board(run.paths.board).rows()
    victims = [row.pid for row in rows if row.name.startswith("env-") and row.state is ActorState.RUNNING]
    if not victims:
        return False
    with suppress(ProcessLookupError):
        os.kill(draw.choice(victims), number)
        return True
    return False


def left_over(folder: Path, patience_s: float = 5.0) -> list[str]:
    """Sandboxes of both runs that live on. The first process of each is bubblewrap, whose command line names
    the folder of its run; the kernel ends all others together with it."""
    give_up_s = time.monotonic() + patience_s
    while (left := _sandboxes(folder)) and time.monotonic() < give_up_s:
        time.sleep(0.2)
    return left


def _sandboxes(folder: Path) -> list[str]:
    processes = psutil.process_iter(["name", "cmdline"])
    return [
        f"{process.pid} {process.info['name']}"
        for process in processes
        if process.info["name"] == "bwrap" and str(folder) in " ".join(process.info["cmdline"] or ())
    ]


def figures(run: runs.Run) -> dict[str, Any]:
    """What the record of one run says."""
    with (
        closing(sqlite3.connect(f"file:{run.paths.store}?mode=ro", uri=True)) as connection,
        StoreReader(run.paths.store) as reader,
    ):
        episodes = [
            (task_id, seed, reward, first.answer, first.screenshot_sha256)
            for task_id, seed, reward, sha256 in connection.execute(EPISODES)
            for first in reader.steps(sha256)[:1]
        ]
        (steps,) = connection.execute("SELECT coalesce(sum(num_steps), 0) FROM trajectories").fetchone()
        spent = dict(connection.execute("SELECT fault_kind, count(*) FROM attempts GROUP BY fault_kind"))
    return {
        "exit_code": run.process.returncode,
        "last_words": run.last_words() if run.process.returncode else "",
        "audit": runs.audit(run.paths.store),
        "episodes": len(episodes),
        "steps": steps,
        "attempts_spent": spent,
        "wrong_rewards": wrong_rewards(episodes),
        "dirty_starts": dirty_starts(episodes),
    }


Episode = tuple[str, int, float, str, str]


def wrong_rewards(episodes: Sequence[Episode]) -> list[str]:
    """Episodes whose reward is not what their script makes it."""
    return [
        f"{task_id} seed {seed}: {reward:g}"
        for task_id, seed, reward, first_answer, _ in episodes
        if reward != float(first_answer != "finished()")
    ]


def dirty_starts(episodes: Sequence[Episode]) -> list[str]:
    """Tasks and seeds whose episodes did not all begin with the same screenshot."""
    screens: dict[tuple[str, int], Counter[str]] = {}
    for task_id, seed, _, _, screenshot in episodes:
        screens.setdefault((task_id, seed), Counter())[screenshot] += 1
    return [f"{task_id} seed {seed}" for (task_id, seed), seen in screens.items() if len(seen) > 1]


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    """Everything that must hold."""
    if found["hangs"]:
        return [Verdict(what="both runs finish", found=f"hangs: {', '.join(found['hangs'])}", is_kept=False)]
    struck, calm = found["struck"], found["calm"]
    judged = []
    for name, run in (("with faults", struck), ("beside it", calm)):
        books = run["audit"]
        wrong = [f"lost {books['lost']}, doubled {books['doubled']}", *books["violations"]]
        judged += [
            _none(f"the run {name} ends with exit code", [run["exit_code"]] if run["exit_code"] else []),
            _none(
                f"rollouts lost or doubled {name}", wrong if books["lost"] or books["doubled"] else wrong[1:]
            ),
            _none(f"rewards no script makes, {name}", run["wrong_rewards"]),
            _none(f"dirty starts {name}", run["dirty_starts"]),
        ]
    judged += [
        _none("faulted attempts stored", found["faulted_and_stored"]),
        _none("processes left behind", found["orphans"]),
    ]
    return judged


def _none(what: str, found: Sequence[Any]) -> Verdict:
    return Verdict(what=f"{what}: 0", found="; ".join(map(str, found[:5])) or "0", is_kept=not found)


def ratio_of(found: Mapping[str, Any]) -> float:
    """Stored steps of the run with faults by those of the other."""
    return found["struck"]["steps"] / max(1, found["calm"]["steps"])


def table(found: Mapping[str, Any], judged: Sequence[Verdict]) -> str:
    """For people."""
    lines = []
    if not found["hangs"]:
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(found["faults"].items()))
        lines += [
            f"{found['desktops']} desktops each, {found['minutes']:g} minutes; injected: {faults}; "
            f"signals to actors: {found['killed']}",
            f"{'':14}{'episodes':>10}{'steps':>8}{'steps/min':>11}{'attempts spent':>16}",
        ]
        for name, run in (("with faults", found["struck"]), ("beside it", found["calm"])):
            rate, spent = run["steps"] / found["minutes"], sum(run["attempts_spent"].values())
            lines.append(f"{name:14}{run['episodes']:>10}{run['steps']:>8}{rate:>11.1f}{spent:>16}")
        lines.append(f"throughput beside the run without faults: {ratio_of(found):.1%}")
    return "\n".join([*lines, *verdict_lines(judged)])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--desktops", type=int, default=8, help="in each of the two runs")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


def main() -> int:
    """Run, print, write; 1 when something is broken."""
    options = parse()
    if missing := missing_for_desktops():
        print(f"error: not installed (make desktop): {', '.join(missing)}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with tempfile.TemporaryDirectory(prefix="desktops-", dir="/tmp", ignore_cleanup_errors=True) as name:
        try:
            found = measure(options.desktops, options.minutes, options.seed, Path(name))
        except KeyboardInterrupt:
            print("broken off; both runs were drained", file=sys.stderr)
            return BROKEN_OFF
    judged = verdicts(found)
    print(table(found, judged))
    return conclude("desktops", options.seed, found, judged, options.out)


if __name__ == "__main__":
    sys.exit(main())
