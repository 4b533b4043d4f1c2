"""The alarms for learning: which faults they find, after how many updates, and how often they are false.

    python -m benchmarks.alarms                             # every fault after healthy updates, three seeds
    python -m benchmarks.alarms --only evaluator_zero       # one of them
    python -m benchmarks.alarms --seeds 0 --faults none --records runs/laptop    # recorded runs only

Each seed trains a small policy without a fault (`benchmarks.alarm_loop`: the real policy, engine, learner and
record in one process). Then the run is copied for each fault, the copy goes on with it, and the alarm monitor
begins anew on the record, as after a restart of the curator. A fault is found when one of the alarms that it
should raise is raised. One copy goes on without a fault. Alarms before the fault and in that copy are false.

--records replays the record of each given run (a run directory) and counts its alarms.

A round plays groups and makes an update if enough of them have spread; a fault that leaves none is counted in
rounds all the same. Prints tables and writes OUT as JSON.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.actors import machine
from benchmarks.alarm_loop import TASKS, Faults, Loop, inverted
from dart.config.alarm_names import LearningAlarm
from dart.config.config import Config, load_config
from dart.core.run_directory import RunPaths
from dart.core.types import Generation
from dart.curation.alarm_monitor import AlarmMonitor, event_of
from dart.curation.learning_alarms import RULES, AlarmBoard, AlarmChange
from dart.store.reader import StoreReader
from dart.store.run_blobs import blobs_of
from dart.telemetry.events import ALARM

REPOSITORY = Path(__file__).resolve().parent.parent
OUT = Path(__file__).parent / "out" / "alarms.json"

TRAINING: dict[str, Any] = {
    "policy": REPOSITORY / "configs" / "base-policy",
    "groups_per_update": 4,
    "minibatches": 2,
    "lr": 5e-4,
    "betas": (0.9, 0.99),
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "kl_beta": 0.005,
    "warmup_updates": 3,
}
"""The laptop job's, with fewer groups."""

EPISODES = 32
"""Episodes in a window: the least that an update plays here."""


