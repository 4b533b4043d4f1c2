"""A run that is ended again and again in the middle of training, and goes on: is anything lost or doubled?

    python -m benchmarks.stops_live            # configs/laptop.toml, real browsers: five ends of each kind
    python -m benchmarks.stops_live --quick    # simulated environments, engine and trainer: one of each

Each time `dartrl up` goes on with the same run directory, and at a random moment of its training

  * SIGTERM drains it: it has to end with 0, or
  * SIGKILL hits every process of it at once, browsers included.

After each end no process may be left, what was in the record before is in it unchanged, and the record agrees
with itself and with its files (`dartrl doctor --data --full`): every rollout that was ever issued has one
fate, and the updates say that they were given as many trajectories as are trained. Printed is what the record
held before each end, after it, and what the next start went on from. Exit code 1 when anything does not hold.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.actors import BROKEN_OFF, machine
from benchmarks.chaos import as_pair
from benchmarks.live_checks import Truth, dartrl
from benchmarks.live_commands import LAPTOP, SIMULATED
from benchmarks.longevity import processes_of

OUT = Path(__file__).parent / "out" / "stops_live.json"

OVERRIDES: Mapping[str, Any] = {
    "run.minutes": 0.0,
    "training.updates": 0,
    "evaluation.before": False,
    "evaluation.after": False,
    "web.port": 0,
}
TERM, KILL = "SIGTERM", "SIGKILL of all"

ROUNDS = 5
START_DEADLINE_S = 300.0
END_DEADLINE_S = 90.0
PLAYED = 3
"""Trajectories that a start has to add before it is ended: it went on."""

SOONEST_S, LATEST_S = 0.0, 20.0
"""After these, the moment is drawn."""

KEPT = "SELECT rollout_id, reward, num_steps, outcome, stored_unix_s FROM trajectories"
MADE = "SELECT version, metrics, created_unix_s FROM versions"
FATES = "SELECT state, count(*) FROM rollouts GROUP BY state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the record holds at one moment."""

    trajectories: int
    version: int
    issued: int
    fates: Mapping[str, int]

    def __str__(self) -> str:
        fates = " + ".join(f"{state} {count}" for state, count in sorted(self.fates.items()))
        return f"{self.trajectories} trajectories, version {self.version}, issued {self.issued} = {fates}"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of the run."""

    how: str
    after_s: float
    """Since its start."""
    went_on_from: Held
    before: Held
    """Just before the signal: while everybody works, so it may have more a moment later."""
    after: Held
    exit_code: int
    ended_in_s: float
    problems: Sequence[str]


def held(truth: Truth) -> Held:
    """By SQLite itself, in one transaction for each figure."""
    issued = truth.one("SELECT value FROM counters WHERE name = 'issued'")
    counts = truth.counts()
    return Held(
        trajectories=counts["trajectories"],
        version=counts["version"],
        issued=issued,
        fates=dict(truth.rows(FATES)),
    )


def await_played(run: runs.Run, truth: Truth, more_than: int) -> Held:
    """Until a start has added to the record; what it went on from. Raises RuntimeError."""
    give_up_s, began = time.monotonic() + START_DEADLINE_S, None
    while True:
        if run.is_over or time.monotonic() > give_up_s:
            raise RuntimeError(f"the run did not go on; its last words:\n{run.last_words()}")
        if run.paths.control.exists() and (truth.one("SELECT max(version) FROM versions") is not None):
            began = began or held(truth)
            if truth.counts()["trajectories"] >= more_than + PLAYED:
                return began
        time.sleep(0.2)


def end(run: runs.Run, how: str) -> tuple[int, float]:
    """End it the one way or the other; its exit code, and how long that took."""
    began_s = time.monotonic()
    if how == TERM:
        run.process.send_signal(signal.SIGTERM)
    else:
        for pid in processes_of(run.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return run.process.wait(END_DEADLINE_S), time.monotonic() - began_s


def live_once(config: Path, directory: Path, overrides: Mapping[str, Any], how: str, wait_s: float) -> End:
    """One start of the run and its end, judged."""
    truth = Truth(runs.RunPaths(directory), 0)
    already = held(truth).trajectories if truth.paths.store.exists() else 0
    with runs.training(config, directory, overrides, verb="up") as run:
        began_s = time.monotonic()
        went_on_from = await_played(run, truth, already)
        time.sleep(wait_s)
        after_s = time.monotonic() - began_s
        kept, made, before = set(truth.rows(KEPT)), set(truth.rows(MADE)), held(truth)
        code, ended_in_s = end(run, how)
        problems = [f"left behind: {left}"] if (left := run.left_behind()) else []
    expected = 0 if how == TERM else -signal.SIGKILL
    if code != expected:
        problems.append(f"exit code {code}, expected {expected}: {run.last_words()}")
    if lost := kept - set(truth.rows(KEPT)):
        problems.append(f"of the trajectories before, {len(lost)} are gone or changed: {sorted(lost)[:3]}")
    if lost := made - set(truth.rows(MADE)):
        problems.append(f"of the versions before, {len(lost)} are gone or changed: {sorted(lost)[:3]}")
    return End(
        how=how,
        after_s=after_s,
        went_on_from=went_on_from,
        before=before,
        after=held(truth),
        exit_code=code,
        ended_in_s=ended_in_s,
        problems=[*problems, *unsound(truth)],
    )


def unsound(truth: Truth) -> Iterator[str]:
    """What is wrong with the data of a run that has ended."""
    checked = dartrl("doctor", "--data", "--full", "-o", "json", "--run-dir", truth.paths.root)
    if checked.code != 0:
        yield f"doctor --data ends with {checked.code}: {(checked.out + checked.err).strip()[-500:]}"
    books = runs.audit(truth.paths.store)
    for name in ("lost", "doubled"):
        if books[name]:
            yield f"{books[name]} rollouts are {name}: {books}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="simulated parts, one end of each kind")
    parser.add_argument("--rounds", type=int, help=f"ends of each kind; default {ROUNDS}, 1 with --quick")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--config", type=Path, default=LAPTOP)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    overrides = {**OVERRIDES, **dict(as_pair(one) for one in options.overrides)}
    draw = random.Random(options.seed)
    hows = [how for _ in range(options.rounds or (1 if options.quick else ROUNDS)) for how in (TERM, KILL)]
    ends: list[End] = []
    with tempfile.TemporaryDirectory(prefix="stops-", dir="/tmp", ignore_cleanup_errors=True) as name:
        config = options.config
        if options.quick:
            config = Path(name) / "simulation.toml"
            config.write_text(SIMULATED)
        try:
            for how in [*hows, TERM]:  # the last one shows that the run still goes on
                wait_s = draw.uniform(SOONEST_S, 1.0 if options.quick else LATEST_S)
                ends.append(live_once(config, Path(name) / "run", overrides, how, wait_s))
                print("\n".join(told(ends[-1])), flush=True)
        except KeyboardInterrupt:
            print("broken off; the run was drained", file=sys.stderr)
            return BROKEN_OFF
    return conclude(ends, options.out)


def told(one: End) -> Iterator[str]:
    """One end for people."""
    yield f"{one.how} after {one.after_s:.1f} s, ended in {one.ended_in_s:.1f} s with {one.exit_code}"
    yield f"    went on from  {one.went_on_from}"
    yield f"    before        {one.before}"
    yield f"    after         {one.after}"
    yield f"    {'; '.join(one.problems) or 'nothing lost, nothing doubled, nobody left behind'}"


def conclude(ends: Sequence[End], out: Path) -> int:
    broken = [one for one in ends if one.problems]
    print(f"{len(ends)} ends, {len(broken)} of them with something lost, doubled or left behind")
    whole = {
        "command": " ".join(["python -m benchmarks.stops_live", *sys.argv[1:]]),
        "machine": machine(),
        "ends": [asdict(one) for one in ends],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"written to {out}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
