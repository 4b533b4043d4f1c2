"""Every command of `dartrl` used against a run that goes on: is it true what it says, and is it in time?

    python -m benchmarks.live_commands             # configs/laptop.toml, real browsers, about five minutes
    python -m benchmarks.live_commands --quick     # simulated environments, engine and trainer; a minute

One `dartrl up` trains. First every command of the program is asked once (which there are is asked of the
program itself: one that nobody here knows how to ask is an error), and its answer is compared with the record
as SQLite has it and with the process table.

Then one environment is suspended (SIGSTOP) and another one killed, so that it waits for its restart:
`status`, `tree` and `top` are asked again and again, and must say both, in time. Then every actor is
suspended at once, and asked for the same way. At the end `dartrl down` ends the run, and no process of it may
be left.

In time is: less than half a second of a processor, and not more than twice of what the same command took
while all were well; the wait is told beside it. Exit code 1 when anything is not true or not in time; with
`--quick` what is not in time is printed, not judged.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.actors import BROKEN_OFF, machine
from benchmarks.chaos import as_pair
from benchmarks.command_line import GOAL_S
from benchmarks.live_checks import (
    APART,
    CHANGING,
    DOCTOR_OF_DATA,
    LOOKING,
    Asked,
    Ran,
    Truth,
    ask,
    ask_web,
    dartrl,
    forgotten,
)

REPOSITORY = Path(__file__).resolve().parent.parent
LAPTOP = REPOSITORY / "configs" / "laptop.toml"
OUT = Path(__file__).parent / "out" / "live_commands.json"

SIMULATED = """
tasks.train = ["simulated/0", "simulated/1"]
environments = { kind = "simulated", count = 4, latency = { enabled = true, scale = 0.005 } }
rollout = { engine = "simulated", count = 1 }
simulation = { generate_base_s = 0.01, generate_each_s = 0.001, load_s = 0.05, update_base_s = 0.05 }
curation = { rollouts_per_group = 4, step_cap = 30 }
training = { learner = "simulated", groups_per_update = 1 }
"""
"""What `--quick` runs: everything is real but the browsers, the engine's answers and the updates."""

OVERRIDES: Mapping[str, Any] = {
    "run.minutes": 60.0,
    "training.updates": 0,
    "evaluation.before": False,
    "evaluation.after": False,
    "web.port": 0,
    # A restart that can be looked at, and a suspension that is not ended by a supervisor meanwhile.
    "supervision.environment_pool.backoff.initial_s": 30.0,
    "supervision.environment_pool.backoff.max_s": 30.0,
    "supervision.environment_pool.hang_deadline_s": 120.0,
}

START_DEADLINE_S = 300.0
LOOKS = 5
"""How often each command is asked while somebody hangs, and before."""
RATIO = 2.0
"""At most, of the processor time beside the same command while all were well."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A command asked several times while somebody hangs, beside the same while all were well."""

    name: str
    processor_s: float
    wall_s: float
    calm_processor_s: float
    calm_wall_s: float

    @property
    def is_in_time(self) -> bool:
        return self.processor_s < GOAL_S and self.processor_s <= RATIO * self.calm_processor_s


def await_training(run: runs.Run) -> Truth:
    """Until the first update and a few episodes are in the record. Raises RuntimeError."""
    give_up_s = time.monotonic() + START_DEADLINE_S
    truth = Truth(run.paths, run.process.pid)
    while True:
        if run.is_over or time.monotonic() > give_up_s:
            raise RuntimeError(f"the run did not come to train; its last words:\n{run.last_words()}")
        if run.paths.control.exists() and truth.counts()["version"] and truth.counts()["trajectories"] > 8:
            return truth
        time.sleep(0.5)


# ---- everybody well ----


def ask_everything(truth: Truth, filling: Mapping[str, str]) -> Iterator[Asked]:
    """Every command once, those that only look first."""
    for name, case in (*LOOKING.items(), *CHANGING.items()):
        yield ask(name, case, truth, filling)
        if name == "actors stop":
            dartrl("actors", "restart", "env-001", "--run-dir", truth.paths.root, "--wait", "80")
    yield ask("doctor --data", DOCTOR_OF_DATA, truth, filling)
    yield ask_web(truth)
    for name in APART:
        ran = dartrl(*name.split(), "--help")
        yield Asked(name, ran, [] if ran.code == 0 else [f"exit code {ran.code}"])


def calm_costs(truth: Truth, looks: int) -> dict[str, Ran]:
    """Those that are asked again, each by the median of its processor times."""
    return {name: _median([look(name, truth) for _ in range(looks)]) for name in AGAIN}


AGAIN: Mapping[str, tuple[str, ...]] = {
    "status": ("status", "-o", "json"),
    "tree": ("tree", "-o", "json"),
    "tree, as text": ("tree",),
    "top": ("top",),
}


