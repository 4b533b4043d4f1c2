"""What each of the five methods of adaptive curation is worth: `python -m benchmarks.ablation`.

Arms: none, each of the five alone, all, all but one. Every arm trains the hard job (configs/hard.toml) with
the real `dartrl train` for the same number of environment steps, then plays the same held-out seeds. The
budget counts steps, not seconds, so another load on the machine changes nothing. The base policy is measured
once per seed, for every arm.

Each finished run is a line in OUT/raw.jsonl at once; started again the program goes on with what is missing.
At the end: OUT/ablation.json, OUT/ablation.png and the table.
"""

import argparse
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ablation_report as report
from benchmarks.hard_job import CONFIG, HARD_JOB, QUICK, REPOSITORY, Size, prepare
from dart.core.types import SUCCESS_ABOVE

SWITCHES: Mapping[str, str] = {
    "rollout number": "curation.rollout_number.enabled",
    "trajectory length": "curation.trajectory_length.enabled",
    "experience pool": "curation.experience_pool.enabled",
    "high entropy": "curation.high_entropy.enabled",
    "importance": "curation.importance.enabled",
}

ARMS: Mapping[str, frozenset[str]] = {
    report.BASELINE: frozenset(),
    **{name: frozenset({name}) for name in SWITCHES},
    "all": frozenset(SWITCHES),
    **{f"all but {name}": frozenset(SWITCHES) - {name} for name in SWITCHES},
}
"""Arm to the methods that are on."""

BASE = "base"
"""Not an arm: the measurement of the policy before training."""

WINDOWS = 20
"""Points of a curve."""

