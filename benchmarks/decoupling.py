"""What decoupling is worth: batch-wise, task-wise and rollout-wise runs, side by side in one program.

    python -m benchmarks.decoupling                       # cells latencies and april, 5 seeds
    python -m benchmarks.decoupling --quick               # one small round of each, to see that it works
    python -m benchmarks.decoupling --cell browsers       # MiniWoB++ in Chromium instead of modelled waits
    python -m benchmarks.decoupling --fresh               # measure anew what was measured before

Every run is a whole `dartrl train` with real actors; only what is slow in the world (desktops, a 7 B policy,
its optimizer) is modelled in the first two cells, by configs/decoupling.toml, which states the latencies.

latencies   {batch, task, rollout} x {all_at_once, one_at_a_time}: same tasks and seeds, as many samples and
            updates; lengths and successes of episodes have the same distribution, who plays which differs
april       over-provisioning by alpha = 1, 1.25, 1.5, 2 on long-tailed episodes
browsers    the arms of `latencies` in Chromium with the laptop's policy; two cores are the bound there

The coupled arm is the best one that is still coupled: all environments of a batch step at once, every engine
answers, a new batch starts as soon as every engine has the new version, and nothing it trains is off-policy.
Within a seed every arm has its turn before the next seed begins. Figures are taken between the commits of
whole updates, the first ones cut off as warm-up. Raw results are appended to OUT/decoupling.jsonl as they
come; started again the program goes on with what is missing under the same configuration. The table,
decoupling.json and pictures are written at the end. Ctrl-C ends the run in progress, and what was measured is
reported; exit code 1 when a goal is missed or not measured, a run failed or its record is not sound, 130 when
it was broken off.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.actors import BROKEN_OFF, machine, number
from benchmarks.plant import Bound, Prediction, ideal, predict
from dart.config import Config, load_config

REPOSITORY = Path(__file__).resolve().parent.parent
OUT = Path(__file__).parent / "out"
RUN_DEADLINE_S = 900.0

COUPLED, DECOUPLED = "batch+all_at_once", "rollout+one_at_a_time"

COMPARED = ("actions_per_min", "raw_actions_per_min", "env_util", "rollout_util", "tokens_per_s")
"""Told as a ratio to the first arm."""

DART = {"actions_per_min": 1.9, "env_util": 5.5, "rollout_util": 1.6}
"""Ratios of arXiv 2509.23866 (22.6 to 43.6 actions/min, 12.2 to 67.7 %, 29.6 to 46.7 % of GPUs)."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the job: its name and what is set differently."""

    name: str
    overrides: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One comparison."""

    name: str
    config: str
    arms: tuple[Arm, ...]
    base: Mapping[str, Any] = field(default_factory=dict)
    """Set for every arm."""
    updates: int
    warm_up: int
    """Updates that are cut off at the front."""
    is_modelled: bool = True
    """Bounds and predictions can be computed."""
    bound: str = ""
    """In words, where it cannot be computed."""


def scheduling_arms() -> tuple[Arm, ...]:
    """The six of the experiment. Batch-wise is on-policy; the others keep the configured staleness bound."""
    return tuple(
        Arm(
            f"{scheduling}+{sync}",
            {"curation.scheduling": scheduling, "rollout.sync": sync}
            | ({"curation.staleness": 0} if scheduling == "batch" else {}),
        )
        for scheduling in ("batch", "task", "rollout")
        for sync in ("all_at_once", "one_at_a_time")
    )


CELLS = (
    Cell(name="latencies", config="configs/decoupling.toml", arms=scheduling_arms(), updates=10, warm_up=3),
    Cell(
        name="april",
        config="configs/decoupling.toml",
        arms=tuple(
            Arm(f"alpha {alpha:g}", {"curation.over_provision": alpha}) for alpha in (1.0, 1.25, 1.5, 2.0)
        ),
        base={
            "training.groups_per_update": 4,
            "modelled.steps_sigma": 0.9,
            "curation.step_cap": 60,
            "curation.staleness": 3,
        },
        updates=10,
        warm_up=3,
    ),
    Cell(
        name="browsers",
        config="configs/laptop.toml",
        arms=scheduling_arms(),
        base={
            "curation.staleness": 2,
            "training.groups_per_update": 4,
            "training.minibatches": 1,
            "training.warmup_updates": 0,
            "evaluation.before": False,
            "evaluation.after": False,
            "observe.load_every_s": 1.0,
        },
        updates=5,
        warm_up=1,
        is_modelled=False,
        bound="two CPU cores, shared by browsers, engine and trainer: who waits leaves them to the rest",
    ),
)


# ---- one run ----


def overrides_of(cell: Cell, arm: Arm, seed: int, updates: int) -> dict[str, Any]:
    """Everything that is set for one run."""
    return {**cell.base, **arm.overrides, "run.seed": seed, "training.updates": updates}


def config_of(cell: Cell, arm: Arm, seed: int, updates: int) -> Config:
    """The configuration of one run."""
    given = [
        f"{key}={runs.toml_value(value)}" for key, value in overrides_of(cell, arm, seed, updates).items()
    ]
    return load_config(REPOSITORY / cell.config, given)


def fingerprint(config: Config) -> str:
    """What a result is about: results of another configuration are not compared with it."""
    return hashlib.sha256(config.to_toml().encode()).hexdigest()[:12]


def commit() -> str:
    """Of the code that measures; empty outside of a repository."""
    asked = subprocess.run(
        ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return asked.stdout.strip()


def measure(cell: Cell, arm: Arm, seed: int, updates: int, warm_up: int, keep: Path | None) -> dict[str, Any]:
    """Run the job once; its figures, or what it died of."""
    overrides = overrides_of(cell, arm, seed, updates)
    config = config_of(cell, arm, seed, updates)
    name = f"{cell.name}-{arm.name}-{seed}".replace(" ", "-")
    with tempfile.TemporaryDirectory(prefix="decoupling-", dir="/tmp") as folder:
        directory = (keep or Path(folder)) / name
        began_s, load = time.monotonic(), os.getloadavg()[0]
        with runs.training(REPOSITORY / cell.config, directory, overrides) as run:
            answer = _figures_at_end(run, config, warm_up)
        if keep is None:
            runs.discard(run)
    return {
        "cell": cell.name,
        "arm": arm.name,
        "seed": seed,
        "updates": updates,
        "warm_up": warm_up,
        "overrides": overrides,
        "fingerprint": fingerprint(config),
        "commit": commit(),
        "wall_s": round(time.monotonic() - began_s, 1),
        "load_average": round(load, 2),
        **answer,
    }


def _figures_at_end(run: runs.Run, config: Config, warm_up: int) -> dict[str, Any]:
    give_up_s = time.monotonic() + RUN_DEADLINE_S
    while not run.is_over:
        if time.monotonic() > give_up_s:
            return {"failed": f"it did not end within {RUN_DEADLINE_S:g} s: {run.last_words(1)}"}
        time.sleep(0.1)
    if run.process.returncode:
        return {"failed": f"exit code {run.process.returncode}: {run.last_words(3)}"}
    store = run.paths.store
    figures = runs.figures_of(
        store,
        runs.between_updates(store, warm_up),
        environments=config.environments.count,
        engines=config.rollout.count,
    )
    return {"figures": asdict(figures), "audit": runs.audit(store, config.curation.staleness)}


# ---- the report ----

PERCENT = frozenset(
    {
        "env_util",
        "env_util_strict",
        "env_engine_wait",
        "rollout_util",
        "rollout_weighted",
        "trainer_util",
        "trainer_starved",
        "trainer_blocked",
        "goodput",
    }
)

SHOWN = (
    ("actions_per_min", "actions/min in updates"),
    ("raw_actions_per_min", "actions/min sampled"),
    ("env_util", "environments in episode"),
    ("env_util_strict", "  resetting or stepping"),
    ("rollout_util", "engines busy"),
    ("rollout_weighted", "  of their capacity"),
    ("trainer_util", "trainer in updates"),
    ("trainer_starved", "  without a batch"),
    ("trainer_blocked", "  otherwise waiting"),
    ("goodput", "goodput"),
    ("tokens_per_s", "useful tokens/s"),
    ("raw_tokens_per_s", "raw tokens/s"),
    ("staleness_p50", "staleness p50"),
    ("staleness_p95", "staleness p95"),
    ("staleness_max", "staleness max"),
    ("trained_length", "steps of trained episodes"),
    ("sampled_length", "steps of finished episodes"),
)


def series(results: Sequence[Mapping[str, Any]], cell: str, arm: str, figure: str) -> dict[int, float]:
    """One figure of one arm by seed."""
    return {
        result["seed"]: float(result["figures"][figure])
        for result in results
        if (result["cell"], result["arm"]) == (cell, arm)
        and "figures" in result
        and result["figures"][figure] is not None
    }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Median and quartiles; None of none."""
    if not values:
        return None
    median, low, high = runs.median_and_quartiles(values)
    return {"median": median, "q1": low, "q3": high, "n": len(values)}