def config_of(**training: Any) -> Config:
    """The configuration of the loop; `training` replaces settings of it."""
    return Config.model_validate(
        {
            "tasks": {"train": list(TASKS)},
            "environments": {"kind": "simulated"},
            "curation": {"rollouts_per_group": 8},
            "training": TRAINING | training,
            "alarms": {"episodes": EPISODES},
        }
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and the alarms of which one should find it."""

    family: str
    about: str
    alarms: frozenset[LearningAlarm]
    faults: Callable[[], Faults] = Faults
    training: dict[str, Any] = field(default_factory=dict)


def _noisy(nats: float) -> Callable[[Generation], Generation]:
    chance = Random(0)

    def perturb(generation: Generation) -> Generation:
        noise = tuple(min(0.0, one + chance.gauss(0.0, nats)) for one in generation.logprobs)
        return replace(generation, logprobs=noise)

    return perturb


def _flipped(share: float) -> Callable[[str, float], float]:
    chance = Random(0)
    return lambda task_id, reward: 1.0 - reward if chance.random() < share else reward


STUCK = frozenset({LearningAlarm.EVALUATOR_STUCK, LearningAlarm.EQUAL_REWARDS})
COLLAPSE = frozenset(
    {
        LearningAlarm.KL_RUNAWAY,
        LearningAlarm.ENTROPY_COLLAPSE,
        LearningAlarm.ONE_ACTION,
        LearningAlarm.GRADIENTS_CLIPPED,
        LearningAlarm.SUCCESS_FALLS,
    }
)
ONE_TASK = next(iter(TASKS))

FAULTS: dict[str, Fault] = {
    "lr_x1000": Fault("optimizer", "learning rate times 1000", COLLAPSE | STUCK, training={"lr": 0.5}),
    "lr_x30": Fault("optimizer", "learning rate times 30", COLLAPSE | STUCK, training={"lr": 0.015}),
    "clip_tiny": Fault(
        "optimizer",
        "gradients clipped to 0.01 instead of 1",
        frozenset({LearningAlarm.GRADIENTS_CLIPPED}),
        training={"max_grad_norm": 0.01},
    ),
    "advantages_inverted": Fault(
        "optimizer",
        "the trainer reads rewards inverted, learning rate times 4",
        frozenset({LearningAlarm.SUCCESS_FALLS, LearningAlarm.TASK_UNLEARNED}) | STUCK,
        lambda: Faults(trained=inverted),
        {"lr": 2e-3},
    ),
    "evaluator_zero": Fault(
        "reward", "every reward is 0", STUCK, lambda: Faults(reward=lambda task_id, reward: 0.0)
    ),
    "evaluator_one": Fault(
        "reward", "every reward is 1", STUCK, lambda: Faults(reward=lambda task_id, reward: 1.0)
    ),
    "reward_constant": Fault(
        "reward", "every reward is 0.5", STUCK, lambda: Faults(reward=lambda task_id, reward: 0.5)
    ),
    "reward_noise": Fault(
        "reward",
        "30 % of the rewards are inverted",
        frozenset({LearningAlarm.SUCCESS_FALLS, LearningAlarm.TASK_UNLEARNED}),
        lambda: Faults(reward=_flipped(0.3)),
    ),
    "logprobs_noisy": Fault(
        "engine",
        "recorded log-probs have noise of 0.3 nats",
        frozenset({LearningAlarm.LOGPROB_MISMATCH}),
        lambda: Faults(answer=_noisy(0.3)),
    ),
    "weights_stale": Fault(
        "engine",
        "the engine keeps its weights and reports each new version",
        frozenset({LearningAlarm.LOGPROB_MISMATCH}),
        lambda: Faults(keeps_weights=True),
    ),
    "temperature_low": Fault(
        "engine",
        "the engine samples at temperature 0.05",
        frozenset(
            {
                LearningAlarm.LOGPROB_MISMATCH,
                LearningAlarm.ENTROPY_COLLAPSE,
                LearningAlarm.ONE_ACTION,
            }
        )
        | STUCK,
        lambda: Faults(temperature=0.05),
    ),
    "screen_empty": Fault(
        "environment",
        "the same empty screenshot everywhere, greedy answers",
        frozenset({LearningAlarm.ONE_ACTION}),
        lambda: Faults(is_blind=True, temperature=0.0),
    ),
    "clicks_lost": Fault(
        "environment",
        "clicks have no effect, so episodes end at the step cap",
        frozenset({LearningAlarm.LENGTH_EXPLODES}),
        lambda: Faults(is_deaf=True),
    ),
    "task_broken": Fault(
        "environment",
        "clicks have no effect in one task",
        frozenset({LearningAlarm.TASK_UNLEARNED}),
        lambda: Faults(broken_tasks=frozenset({ONE_TASK})),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the alarms did in one run with a fault, or without one."""

    fault: str
    seed: int
    rounds: int
    """Rounds after the fault began until the first alarm that should find it, or until the end."""
    updates: int
    episodes: int
    found_by: str
    """The alarm that found it; empty when none did."""
    others: tuple[str, ...]
    """Other alarms that were raised by then, in their order."""


def opened(folder: Path) -> StoreReader:
    """The record of the run in a folder, with its steps."""
    paths = RunPaths(folder)
    return StoreReader(paths.record, steps=blobs_of(paths).steps)


def raised_in(loop: Loop, monitor: AlarmMonitor) -> list[LearningAlarm]:
    """What the monitor raises now; it is recorded, as the curator does."""
    changes = monitor.look()
    for change in changes:
        loop.store.record_event(ALARM, change.rule.alarm.value, event_of(change))
    return [change.rule.alarm for change in changes if change.is_raised]


def train(folder: Path, seed: int, rounds: int) -> Found:
    """Train without a fault."""
    (folder / "checkpoints").mkdir(parents=True)
    return _watched(folder, "healthy", Fault("none", "", frozenset()), seed, rounds)


def go_on(healthy: Path, name: str, fault: Fault, seed: int, rounds: int) -> Found:
    """Go on with a copy of a run under a fault."""
    folder = healthy.with_name("copy")
    shutil.copytree(healthy, folder)
    found = _watched(folder, name, fault, seed, rounds)
    shutil.rmtree(folder)
    return found


def _watched(folder: Path, name: str, fault: Fault, seed: int, rounds: int) -> Found:
    config = config_of(**fault.training)
    loop = Loop(folder, config, seed, fault.faults())
    monitor = AlarmMonitor(config, lambda: opened(folder))
    raised = raised_in(loop, monitor)
    version, episodes, number = loop.version, len(loop.store.finished_episodes()), 0
    while number < rounds and not fault.alarms.intersection(raised):
        number += 1
        success = loop.round()
        raised += raised_in(loop, monitor)
        print(f"  {name} seed {seed} round {number}: success {success:.0%} {' '.join(raised)}", flush=True)
    found = Found(
        fault=name,
        seed=seed,
        rounds=number,
        updates=loop.version - version,
        episodes=len(loop.store.finished_episodes()) - episodes,
        found_by=next((one.value for one in raised if one in fault.alarms), ""),
        others=tuple(one.value for one in raised if one not in fault.alarms),
    )
    loop.close()
    return found


def replayed(run_dir: Path) -> dict[str, Any]:
    """All alarms of a recorded run, and of each the measurement that came nearest to it."""
    config = load_config(RunPaths(run_dir).config)
    monitor = AlarmMonitor(config, lambda: opened(run_dir))
    board = AlarmBoard(config.alarms)
    changes: list[AlarmChange] = []
    values: defaultdict[LearningAlarm, list[float]] = defaultdict(list)
    with opened(run_dir) as reader:
        for figures in monitor.measured(reader):
            changes += board.next(figures)
            for alarm, measured in figures.items():
                values[alarm].append(measured.value)
        episodes, updates = reader.finished_episodes(), len(reader.versions()) - 1
    hours = (episodes[-1].stored_unix_s - episodes[0].stored_unix_s) / 3600 if episodes else 0.0
    nearest = {
        rule.alarm.value: (min if rule.is_low_bad else max)(values[rule.alarm])
        for rule in RULES
        if values[rule.alarm]
    }
    return {
        "run": run_dir.name,
        "updates": updates,
        "episodes": len(episodes),
        "windows": len(episodes) // config.alarms.episodes,
        "hours": hours,
        "nearest": nearest,
        "raised": [
            f"{change.rule.alarm.value}: {change.measured.text}" for change in changes if change.is_raised
        ],
    }


def summary(found: Sequence[Found]) -> Table:
    """The faults, one line each, over all seeds."""
    table = Table("fault", "family", "found", "updates", "rounds", "episodes", "found by", "also raised")
    for name in dict.fromkeys(one.fault for one in found):
        runs = [one for one in found if one.fault == name]
        hits = [one for one in runs if one.found_by]
        table.add_row(
            name,
            FAULTS[name].family if name in FAULTS else "none",
            f"{len(hits)}/{len(runs)}" if name in FAULTS else "-",
            _spread([one.updates for one in hits or runs]),
            _spread([one.rounds for one in hits or runs]),
            _spread([one.episodes for one in hits or runs]),
            ", ".join(sorted({one.found_by for one in hits})),
            ", ".join(sorted({other for one in runs for other in one.others})),
        )
    return table


def _spread(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{median(values):g} ({low}-{high})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--only", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--healthy", type=int, default=6, help="rounds before the fault; 14 solve the tasks")
    parser.add_argument("--rounds", type=int, default=12, help="most rounds with the fault")
    parser.add_argument("--records", nargs="*", type=Path, default=[], help="run directories to replay")
    parser.add_argument("--quick", action="store_true", help="one seed, two faults, few rounds")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.only, options.healthy, options.rounds = [0], ["evaluator_zero"], 6, 6
    os.fsync = lambda fd: (
        None
    )  # durability is not what is measured, and a busy disk makes it most of the time
    found: list[Found] = []
    records = [replayed(path) for path in options.records]
    for seed in options.seeds:
        with tempfile.TemporaryDirectory(prefix="alarms-", dir="/tmp") as folder:
            healthy = Path(folder) / "healthy"
            found.append(train(healthy, seed, options.healthy))
            for name in options.only:
                found.append(go_on(healthy, name, FAULTS[name], seed, options.rounds))
                _write(options.out, found, records)
            if not options.quick:
                no_fault = Fault("none", "", frozenset())
                found.append(go_on(healthy, "no_fault", no_fault, seed, options.rounds))
    _write(options.out, found, records)
    _print(found, records)
    missed = {one.fault for one in found if one.fault in FAULTS and not one.found_by}
    return int(options.quick and bool(missed))


def _write(out: Path, found: Sequence[Found], records: Sequence[dict[str, Any]]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    runs = [{name: getattr(one, name) for name in Found.__slots__} for one in found]
    kept = {"machine": machine(), "runs": runs, "records": list(records)}
    out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _print(found: Sequence[Found], records: Sequence[dict[str, Any]]) -> None:
    console = Console(width=160)
    if found:
        console.print(summary(found))
    for one in records:
        console.print(
            f"{one['run']}: {one['updates']} updates, {one['windows']} windows, {one['hours']:.2f} h, "
            f"{len(one['raised'])} alarms {one['raised'] or ''}"
        )
        console.print({alarm: float(f"{value:.3g}") for alarm, value in one["nearest"].items()})


if __name__ == "__main__":
    sys.exit(main())
