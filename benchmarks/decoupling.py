"""What decoupling is worth: batch-wise, task-wise and rollout-wise runs, side by side in one program.

    python -m benchmarks.decoupling                       # cells latencies and april, 5 seeds
    python -m benchmarks.decoupling --quick               # one small round of each, to see that it works
    python -m benchmarks.decoupling --cell browsers       # MiniWoB++ in Chromium instead of simulated waits
    python -m benchmarks.decoupling --fresh               # measure anew what was measured before

Every run is a whole `dartrl train` with real actors; only what is slow in the world (desktops, a 7 B policy,
its optimizer) is simulated in the first two cells, by configs/decoupling.toml, which states the latencies.

latencies   {batch, task, rollout} x {all_at_once, one_at_a_time}: same tasks and seeds, as many samples and
            updates; lengths and successes of episodes have the same distribution, who plays which differs
april       over-provisioning by alpha = 1, 1.25, 1.5, 2 on long-tailed episodes
browsers    the arms of `latencies` in Chromium with the laptop's policy; two cores are the bound there

The coupled arm is the best one that is still coupled: all environments of a batch step at once, every engine
answers, a new batch starts as soon as every engine has the new version, and nothing it trains is off-policy.
Within a seed every arm has its turn before the next seed begins. Figures are taken between the commits of
whole updates, the first ones cut off as warm-up. Raw results are appended to OUT/decoupling.jsonl as they
come; started again the program goes on with what is missing under the same configuration. The table,
decoupling.json and pictures are written at the end. Fewer than five measured updates are no steady state:
such runs, as those of --quick, have no rates. Ctrl-C ends the run in progress, and what was measured is
reported; exit code 1 when a goal is missed or (but for --quick) not measured, a figure is above its bound, a
run failed or its record is not sound, 130 when it was broken off.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.actors import BROKEN_OFF, machine
from benchmarks.decoupling_cells import CELLS, REPOSITORY, Arm, Cell, config_of, overrides_of
from benchmarks.decoupling_report import Report, above_bound, draw, judged, table, why_too_short
from dart.config.config import Config

OUT = Path(__file__).parent / "out"
RUN_DEADLINE_S = 900.0


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
    if too_short := why_too_short(result["updates"] - result["warm_up"]):
        return f"{head}  {too_short}"
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
    reports = [judged(cell, measured[cell.name][0], *plan(cell)) for cell in cells]
    wrong = [text for _, texts in measured.values() for text in texts]
    wrong += [text for report in reports for text in above_bound(report)]
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
    return exit_code(reports, wrong, is_quick=options.quick)


def exit_code(reports: Sequence[Report], wrong: Sequence[str], *, is_quick: bool) -> int:
    """1 when something is wrong, or a goal is missed or, but for a quick round, not measured."""
    verdicts = [goal.is_met for report in reports for goal in report.goals]
    is_missed = any(is_met is False or (is_met is None and not is_quick) for is_met in verdicts)
    return int(is_missed or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