def ratios(results: Sequence[Mapping[str, Any]], cell: str, arm: str, to: str, figure: str) -> list[float]:
    """What an arm has of what another has, seed by seed."""
    own, other = series(results, cell, arm, figure), series(results, cell, to, figure)
    return [own[seed] / other[seed] for seed in sorted(own.keys() & other.keys()) if other[seed]]


def length_bias(results: Sequence[Mapping[str, Any]], cell: str, arm: str) -> float | None:
    """Mean length of what was trained over that of what was finished, less 1; all seeds together."""
    trained = series(results, cell, arm, "trained_length")
    sampled = series(results, cell, arm, "sampled_length")
    if not trained or not sampled:
        return None
    return sum(trained.values()) / len(trained) / (sum(sampled.values()) / len(sampled)) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Something to reach, and what came out."""

    text: str
    value: float | None
    limit: float
    is_met: bool | None
    """None when it was not measured."""


def at_least(text: str, value: float | None, limit: float) -> Goal:
    return Goal(text=text, value=value, limit=limit, is_met=None if value is None else value >= limit)


def goals_of(cell: Cell, results: Sequence[Mapping[str, Any]], bound: Bound | None) -> list[Goal]:
    """The goals of one cell. In browsers nothing was promised: two cores do all the work there."""
    if cell.name == "latencies" and bound is not None:
        faster = _median(ratios(results, cell.name, DECOUPLED, COUPLED, "actions_per_min"))
        in_episode = _median(series(results, cell.name, DECOUPLED, "env_util").values())
        busy = _median(series(results, cell.name, DECOUPLED, "rollout_util").values())
        return [
            at_least(f"actions/min of {DECOUPLED} over {COUPLED}", faster, 2.5),
            at_least(f"environments in episode, {DECOUPLED}", in_episode, 0.9),
            at_least(f"engines busy, {DECOUPLED}, within 10 % of the bound", busy, 0.9 * bound.rollout_util),
        ]
    if cell.name == "april":
        best, gain = best_alpha(cell, results)
        bias = None if best is None else length_bias(results, cell.name, best)
        within = None if bias is None else abs(bias)
        return [
            at_least(f"useful tokens/s of {best or 'the best alpha'} over alpha 1", gain, 1.35),
            Goal(
                text=f"length of trained against finished episodes, {best or 'the best alpha'}",
                value=within,
                limit=0.02,
                is_met=None if within is None else within <= 0.02,
            ),
        ]
    return []


def best_alpha(cell: Cell, results: Sequence[Mapping[str, Any]]) -> tuple[str | None, float | None]:
    """The alpha with the most useful tokens, and how many times those of the first arm."""
    first = cell.arms[0].name
    gains = {
        arm.name: _median(ratios(results, cell.name, arm.name, first, "tokens_per_s"))
        for arm in cell.arms[1:]
    }
    known = {name: gain for name, gain in gains.items() if gain is not None}
    if not known:
        return None, None
    best = max(known, key=lambda name: known[name])
    return best, known[best]


def _median(values: Any) -> float | None:
    found = list(values)
    return runs.median_and_quartiles(found)[0] if found else None


def shown(figure: str, value: float) -> str:
    """A figure for people."""
    return f"{100 * value:.1f} %" if figure in PERCENT else number(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One cell, judged."""

    cell: Cell
    results: Sequence[Mapping[str, Any]]
    bound: Bound | None
    predictions: Mapping[str, Prediction]
    """What the simulation says of each arm, by name."""
    goals: Sequence[Goal]

    def arm_spread(self, arm: str, figure: str) -> dict[str, float] | None:
        return spread(list(series(self.results, self.cell.name, arm, figure).values()))

    def as_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        first = self.cell.arms[0].name
        return {
            "bound": None if self.bound is None else asdict(self.bound),
            "bound_in_words": self.cell.bound,
            "arms": {
                arm.name: {figure: self.arm_spread(arm.name, figure) for figure, _ in SHOWN}
                | {"length_bias": length_bias(self.results, self.cell.name, arm.name)}
                for arm in self.cell.arms
            },
            "ratios_to_first_arm": {
                arm.name: {
                    figure: spread(ratios(self.results, self.cell.name, arm.name, first, figure))
                    for figure in COMPARED
                }
                for arm in self.cell.arms
            },
            "simulated": {name: asdict(found) for name, found in self.predictions.items()},
            "goals": [asdict(goal) for goal in self.goals],
        }


