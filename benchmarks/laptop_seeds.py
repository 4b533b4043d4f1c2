"""What `make train` gives with other seeds: `python -m benchmarks.laptop_seeds`

Runs the laptop job (configs/laptop.toml) with the real `dartrl train`, once for each seed, one after another,
on a machine that should do nothing else. One run takes about twelve minutes, both evaluations included.

Of each run OUT/seed-N/report.json is its own report as it came out. OUT/seed-N/about.json says where and when
it was measured, and which alarms were raised (docs/alarms.md): in a healthy run each is a false one. A failed
run is written into OUT/failures.jsonl and counted in the table. Started again, the program goes on with the
seeds that have no report; a run that was interrupted begins anew.

At the end: the table, OUT/laptop_seeds.json and OUT/laptop_seeds.md. Its intervals are over runs, not over
the episodes of one run: runs differ by more than their episodes.

With two files after --config, each seed is run with both, one after the other, below OUT/NAME of each file.
OUT/comparison.md and .json then hold the differences of the second from the first, paired by seed:

    python -m benchmarks.laptop_seeds --config configs/laptop.toml configs/laptop-pointer.toml \\
        --out benchmarks/results/laptop_pointer
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.actors import machine
from benchmarks.intervals import half_width
from benchmarks.runs import REPOSITORY, Run, discard, training
from dart.store.reader import StoreReader
from dart.telemetry.events import ALARM

CONFIG = REPOSITORY / "configs" / "laptop.toml"
RESULTS = Path(__file__).parent / "results" / "laptop_seeds"
QUICK_OUT = Path(__file__).parent / "out" / "laptop_seeds"

MEAN = "mean"
ANSWERS = ("sampled", "greedy")
SIDES = ("before", "after")

RUN_DEADLINE_S = 1800.0
"""A run that has not ended by then is ended, and has failed."""

QUIET_LOAD = 0.5
"""With a higher load average before a run, other processes slow it down."""

QUICK: Mapping[str, Any] = {
    "tasks.train": ["miniwob/click-test-2", "miniwob/enter-text"],
    "environments.count": 2,
    "curation.rollouts_per_group": 4,
    "training.groups_per_update": 1,
    "training.updates": 1,
    "run.minutes": 3.0,
    "evaluation.seeds_per_task": 2,
    "evaluation.greedy_seeds_per_task": 1,
}
"""Only to see that it works."""

Reports = Mapping[int, Mapping[str, Any]]
"""By seed, what its run wrote."""


class RunFailed(RuntimeError):
    """A training run ended otherwise than it should."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure of several runs."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def half_width(self) -> float | None:
        """Of the 95 % interval of the mean over runs; None with fewer than two runs."""
        return half_width(self.values)

    def to_json(self) -> dict[str, Any]:
        half = self.half_width
        return {
            "runs": list(self.values),
            "median": self.median,
            "lowest": min(self.values),
            "highest": max(self.values),
            "mean": self.mean,
            "interval_of_mean": None if half is None else [self.mean - half, self.mean + half],
        }


# ---- running ----


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=None, help="default: 0 1 2 3 4")
    parser.add_argument(
        "--config", type=Path, nargs="+", default=[CONFIG], help="one file, or two to compare"
    )
    parser.add_argument("--out", type=Path, default=None, help="default: benchmarks/results/laptop_seeds")
    parser.add_argument("--minutes", type=float, help="run.minutes of every run, instead of the file's")
    parser.add_argument("--report", action="store_true", help="run nothing: the table of what is there")
    parser.add_argument(
        "--quick", action="store_true", help="two seeds, one update: only to see it work; anew"
    )
    options = parser.parse_args()
    seeds = options.seeds or ([0, 1] if options.quick else [0, 1, 2, 3, 4])
    out = options.out or (QUICK_OUT if options.quick else RESULTS)
    overrides = {} if options.minutes is None else {"run.minutes": options.minutes}
    overrides |= QUICK if options.quick else {}
    if out == QUICK_OUT and not options.report:
        shutil.rmtree(out, ignore_errors=True)  # to see it work, it has to run
    if len(options.config) > 2:
        parser.error(f"expected one or two files after --config, got {len(options.config)}")
    folders = folders_of(out, options.config)
    try:
        for seed in seeds:
            for config, folder in folders.items():
                if not options.report and not report_of(folder, seed).exists():
                    run(folder, config, seed, overrides)
    except RunFailed as failure:
        print(f"{failure}\nThe same command goes on with the seeds that have no report.", file=sys.stderr)
        return 1
    found = {config.stem: read(folder, seeds) for config, folder in folders.items()}
    for folder, reports in zip(folders.values(), found.values(), strict=True):
        if not reports:
            print(f"no report of the seeds {seeds} in {folder}", file=sys.stderr)
            return 1
        publish(folder, reports)
    if len(found) == 2:
        publish_comparison(out, found)
    return 0 if all(len(reports) == len(seeds) for reports in found.values()) else 1


