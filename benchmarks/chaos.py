"""A training run under faults of every kind, beside the same run without any: what is lost, how slow is it?

    python -m benchmarks.chaos                  # 30 minutes, at least 300 faults
    python -m benchmarks.chaos --minutes 3      # the short one; its throughput is told, not judged
    python -m benchmarks.chaos --minutes 2 --alone    # without the run beside it: half the work
    python -m benchmarks.chaos --keep runs/soak # keep both run directories

Two `dartrl train` with configs/chaos.toml start at the same moment on the same machine: real browsers behind
the latencies of virtual machines, which keep the processors unsaturated. One is left in peace. In the other

  * every environment has faults by a plan with a seed: crash 2 %, hang 1 %, lost and doubled action 1 %
    each, frozen frame 1 %, failed reset 2 %, bad evaluation 1 % of episodes (`environments.faults`)
  * every kind of actor is SIGKILLed and SIGSTOPped: environments, rollout actors, store, curator,
    weight_sync, trainer, and the supervisors of both pools
  * the disk of the run is filled for a while, and its database is locked for a while. The disk is a small
    tmpfs; where none may be mounted this is said, and only the lock remains

It prints what it does, and at the end a table; the same goes to OUT as JSON. Exit code 0 when the run under
faults finished, nothing was lost or doubled, no process was left behind, no attempt that met a fault became
a trajectory, everything planned was done, each fault has its recovery event and work after it
(`benchmarks.chaos_witness`), and (from 20 minutes on) every kind of injected fault happened, there were at
least ten faults a minute and the useful throughput was at least 85 % of that of the run beside it. Ctrl-C
drains both runs and removes everything.
"""

import argparse
import json
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import chaos_report as report
from benchmarks import chaos_witness as witness
from benchmarks import runs
from benchmarks.actors import BROKEN_OFF
from benchmarks.chaos_faults import JUDGED_FROM_MINUTES, Fault, Injector, plan, small_disk
from dart.config.config import load_config
from dart.config.injected_faults import InjectedFault
from dart.config.sections import FaultsSettings
from dart.environments.fault_injection import Injection, read_injections
from dart.store.errors import StoreError
from dart.store.reader import StoreReader

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIG = REPOSITORY / "configs" / "chaos.toml"
OUT = Path(__file__).parent / "out" / "chaos.json"

AROUND_MINUTES = 1.5
"""The runs last this much longer than asked for: to start, to come to rest, and for the last update."""

LATE_S = 60.0
"""What finds no moment when it is planned, because a victim is down, is done at most this much later."""

REST_S = 35.0
"""At the end of training nothing new is done to the run, so that the last victims can serve again."""

OVERTIME_S = 180.0
"""A run that has not ended this long after it should have hangs."""

START_DEADLINE_S = 180.0
POLL_S = 0.1


class NotStarted(RuntimeError):
    """A run did not come to train."""


def await_training(started: Sequence[runs.Run], deadline_s: float = START_DEADLINE_S) -> None:
    """Until each has committed its first update. Raises NotStarted, with its last words."""
    give_up_s = time.monotonic() + deadline_s
    waiting = list(started)
    while waiting:
        run = waiting[0]
        if has_trained(run):
            waiting.pop(0)
            continue
        if run.is_over or time.monotonic() > give_up_s:
            why = "ended" if run.is_over else f"made no update within {deadline_s:g} s"
            raise NotStarted(f"the run in {run.directory} {why}; its last words:\n{run.last_words()}")
        time.sleep(0.5)


def has_trained(run: runs.Run) -> bool:
    if not run.paths.board.exists():  # made after the record
        return False
    with StoreReader(run.paths.store) as reader:
        newest = reader.latest_version()
    return newest is not None and newest.version > 0


def torment(struck: runs.Run, calm: runs.Run | None, injector: Injector, seconds: float) -> None:
    """Carry the plan out, tell how it goes, and wait until the runs have ended, or hang."""
    running = (struck,) if calm is None else (struck, calm)
    began_s, told_s = time.monotonic(), 0.0
    now_s = 0.0
    while not all(run.is_over for run in running) and now_s < seconds + LATE_S + REST_S + OVERTIME_S:
        now_s = time.monotonic() - began_s
        if now_s <= seconds + LATE_S:
            injector.tick(now_s)
        else:
            injector.give_back()
            injector.watch()
        if now_s - told_s >= 30.0:
            told_s = now_s
            far = "; beside it ".join(told(run) for run in running)
            print(f"{now_s:7.1f} s  {len(injector.done)} faults so far, {far}", flush=True)
        time.sleep(POLL_S)
    injector.give_back()


def told(run: runs.Run) -> str:
    """How far a run is."""
    try:
        with StoreReader(run.paths.store) as reader:
            newest, totals = reader.latest_version(), reader.totals()
    except (StoreError, sqlite3.Error) as error:  # locked, or no room: what this program is about
        return f"unreadable now ({type(error).__name__})"
    return f"{0 if newest is None else newest.version} updates, {totals.trajectories} trajectories"