def judged(cell: Cell, results: Sequence[Mapping[str, Any]], updates: int) -> Report:
    """Bounds, predictions and goals of one cell."""
    if not cell.is_modelled:
        return Report(
            cell=cell, results=results, bound=None, predictions={}, goals=goals_of(cell, results, None)
        )
    bound = ideal(config_of(cell, cell.arms[0], 0, updates))
    predictions = {arm.name: predict(config_of(cell, arm, 0, updates), 60) for arm in cell.arms}
    goals = goals_of(cell, results, bound)
    return Report(cell=cell, results=results, bound=bound, predictions=predictions, goals=goals)


def table(report: Report) -> str:
    """One cell for people: a block for each figure, an arm a line, the bound beside it."""
    cell, lines = report.cell, []
    lines.append(f"== {cell.name}: {cell.config}, medians over seeds (quartiles); simulated: without actors")
    for figure, title in SHOWN:
        bound = getattr(report.bound, figure, None)
        beside = f"   bound {shown(figure, bound)}" if bound is not None else ""
        lines.append(f"{title}{beside}")
        for arm in cell.arms:
            found = report.arm_spread(arm.name, figure)
            if found is None:
                lines.append(f"    {arm.name:24} not measured")
                continue
            quartiles = f"({shown(figure, found['q1'])} to {shown(figure, found['q3'])})"
            predicted = getattr(report.predictions.get(arm.name), figure, None)
            simulated = "" if predicted is None else f"  simulated {shown(figure, predicted)}"
            line = f"    {arm.name:24} {shown(figure, found['median']):>10} {quartiles:22}{simulated}"
            lines.append(line.rstrip())
    lines += ["", *ratio_lines(report), ""]
    if report.bound is not None:
        lines.append(f"bound: {report.bound.words}")
    elif cell.bound:
        lines.append(f"bound: {cell.bound}")
    lines += [goal_line(goal) for goal in report.goals]
    return "\n".join(lines)