def folders_of(out: Path, configs: Sequence[Path]) -> dict[Path, Path]:
    """The folder of each file's reports: OUT itself for a single file."""
    return {configs[0]: out} if len(configs) == 1 else {config: out / config.stem for config in configs}


def run(out: Path, config: Path, seed: int, overrides: Mapping[str, Any]) -> None:
    """One run of the real command; what it reported is kept whole. Raises RunFailed."""
    directory = out / "runs" / f"seed-{seed}"
    shutil.rmtree(directory, ignore_errors=True)  # of a run that was interrupted
    about = {"seed": seed, "config": config.name, "began_unix_s": time.time(), "machine": machine()}
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        print(f"the load average is {load:.2f}: other processes will slow this run down", flush=True)
    print(f"seed {seed}, {out.name}: {config.name}", flush=True)
    began_s = time.monotonic()
    with training(config, directory, {**overrides, "run.seed": seed}) as child:
        _wait(child, seed, began_s, out)
        about |= {"wall_s": round(time.monotonic() - began_s, 1), "load_after": list(os.getloadavg())}
        about |= {"alarms_raised": alarms_raised(child)}
    kept = report_of(out, seed)
    kept.parent.mkdir(parents=True, exist_ok=True)
    (kept.parent / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    shutil.copyfile(child.paths.report, kept)  # last: its presence means that this seed is done
    result = summary(json.loads(kept.read_text()))
    print(f"seed {seed}, {out.name}: {about['wall_s']} s; {result}", flush=True)
    discard(child)


def _wait(child: Run, seed: int, began_s: float, out: Path) -> None:
    while not child.is_over:
        if time.monotonic() - began_s > RUN_DEADLINE_S:
            break
        time.sleep(0.5)
    if child.process.poll() == 0 and child.paths.report.exists():
        return
    failure = {
        "seed": seed,
        "exit_code": child.process.poll(),
        "last_words": child.last_words(),
        "run": str(child.directory),
    }
    out.mkdir(parents=True, exist_ok=True)
    with (out / "failures.jsonl").open("a") as lines:
        lines.write(json.dumps(failure) + "\n")
    raise RunFailed(f"the run of seed {seed} failed ({failure['exit_code']}): {failure['last_words']}")


def alarms_raised(child: Run) -> list[str]:
    """Names of the alarms that a run raised, in order."""
    with StoreReader(child.paths.record) as record:
        return [one.subject for one in record.find_events(kinds=[ALARM]) if one.data["stage"] == "raised"]


def report_of(out: Path, seed: int) -> Path:
    """The report of a seed; it is there once the run is done."""
    return out / f"seed-{seed}" / "report.json"


# ---- what came of it ----


def read(out: Path, seeds: Sequence[int]) -> Reports:
    """The reports that are there."""
    return {
        seed: json.loads(report_of(out, seed).read_text()) for seed in seeds if report_of(out, seed).exists()
    }


def rate(report: Mapping[str, Any], answers: str, task: str, side: str) -> float | None:
    """Success of a task, or of the mean over tasks; None where it was not measured."""
    table = report if answers == "sampled" else report["greedy"]
    if table is None:
        return None
    rows = [table[MEAN]] if task == MEAN else [row for row in table["tasks"] if row["name"] == task]
    measured = rows[0][side] if rows else None
    return None if measured is None else float(measured["rate"])


def spread(reports: Reports, answers: str, task: str, side: str) -> Spread | None:
    """Of one figure over the runs; None if one of them lacks it. `change`: after minus before."""
    if side == "change":
        before, after = (spread(reports, answers, task, one) for one in SIDES)
        if before is None or after is None:
            return None
        return Spread(tuple(b - a for a, b in zip(before.values, after.values, strict=True)))
    values = [rate(report, answers, task, side) for report in reports.values()]
    known = tuple(value for value in values if value is not None)
    return Spread(known) if len(known) == len(values) else None


def tasks_of(reports: Reports) -> list[str]:
    return [row["name"] for row in next(iter(reports.values()))["tasks"]]


def to_json(reports: Reports, failures: int) -> dict[str, Any]:
    rows = [*tasks_of(reports), MEAN]
    found = {
        answers: {
            task: {
                side: one.to_json()
                for side in (*SIDES, "change")
                if (one := spread(reports, answers, task, side)) is not None
            }
            for task in rows
        }
        for answers in ANSWERS
    }
    return {"seeds": list(reports), "failed_runs": failures, "confidence": 0.95, **found}


def markdown(reports: Reports, failures: int) -> str:
    """The table: median over the runs and, in brackets, the lowest and the highest."""
    head = [f"{answers} {side}" for answers in ANSWERS for side in SIDES]
    lines = [f"| task | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    for task in [*tasks_of(reports), MEAN]:
        cells = [_cell(spread(reports, answers, task, side)) for answers in ANSWERS for side in SIDES]
        lines.append(f"| {task.rpartition('/')[2]} | {' | '.join(cells)} |")
    told = [_change(reports, answers) for answers in ANSWERS]
    about = f"Success in % on held-out seeds; median of {len(reports)} runs (lowest to highest)."
    failed = f"Runs that failed and are not in it: {failures}."
    return "\n".join([*lines, "", about, *filter(None, told), failed, ""])


def _cell(found: Spread | None) -> str:
    if found is None:
        return "–"
    return f"{100 * found.median:.0f} ({100 * min(found.values):.0f} – {100 * max(found.values):.0f})"


def _change(reports: Reports, answers: str) -> str:
    """The change of the mean over tasks, with its interval over runs."""
    sides = [spread(reports, answers, MEAN, side) for side in (*SIDES, "change")]
    before, after, change = sides
    if before is None or after is None or change is None:
        return ""
    text = f"{answers.capitalize()}: {100 * before.mean:.1f} -> {100 * after.mean:.1f} %"
    half = change.half_width
    if half is None:
        return f"{text}, change {100 * change.mean:+.1f} points (one run: no interval)."
    low, high = change.mean - half, change.mean + half
    return (
        f"{text}, change {100 * change.mean:+.1f} points "
        f"(95 % interval over runs {100 * low:+.1f} to {100 * high:+.1f})."
    )


def summary(report: Mapping[str, Any]) -> str:
    """One run in a line."""
    parts = []
    for answers in ANSWERS:
        before, after = (rate(report, answers, MEAN, side) for side in SIDES)
        if before is not None and after is not None:
            parts.append(f"{answers} {100 * before:.0f} -> {100 * after:.0f} %")
    return ", ".join(parts)


def alarms_line(abouts: Sequence[Mapping[str, Any]]) -> str:
    """How many alarms were raised in how many hours; empty if that was not noted of every run."""
    if not all("alarms_raised" in about for about in abouts):
        return ""
    raised = [name for about in abouts for name in about["alarms_raised"]]
    hours = sum(about["wall_s"] for about in abouts) / 3600
    names = f" ({', '.join(sorted(set(raised)))})" if raised else ""
    return f"Alarms raised: {len(raised)}{names} in {hours:.2f} hours."


def publish(out: Path, reports: Reports) -> None:
    """Print the table, and write it down."""
    files = [report_of(out, seed).parent / "about.json" for seed in reports]
    abouts = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    log = out / "failures.jsonl"
    failures = len(log.read_text().splitlines()) if log.exists() else 0
    text = markdown(reports, failures)
    if alarms := alarms_line(abouts):
        text += f"{alarms}\n"
    (out / "laptop_seeds.json").write_text(json.dumps(to_json(reports, failures), indent=1) + "\n")
    (out / "laptop_seeds.md").write_text(text)
    print(text)


# ---- two files side by side ----


def differences(found: Mapping[str, Reports]) -> dict[str, dict[str, Any]]:
    """Second file minus first, paired by the seeds that both have: success of the mean over tasks."""
    first, second = found.values()
    seeds = [seed for seed in first if seed in second]
    made: dict[str, dict[str, Any]] = {}
    for answers in ANSWERS:
        for side in (*SIDES, "change"):
            one, two = (
                spread({seed: reports[seed] for seed in seeds}, answers, MEAN, side)
                for reports in (first, second)
            )
            if one is not None and two is not None and seeds:
                gaps = Spread(tuple(b - a for a, b in zip(one.values, two.values, strict=True)))
                made[f"{answers} {side}"] = {
                    "first": one.to_json(),
                    "second": two.to_json(),
                    "difference": gaps.to_json(),
                }
    return made


def comparison(found: Mapping[str, Reports]) -> str:
    """The table of two files: means over the seeds, and the paired differences with their intervals."""
    first, second = found
    lines = [f"| success in % | {first} | {second} | difference (95 % interval) |", "|---|---|---|---|"]
    for name, row in differences(found).items():
        one, two, gap = (row[key] for key in ("first", "second", "difference"))
        ends = gap["interval_of_mean"]
        interval = "one run" if ends is None else f"{100 * ends[0]:+.1f} to {100 * ends[1]:+.1f}"
        lines.append(
            f"| {name} | {100 * one['mean']:.1f} | {100 * two['mean']:.1f} "
            f"| {100 * gap['mean']:+.1f} ({interval}) |"
        )
    for name in ("updates", "trajectories", "seconds"):
        means = [statistics.fmean(float(one[name]) for one in reports.values()) for reports in found.values()]
        lines.append(
            f"| {name} of a run, mean | {means[0]:.0f} | {means[1]:.0f} | {means[1] - means[0]:+.0f} |"
        )
    return "\n".join([*lines, ""])


def publish_comparison(out: Path, found: Mapping[str, Reports]) -> None:
    """Print the comparison, and write it down."""
    rows = {"files": list(found), **differences(found)}
    (out / "comparison.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "comparison.md").write_text(comparison(found))
    print(comparison(found))


if __name__ == "__main__":
    sys.exit(main())