RUN_DEADLINE_S = 3600.0
STOP_DEADLINE_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What is the same for every run; runs of another budget are not compared."""

    actions: int
    """Environment steps of training."""
    episodes: int
    """Held-out episodes per task."""
    environments: int
    job: Path = HARD_JOB
    """What the hard job starts from."""


class RunFailed(RuntimeError):
    """A training run ended otherwise than it should."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 to this, each with all arms in turn")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM")
    parser.add_argument("--actions", type=int, default=4000, help="environment steps of training of a run")
    parser.add_argument("--episodes", type=int, default=40, help="held-out episodes of each task")
    parser.add_argument("--environments", type=int, default=6, help="browsers")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "out" / "ablation")
    parser.add_argument("--keep", action="store_true", help="keep the run directories, about 30 MB each")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one arm, one seed, 40 steps, a policy that saw little: does it work?",
    )
    parser.add_argument(
        "--report", action="store_true", help="only the table and the picture of what is there"
    )
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.arms, options.actions = 1, ["all"], 40
        options.episodes, options.environments = 1, 2
    budget = Budget(
        actions=options.actions,
        episodes=options.episodes,
        environments=options.environments,
        job=options.out.absolute() / "hard-job" if options.quick else HARD_JOB,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    missing = 0 if options.report else run_all(options, budget)
    show(options.out, budget)
    return 1 if missing else 0


# ---- runs ----


def run_all(options: argparse.Namespace, budget: Budget) -> int:
    """Every run that is missing, whole seeds first; what failed is tried once more. How many are missing."""
    prepare(budget.job, QUICK if options.quick else Size())
    wanted = [(arm, seed) for seed in range(options.seeds) for arm in (BASE, *options.arms)]
    for _ in range(2):
        for arm, seed in _missing(options.out, budget, wanted):
            run_one(options.out, arm, seed, budget, keep=options.keep)
    return len(_missing(options.out, budget, wanted))


def _missing(out: Path, budget: Budget, wanted: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    done = {(line["arm"], line["seed"]) for line in finished(out, budget)}
    return [run for run in wanted if run not in done]


def run_one(out: Path, arm: str, seed: int, budget: Budget, *, keep: bool) -> None:
    """One run from its start to its line in the raw file; a failed one is a line, too."""
    run_dir = out / "runs" / f"{arm.replace(' ', '-')}-{seed}"
    shutil.rmtree(run_dir, ignore_errors=True)
    about = {"arm": arm, "seed": seed, **_same(budget), "commit": _commit(), "started_unix_s": time.time()}
    started_s = time.monotonic()
    try:
        _train(command(arm, seed, budget, run_dir), out / "train.log")
        line = about | measured(run_dir, is_base=arm == BASE)
    except RunFailed as error:
        line = about | {"failed": str(error)}
    line["seconds"] = round(time.monotonic() - started_s, 1)
    with (out / "raw.jsonl").open("a") as lines:
        lines.write(json.dumps(line) + "\n")
    print(_told(line), flush=True)
    if not keep and "failed" not in line:
        shutil.rmtree(run_dir, ignore_errors=True)


def command(arm: str, seed: int, budget: Budget, run_dir: Path) -> list[str]:
    """The `dartrl train` of one run."""
    on = ARMS.get(arm, frozenset())
    settings = {
        "run.seed": seed,
        "run.minutes": 0.001 if arm == BASE else 0.0,  # a run that is over before it trains only measures
        "environments.count": budget.environments,
        "training.policy": f"'{budget.job / 'policy'}'",
        "training.actions": budget.actions,
        "evaluation.seeds_per_task": budget.episodes,
        "evaluation.before": str(arm == BASE).lower(),
        "evaluation.after": str(arm != BASE).lower(),
        "curation.experience_pool.folders": f"['{budget.job / 'demonstrations'}']",
        **{key: str(name in on).lower() for name, key in SWITCHES.items()},
    }
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "dart", "train", str(CONFIG), "--run-dir", str(run_dir), *overrides]


def _train(command: Sequence[str], log: Path) -> None:
    """Raises RunFailed. An interrupt drains the run before it ends this program."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = process.wait(RUN_DEADLINE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_DEADLINE_S)
            if isinstance(error, KeyboardInterrupt):
                raise
            raise RunFailed(f"not done after {RUN_DEADLINE_S:g} s") from error
    if code:
        tail = log.read_text(errors="replace").splitlines()[-5:]
        raise RunFailed(f"exit code {code}: {' | '.join(tail)}")


# ---- what a run left ----


def measured(run_dir: Path, *, is_base: bool) -> dict[str, Any]:
    """The figures of a finished run, from its record. Raises RunFailed when the record is not sound."""
    from dart.config.config import load_config
    from dart.core.records import EvaluationPhase
    from dart.core.run_directory import RunPaths
    from dart.inspect.evaluation_scores import scores
    from dart.store.reader import StoreReader

    paths = RunPaths(run_dir)
    with StoreReader(paths.store) as store:
        found = scores(
            store, load_config(paths.config), EvaluationPhase.BEFORE if is_base else EvaluationPhase.AFTER
        )
        counts = {task: [score.successes, score.episodes] for task, score in found.items()}
        if is_base:
            return {"before": counts}
        books, totals = store.conservation(), store.totals()
        if not books.holds:
            raise RunFailed(f"the books do not hold: {books}")
        metrics = [version.metrics for version in store.versions() if version.metrics]
    episodes = played(paths.store)
    return {
        "after": counts,
        "curve": curve(episodes),
        "played_actions": totals.steps,
        "rollouts": totals.trajectories,
        "trained": books.trained,
        "dropped": books.dropped,
        "drops": dict(totals.drops),
        "outcomes": dict(totals.outcomes),
        "faults": dict(totals.faults),
        "updates": len(metrics),
        **{
            f"{name}_sum": _sum(metrics, name)
            for name in ("steps", "steps_masked", "injected", "without_behaviour")
        },
        **{
            f"{name}_mean": _mean(metrics, name)
            for name in ("tis_weight", "tis_truncated", "mismatch_engine", "mismatch_stale", "staleness_mean")
        },
        "groups": groups(episodes),
    }


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """A training episode and its group's plan."""

    task_id: str
    reward: float
    steps: int
    rollouts: int
    step_cap: int


def played(store: Path) -> list[PlayedEpisode]:
    """Training episodes in the order they were stored."""
    query = """
        SELECT groups.task_id, reward, num_steps, rollouts_wanted, step_cap
        FROM trajectories JOIN groups USING (group_id) ORDER BY stored_unix_s, rollout_id
    """
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        return [PlayedEpisode(*row) for row in connection.execute(query)]


def curve(episodes: Sequence[PlayedEpisode], windows: int = WINDOWS) -> list[dict[str, float]]:
    """Means over windows of equally many environment steps, by the step their episodes ended at."""
    total = sum(episode.steps for episode in episodes)
    chosen: list[list[PlayedEpisode]] = [[] for _ in range(windows)]
    ended_at = 0
    for episode in episodes:
        ended_at += episode.steps
        chosen[min(windows - 1, ended_at * windows // (total + 1))].append(episode)
    return [
        {
            "actions": (index + 0.5) * total / windows,
            "success": _average([float(episode.reward > SUCCESS_ABOVE) for episode in window]),
            "rollouts": _average([float(episode.rollouts) for episode in window]),
            "length": _average([float(episode.steps) for episode in window]),
        }
        for index, window in enumerate(chosen)
        if window
    ]


def groups(episodes: Sequence[PlayedEpisode]) -> dict[str, dict[str, float]]:
    """By task: episodes, and the least N and step cap any of its groups had."""
    by_task: dict[str, list[PlayedEpisode]] = {}
    for episode in episodes:
        by_task.setdefault(episode.task_id, []).append(episode)
    return {
        task: {
            "episodes": len(own),
            "least_rollouts": min(episode.rollouts for episode in own),
            "least_step_cap": min(episode.step_cap for episode in own),
            "success": _average([float(episode.reward > SUCCESS_ABOVE) for episode in own]),
        }
        for task, own in sorted(by_task.items())
    }


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _sum(metrics: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(one.get(name, 0.0) for one in metrics)


def _mean(metrics: Sequence[Mapping[str, float]], name: str) -> float | None:
    values = [one[name] for one in metrics if name in one]
    return _average(values) if values else None


# ---- the raw file, table and picture ----


def finished(out: Path, budget: Budget) -> Iterator[dict[str, Any]]:
    """Lines of runs that came to their end with this budget."""
    path = out / "raw.jsonl"
    for text in path.read_text().splitlines() if path.exists() else []:
        line: dict[str, Any] = json.loads(text)
        if "failed" not in line and all(line[name] == value for name, value in _same(budget).items()):
            yield line


def _same(budget: Budget) -> dict[str, int]:
    return {
        "actions": budget.actions,
        "episodes": budget.episodes,
        "environments": budget.environments,
    }


def show(out: Path, budget: Budget) -> None:
    """Print the table; write it as JSON, and the picture."""
    every = list(finished(out, budget))
    before = {line["seed"]: line["before"] for line in every if line["arm"] == BASE}
    lines = [
        line | {"before": before[line["seed"]]}
        for line in every
        if line["arm"] in ARMS and line["seed"] in before
    ]
    found = report.rows(lines, list(ARMS))
    commits = sorted({line["commit"] for line in lines})
    condition = report.condition(list(before.values()))
    print(report.table(found))
    print(f"\n{condition}\n{len(lines)} runs, code {', '.join(commits) or 'none'}")
    about = {**_same(budget), "commits": commits, "condition": condition}
    (out / "ablation.json").write_text(json.dumps(report.to_json(found, about), indent=1) + "\n")
    report.picture(lines, found, out / "ablation.png")


def _told(line: Mapping[str, Any]) -> str:
    name = f"{line['arm']} seed {line['seed']}, {line['seconds']:.0f} s"
    if "failed" in line:
        return f"{name}: FAILED {line['failed']}"
    if line["arm"] == BASE:
        return f"{name}: before {100 * report.success(line['before']):.1f} %"
    return (
        f"{name}: after {100 * report.success(line['after']):.1f} %, {line['rollouts']} rollouts, "
        f"{line['played_actions']} actions, {line['updates']} updates, trained {line['trained']}, "
        f"dropped {line['dropped']}"
    )


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+changes" if git("status", "--porcelain") else "")


if __name__ == "__main__":
    sys.exit(main())