def ratio_lines(report: Report) -> Iterator[str]:
    """Each arm against the first one."""
    cell = report.cell
    first = cell.arms[0].name
    yield f"against {first}, seed by seed"
    for arm in cell.arms[1:]:
        words = []
        for figure in COMPARED:
            found = spread(ratios(report.results, cell.name, arm.name, first, figure))
            if found is not None:
                words.append(f"{figure} {found['median']:.2f}x ({found['q1']:.2f} to {found['q3']:.2f})")
        bias = length_bias(report.results, cell.name, arm.name)
        if bias is not None and cell.name == "april":
            words.append(f"length bias {100 * bias:+.1f} %")
        yield f"    {arm.name:24} {', '.join(words) or 'not measured'}"
    if cell.name == "latencies":
        told = ", ".join(f"{figure} {ratio:g}x" for figure, ratio in DART.items())
        yield f"    DART, other conditions   {told}"


def goal_line(goal: Goal) -> str:
    """A goal for people."""
    verdict = {True: "met", False: "MISSED", None: "not measured"}[goal.is_met]
    value = "" if goal.value is None else f": {goal.value:.3f}, goal {goal.limit:.3f}"
    return f"goal: {goal.text}{value}: {verdict}"


# ---- pictures ----


def draw(report: Report, path: Path) -> None:
    """Bars with quartiles and bounds; for over-provisioning, a line over alpha."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = (
        (("tokens_per_s", "raw_tokens_per_s", "staleness_p95"))
        if report.cell.name == "april"
        else (("actions_per_min", "env_util", "rollout_util"))
    )
    titles = dict(SHOWN)
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 4.2), layout="constrained")
    for axis, name in zip(axes, panels, strict=True):
        _draw_panel(axis, report, name, titles[name].strip())
    figure.suptitle(f"{report.cell.name}: medians over seeds with quartiles")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw_panel(axis: Any, report: Report, name: str, title: str) -> None:
    scale = 100 if name in PERCENT else 1
    arms = [arm.name for arm in report.cell.arms]
    found = [report.arm_spread(arm, name) for arm in arms]
    measured = [(place, values) for place, values in enumerate(found) if values is not None]
    middles = [scale * values["median"] for _, values in measured]
    whiskers = [
        [scale * (values["median"] - values["q1"]) for _, values in measured],
        [scale * (values["q3"] - values["median"]) for _, values in measured],
    ]
    axis.bar([place for place, _ in measured], middles, yerr=whiskers, capsize=4, color="#4c78a8", width=0.7)
    predicted = [(place, getattr(report.predictions.get(arm), name, None)) for place, arm in enumerate(arms)]
    points = [(place, scale * value) for place, value in predicted if value is not None]
    if points:
        axis.plot(*zip(*points, strict=True), "D", color="#e45756", markersize=5, label="simulated")
    bound = getattr(report.bound, name, None)
    if bound is not None:
        axis.axhline(scale * bound, linestyle="--", color="#333333", label="bound")
    if points or bound is not None:
        axis.legend(fontsize=8)
    axis.set_title(f"{title}{', %' if name in PERCENT else ''}", fontsize=10)
    axis.set_xticks(range(len(arms)), [arm.replace("+", "\n") for arm in arms], fontsize=7)
    axis.set_ylim(bottom=0)
    axis.set_axisbelow(True)
    axis.grid(axis="y", alpha=0.3)


# ---- the program ----


class Results:
    """Raw results, appended to a file as they come."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self._path = path
        self.all: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh and path.exists():  # what was measured is never thrown away
            path.rename(path.with_suffix(f".{time.strftime('%Y%m%d-%H%M%S')}.jsonl"))
        if path.exists():
            self.all = [json.loads(line) for line in path.read_text().splitlines() if line]

    def of(self, config: Config) -> dict[str, Any] | None:
        """The result of a run with this configuration; what failed is tried again."""
        wanted = fingerprint(config)
        return next((r for r in self.all if r["fingerprint"] == wanted and "figures" in r), None)

    def add(self, result: dict[str, Any]) -> None:
        self.all.append(result)
        with self._path.open("a") as file:
            file.write(json.dumps(result) + "\n")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def said(result: Mapping[str, Any]) -> str:
    """One run in a line."""
    head = f"{result['cell']:10} seed {result['seed']}  {result['arm']:24} {result['wall_s']:6.1f} s"
    if "failed" in result:
        return f"{head}  FAILED: {result['failed']}"
    figures = result["figures"]
    return (
        f"{head}  {figures['actions_per_min']:7.1f} actions/min, "
        f"environments {100 * figures['env_util']:5.1f} %, engines {100 * figures['rollout_util']:5.1f} %, "
        f"{figures['tokens_per_s']:8.0f} tokens/s, load {result['load_average']}"
    )