def look(name: str, truth: Truth) -> Ran:
    return dartrl(*AGAIN[name], "--run-dir", truth.paths.root)


def _median(found: Sequence[Ran]) -> Ran:
    return sorted(found, key=lambda ran: ran.processor_s)[len(found) // 2]


# ---- somebody not ----


@contextmanager
def suspended(pids: Sequence[int]) -> Iterator[None]:
    """SIGSTOP to processes while the block lasts."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def pids_of(truth: Truth) -> dict[str, int]:
    """Actors that run now, from `dartrl tree`; a process table knows no names."""
    return {one["name"]: one["pid"] for one in look("tree", truth).json() if one["state"] == "running"}


def look_at_two(truth: Truth, calm: Mapping[str, Ran], looks: int) -> tuple[list[Timed], list[str]]:
    """One environment suspended, another one killed: asked several times; what was in time, what not true."""
    pids = pids_of(truth)
    frozen, killed = pids["env-000"], pids["env-001"]
    with suspended([frozen]):
        os.kill(killed, signal.SIGKILL)
        _await_true(lambda: killed not in truth.below(), "the killed environment is gone")
        _await_true(lambda: _state_of("env-001", truth) == "backoff", "env-001 waits for its restart")
        found = {name: [look(name, truth) for _ in range(looks)] for name in AGAIN}
        is_stopped = truth.below()[frozen].status() == "stopped"
    problems = [] if is_stopped else ["the suspended environment was not: this measured nothing"]
    for name, answers in found.items():
        problems += [f"{name}: {problem}" for ran in answers for problem in lies_about_two(name, ran)]
    return [timed(name, answers, calm[name]) for name, answers in found.items()], sorted(set(problems))


def lies_about_two(name: str, ran: Ran) -> Iterator[str]:
    """What is not true in an answer while env-000 is suspended and env-001 waits for its restart."""
    if name in ("tree, as text", "top"):
        lines = {
            word: text for text in ran.out.splitlines() for word in ("env-000", "env-001") if word in text
        }
        if "suspended" not in lines.get("env-000", ""):
            yield f"it does not say that env-000 is suspended: {lines.get('env-000')!r}"
        if "backoff" not in lines.get("env-001", ""):
            yield f"it does not say that env-001 waits: {lines.get('env-001')!r}"
        return
    rows = {one["name"]: one for one in (ran.json()["actors"] if name == "status" else ran.json())}
    for actor, state, process in (("env-000", "running", "suspended"), ("env-001", "backoff", "gone")):
        told = (rows[actor]["state"], rows[actor]["process"])
        if told != (state, process):
            yield f"{actor} is told as {told}, and is {(state, process)}"
    if "SIGKILL" not in rows["env-001"]["last_reason"]:
        yield f"env-001 ended by SIGKILL, told is {rows['env-001']['last_reason']!r}"
    if name == "status" and (ran.code, ran.json()["healthy"]) != (1, False):
        yield f"the run is told as healthy (exit code {ran.code})"


def look_at_all(truth: Truth, calm: Mapping[str, Ran], looks: int) -> tuple[list[Timed], list[str]]:
    """Every actor suspended at once: nobody is left who could be asked."""
    pids = pids_of(truth)
    with suspended(list(pids.values())):
        found = {name: [look(name, truth) for _ in range(looks)] for name in AGAIN}
    problems = []
    for ran in found["tree"]:
        told = {one["name"] for one in ran.json() if one["process"] == "suspended"}
        if missing := pids.keys() - told:
            problems.append(f"tree: not told as suspended: {sorted(missing)}")
    problems += [f"status: exit code {ran.code}, expected 1" for ran in found["status"] if ran.code != 1]
    rows = [timed(f"{name}, all suspended", answers, calm[name]) for name, answers in found.items()]
    return rows, sorted(set(problems))


def timed(name: str, looks: Sequence[Ran], calm: Ran) -> Timed:
    return Timed(
        name=name,
        processor_s=statistics.median(ran.processor_s for ran in looks),
        wall_s=statistics.median(ran.wall_s for ran in looks),
        calm_processor_s=calm.processor_s,
        calm_wall_s=calm.wall_s,
    )


def _state_of(actor: str, truth: Truth) -> str:
    return next((str(one["state"]) for one in look("tree", truth).json() if one["name"] == actor), "")


def _await_true(holds: Any, what: str) -> None:
    give_up_s = time.monotonic() + 30.0
    while not holds():
        if time.monotonic() > give_up_s:
            raise RuntimeError(f"after 30 s it is not so that {what}")
        time.sleep(0.05)


# ---- the end ----


def ask_down(truth: Truth, run: runs.Run) -> Asked:
    """`dartrl down`: the run ends with 0, everything it had is gone, and `status` says so."""
    ran = dartrl("down", "--run-dir", truth.paths.root)
    problems = [] if ran.code == 0 else [f"exit code {ran.code}: {ran.err}"]
    code = run.process.wait(60.0)
    if code != 0:
        problems.append(f"the run ended with {code}: {run.last_words()}")
    if left := run.left_behind():
        problems.append(f"processes were left: {left}")
    after = dartrl("status", "--run-dir", truth.paths.root)
    if after.code != 3:
        problems.append(f"status ends with {after.code}, expected 3")
    return Asked("down", ran, problems)


# ---- the program ----


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="simulated environments, engine and trainer")
    parser.add_argument("--config", type=Path, default=LAPTOP)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--looks", type=int, default=LOOKS, help="at who hangs, by each command")
    options = parser.parse_args(arguments)
    if unknown := forgotten():
        print(f"error: nobody here asks {', '.join(unknown)}; say how in benchmarks/live_checks.py")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    overrides = {**OVERRIDES, **dict(as_pair(one) for one in options.overrides)}
    with tempfile.TemporaryDirectory(prefix="live-", dir="/tmp", ignore_cleanup_errors=True) as name:
        config = options.config
        if options.quick:
            config = Path(name) / "simulation.toml"
            config.write_text(SIMULATED)
        try:
            found = watched(config, Path(name), overrides, options.looks)
        except KeyboardInterrupt:
            print("broken off; the run was drained", file=sys.stderr)
            return BROKEN_OFF
    return conclude(*found, options.out, judges_time=not options.quick)


def watched(
    config: Path, folder: Path, overrides: Mapping[str, Any], looks: int
) -> tuple[list[Asked], list[Timed], list[str]]:
    """The whole of it: every command, those that were timed, and what was not true of who hung."""
    with runs.training(config, folder / "run", overrides, verb="up") as run:
        truth = await_training(run)
        filling = {
            "run": str(run.directory),
            "config": str(config),
            "out": str(folder),
            "task": truth.one("SELECT task_id FROM trajectories LIMIT 1"),
            "rollout": str(truth.one("SELECT max(rollout_id) FROM trajectories")),
            "more": str(1 + len([name for name in pids_of(truth) if name.startswith("env-")])),
        }
        asked = []
        for one in ask_everything(truth, filling):
            asked.append(one)
            print(line(one), flush=True)
        calm = calm_costs(truth, looks)
        two, problems = look_at_two(truth, calm, looks)
        every, more = look_at_all(truth, calm, min(looks, 2))
        asked.append(ask_down(truth, run))
        print(line(asked[-1]), flush=True)
    return asked, [*two, *every], [*problems, *more]


def line(asked: Asked) -> str:
    """One command for people."""
    verdict = "; ".join(asked.problems) if asked.problems else "true"
    ran = asked.ran
    return f"{asked.name:22} {ran.code:3}  {ran.processor_s:6.3f} s  {ran.wall_s:7.3f} s  {verdict}"


def conclude(
    asked: Sequence[Asked], slow: Sequence[Timed], problems: Sequence[str], out: Path, *, judges_time: bool
) -> int:
    """Print, write, judge."""
    print(f"\n{'while somebody hangs':28}{'processor':>10}{'calm':>8}{'ratio':>7}{'wall':>9}{'calm':>8}")
    for one in slow:
        print(
            f"{one.name:28}{one.processor_s:10.3f}{one.calm_processor_s:8.3f}"
            f"{one.processor_s / one.calm_processor_s:7.2f}{one.wall_s:9.3f}{one.calm_wall_s:8.3f}"
            f"  {'in time' if one.is_in_time else 'LATE'}"
        )
    late = [one.name for one in slow if not one.is_in_time]
    late += [
        one.name
        for one in asked
        if one.name in LOOKING and LOOKING[one.name].is_quick and one.ran.processor_s >= GOAL_S
    ]
    false = [f"{one.name}: {problem}" for one in asked for problem in one.problems] + list(problems)
    print(f"\n{len(asked)} commands asked; not true: {false or 'nothing'}; not in time: {late or 'none'}")
    whole = {
        "command": " ".join(["python -m benchmarks.live_commands", *sys.argv[1:]]),
        "machine": machine(),
        "commands": [
            {
                "name": one.name,
                "code": one.ran.code,
                "processor_s": one.ran.processor_s,
                "wall_s": one.ran.wall_s,
                "problems": one.problems,
            }
            for one in asked
        ],
        "while_somebody_hangs": [asdict(one) | {"is_in_time": one.is_in_time} for one in slow],
        "not_true": false,
        "not_in_time": late,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"written to {out}")
    return int(bool(false or (late and judges_time)))


if __name__ == "__main__":
    sys.exit(main())