def chaos(
    minutes: float, seed: int, overrides: Mapping[str, Any], folder: Path, keep: Path | None, *, alone: bool
) -> dict[str, Any]:
    """The runs from start to end; everything found. Raises NotStarted."""
    told_both = {"run.minutes": minutes + AROUND_MINUTES + LATE_S / 60.0, "run.seed": seed, **overrides}
    told_struck = {**told_both, "environments.faults.enabled": True, "environments.faults.seed": seed}
    with ExitStack() as stack:
        has_disk = stack.enter_context(small_disk(folder / "struck"))
        stack.enter_context(small_disk(folder / "calm"))
        if keep is not None:
            stack.callback(shutil.copytree, folder, keep, dirs_exist_ok=True)
        if not has_disk:
            print(
                "no disk may be mounted here: the disk is not filled, only the database is locked", flush=True
            )
        struck = stack.enter_context(runs.training(CONFIG, folder / "struck" / "run", told_struck))
        calm = None
        if not alone:
            calm = stack.enter_context(runs.training(CONFIG, folder / "calm" / "run", told_both))
        started = {"under faults": struck} | ({} if calm is None else {"beside": calm})
        await_training(list(started.values()))
        begins_unix_s = time.time()
        seconds = training_ends_unix_s(struck) - REST_S - LATE_S - begins_unix_s
        injector = Injector(struck, plan(seconds / 60.0, seed, has_small_disk=has_disk), seed)
        torment(struck, calm, injector, seconds)
        hangs = {name: run.last_words(2) for name, run in started.items() if not run.is_over}
        found = outcome_of(struck, calm, injector.done, (begins_unix_s, begins_unix_s + seconds))
        return found | {"hangs": hangs, "never_due": [asdict(one) for one in injector.left]}


def training_ends_unix_s(run: runs.Run) -> float:
    """When a run stops to train, as it says itself."""
    return float(json.loads((run.directory / "session.json").read_text())["training_ends_unix_s"])


def outcome_of(
    struck: runs.Run, calm: runs.Run | None, faults: Sequence[Fault], window: tuple[float, float]
) -> dict[str, Any]:
    """What the runs show when they have ended."""
    left = struck.left_behind()
    store = struck.paths.store
    injections = read_injections(struck.directory / "faults")
    useful = report.useful_actions(store, *window)
    beside = None if calm is None else report.useful_actions(calm.paths.store, *window)
    # Environments have faults to the very end; whoever met one in the last seconds has nothing left to serve.
    in_time = [injection for injection in injections if injection.unix_s <= window[1]]
    episodes, commits = report.episodes_of(store), runs.commit_times(store)
    times = report.recoveries(faults, in_time, episodes, commits)
    healed = witness.healings(faults, in_time, witness.evidence_of(struck.paths), episodes, commits)
    config = load_config(struck.paths.config)
    return {
        "exit_code": struck.process.returncode,
        "last_words": struck.last_words() if struck.process.returncode else "",
        "is_alone": calm is None,
        "exit_code_beside": None if calm is None else calm.process.returncode,
        "minutes": (window[1] - window[0]) / 60.0,
        "faults": len(faults) + len(injections),
        "faults_by_kind": dict(Counter(kind for kind, found in times.items() for _ in found)),
        "audit": runs.audit(store, config.curation.staleness),
        "left_behind": {str(pid): command for pid, command in left.items()},
        "faulted_and_stored": report.faulted_and_stored(store, injections),
        "useful_actions": useful,
        "useful_actions_beside": beside,
        "throughput_ratio": useful / beside if beside else None,
        "recovery_s": times,
        "healings": [asdict(one) for one in healed],
        "unhealed": [one.missing for one in healed if not one.is_healed],
        "witness": witness.witness_lines(healed),
        "never_injected": never_injected(config.environments.faults, injections),
        "signals": [asdict(fault) for fault in faults],
    }


def never_injected(faults: FaultsSettings, injections: Sequence[Injection]) -> list[str]:
    """The kinds of fault that the configuration has and that did not happen."""
    happened = {injection.kind for injection in injections}
    return [kind.value for kind in InjectedFault if getattr(faults, kind.value) and kind not in happened]


def as_pair(override: str) -> tuple[str, Any]:
    """`key=value`; the value is TOML, and a bare word is a string."""
    key, _, value = override.partition("=")
    with suppress(tomllib.TOMLDecodeError):
        return key, tomllib.loads(f"value = {value}")["value"]
    return key, value


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Ends with exit code 2 and the reason when it makes no sense."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="about how long faults are injected")
    parser.add_argument("--alone", action="store_true", help="no run beside it, without faults")
    parser.add_argument("--seed", type=int, default=0, help="of the runs, the faults and their victims")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE", help="for both runs"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the run directories here")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.minutes < 1:
        parser.error(f"--minutes must be at least 1, got {options.minutes:g}")
    if options.alone and options.minutes >= JUDGED_FROM_MINUTES:
        parser.error(
            f"--alone is for less than {JUDGED_FROM_MINUTES:g} minutes: "
            f"a longer run is judged by the one beside it, got --minutes {options.minutes:g}"
        )
    for override in options.overrides:
        if "=" not in override:
            parser.error(f"--set expects KEY=VALUE, got {override!r}")
    return options


def main() -> int:
    """Run, print, write; 1 when something is broken."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    overrides = dict(as_pair(override) for override in options.overrides)
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp", ignore_cleanup_errors=True) as name:
        try:
            outcome = chaos(
                options.minutes, options.seed, overrides, Path(name), options.keep, alone=options.alone
            )
        except KeyboardInterrupt:
            print("broken off; what ran was drained", file=sys.stderr)
            return BROKEN_OFF
        except NotStarted as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    judged = report.verdicts(outcome, options.minutes)
    print(report.table(outcome, judged))
    return report.conclude("chaos", options.seed, outcome, judged, options.out)


if __name__ == "__main__":
    sys.exit(main())