def measure_all(
    cells: Sequence[Cell],
    results: Results,
    plan: Callable[[Cell], tuple[int, int]],
    options: argparse.Namespace,
) -> None:
    """Every arm of every seed of every cell, arms in turns."""
    for cell in cells:
        updates, warm_up = plan(cell)
        for seed in range(options.seeds):
            for arm in cell.arms:
                if results.of(config_of(cell, arm, seed, updates)) is None:
                    result = measure(cell, arm, seed, updates, warm_up, options.keep)
                    results.add(result)
                    say(said(result))


def wanted(cell: Cell, results: Results, updates: int, seeds: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The results of a cell, and what is wrong with them in words: runs that are missing or not sound."""
    found, wrong = [], []
    for seed in range(seeds):
        for arm in cell.arms:
            result = results.of(config_of(cell, arm, seed, updates))
            name = f"{cell.name} {arm.name} seed {seed}"
            if result is None:
                wrong.append(f"{name}: not measured")
                continue
            found.append(result)
            audit = result["audit"]
            if audit["lost"] or audit["doubled"] or audit["violations"]:
                wrong.append(f"{name}: the record is not sound: {audit}")
    return found, wrong


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Ends with exit code 2 and the reason when it makes no sense."""
    names = [cell.name for cell in CELLS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cell", nargs="+", choices=names, default=names[:2], metavar="CELL", help=", ".join(names)
    )
    parser.add_argument("--arm", nargs="+", metavar="ARM", help="only these arms")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, help="of each run, warm-up included")
    parser.add_argument("--quick", action="store_true", help="one seed, three updates, into OUT/quick")
    parser.add_argument(
        "--fresh", action="store_true", help="put OUT/decoupling.jsonl aside and measure anew"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the run directories here")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.updates = 1, options.updates or 3
        options.out = options.out / "quick"
    if options.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {options.seeds}")
    if options.updates is not None and options.updates < 2:
        parser.error(f"--updates must be at least 2 (the first is warm-up), got {options.updates}")
    return options


def chosen(options: argparse.Namespace) -> list[Cell]:
    """The cells asked for, with the arms asked for."""
    cells = [cell for cell in CELLS if cell.name in options.cell]
    if options.arm is None:
        return cells
    cut = [
        Cell(**{**_fields(cell), "arms": tuple(arm for arm in cell.arms if arm.name in options.arm)})
        for cell in cells
    ]
    return [cell for cell in cut if cell.arms]


def _fields(cell: Cell) -> dict[str, Any]:
    return {name: getattr(cell, name) for name in Cell.__slots__}


def main() -> int:
    """Measure, print, write; 1 when a goal is missed, or a run failed or is not sound."""
    options = parse()
    results = Results(options.out / "decoupling.jsonl", options.fresh)
    cells = chosen(options)

    def plan(cell: Cell) -> tuple[int, int]:
        updates = options.updates or cell.updates
        return updates, min(cell.warm_up, updates - 1)

    is_broken_off = False
    try:
        measure_all(cells, results, plan, options)
    except KeyboardInterrupt:
        is_broken_off = True
        say("broken off; the same command goes on from here")
    measured = {cell.name: wanted(cell, results, plan(cell)[0], options.seeds) for cell in cells}
    reports = [judged(cell, measured[cell.name][0], plan(cell)[0]) for cell in cells]
    wrong = [text for _, texts in measured.values() for text in texts]
    for report in reports:
        draw(report, options.out / f"decoupling-{report.cell.name}.png")
        print(table(report) + "\n")
    whole = {
        "command": " ".join(["python -m benchmarks.decoupling", *sys.argv[1:]]),
        "machine": machine(),
        "not_sound_or_not_measured": wrong,
        "cells": {report.cell.name: report.as_json() for report in reports},
    }
    (options.out / "decoupling.json").write_text(json.dumps(whole, indent=1) + "\n")
    print(f"written to {options.out}: decoupling.json, decoupling.jsonl, decoupling-*.png")
    runs_wanted = sum(len(cell.arms) for cell in cells) * options.seeds
    print(f"{sum(len(found) for found, _ in measured.values())} of {runs_wanted} runs measured")
    for text in wrong:
        print(f"WRONG: {text}")
    if is_broken_off:
        return BROKEN_OFF
    is_missed = any(not goal.is_met for report in reports for goal in report.goals)
    return int(is_missed or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
