"""The ablation's table and picture, from its raw lines. `benchmarks/ablation.py` runs and writes them.

A line is one finished run: `arm`, `seed`, `before` and `after` (task id to [successes, episodes] on held-out
seeds), `curve`, and counts. Intervals are 95 % bootstrap intervals: seeds are drawn anew with replacement,
and within each drawn seed the episodes of every task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Line = Mapping[str, Any]
Scores = Mapping[str, Sequence[int]]
Floats = npt.NDArray[np.float64]

RESAMPLES = 10_000
BASELINE = "none"

PAPER = {
    "conditions": "DART (arXiv 2509.23866): UI-TARS-1.5-7B, 45 training tasks of OSWorld, pass@1 on the "
    "same tasks, one run, no intervals. It is not said whether each row has one method or all up to it; its "
    "experience pool has no row.",
    "success_percent": {
        "baseline": 28.67,
        "dynamic rollout": 50.90,
        "dynamic trajectory length": 66.11,
        "high entropy": 68.33,
        "distribution alignment": 70.55,
        "all": 72.28,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over seeds and its interval, in percent."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRow:
    """What an arm came to."""

    arm: str
    seeds: tuple[int, ...]
    before: float
    """Held-out success in percent, mean over tasks and seeds."""
    after: Estimate
    gain: Estimate | None
    """After, minus the arm without any method on the same seeds; None for that arm and without it."""
    by_task: Mapping[str, float]
    """Held-out success after, in percent."""
    rollouts: float
    trained: float
    dropped: float
    updates: float
    seconds: float


def rows(lines: Sequence[Line], arms: Sequence[str]) -> list[ArmRow]:
    """One row per arm that has a run, in the order given."""
    by_arm = {arm: {line["seed"]: line for line in lines if line["arm"] == arm} for arm in arms}
    return [_row(arm, of_seed, by_arm.get(BASELINE, {})) for arm, of_seed in by_arm.items() if of_seed]


def _row(arm: str, of_seed: Mapping[int, Line], baseline: Mapping[int, Line]) -> ArmRow:
    runs = [of_seed[seed] for seed in sorted(of_seed)]
    tasks = list(runs[0]["after"])
    shared = sorted(of_seed.keys() & baseline.keys())

    def mean(name: str) -> float:
        return float(np.mean([run[name] for run in runs]))

    return ArmRow(
        arm=arm,
        seeds=tuple(sorted(of_seed)),
        before=100 * float(np.mean([success(run["before"]) for run in runs])),
        after=_estimate([run["after"] for run in runs]),
        gain=_gain([of_seed[seed]["after"] for seed in shared], [baseline[seed]["after"] for seed in shared])
        if shared and arm != BASELINE
        else None,
        by_task={
            task: 100 * float(np.mean([success({task: run["after"][task]}) for run in runs]))
            for task in tasks
        },
        rollouts=mean("rollouts"),
        trained=mean("trained"),
        dropped=mean("dropped"),
        updates=mean("updates"),
        seconds=mean("seconds"),
    )


def success(scores: Scores) -> float:
    """Mean over tasks of the share of episodes that succeeded."""
    return float(np.mean([successes / episodes for successes, episodes in scores.values()]))


def _estimate(of_seeds: Sequence[Scores]) -> Estimate:
    draw = np.random.default_rng(0)
    chosen = _seeds_drawn(draw, len(of_seeds))
    return _interval(float(np.mean([success(scores) for scores in of_seeds])), _drawn(draw, of_seeds, chosen))


def _gain(of_arm: Sequence[Scores], of_baseline: Sequence[Scores]) -> Estimate:
    """Paired: both sides have the same drawn seeds."""
    draw = np.random.default_rng(0)
    chosen = _seeds_drawn(draw, len(of_arm))
    differences = [success(a) - success(b) for a, b in zip(of_arm, of_baseline, strict=True)]
    return _interval(
        float(np.mean(differences)), _drawn(draw, of_arm, chosen) - _drawn(draw, of_baseline, chosen)
    )


def _seeds_drawn(draw: np.random.Generator, seeds: int) -> npt.NDArray[np.int64]:
    return draw.integers(0, seeds, (RESAMPLES, seeds))


def _drawn(draw: np.random.Generator, of_seeds: Sequence[Scores], chosen: npt.NDArray[np.int64]) -> Floats:
    """Mean success of each resample. Episodes drawn with replacement are a binomial of the found share."""
    counts = np.array([list(scores.values()) for scores in of_seeds], dtype=np.int64)
    successes, episodes = counts[chosen, :, 0], counts[chosen, :, 1]
    shares: Floats = draw.binomial(episodes, successes / episodes) / episodes
    return np.asarray(shares.mean((1, 2)))


def _interval(mean: float, resamples: Floats) -> Estimate:
    low, high = np.quantile(resamples, [0.025, 0.975])
    return Estimate(mean=100 * mean, low=100 * float(low), high=100 * float(high))


HARD_PERCENT = 30.0
"""The job is hard when the policy training starts from solves less, and nothing of some task."""


def condition(before: Sequence[Scores]) -> str:
    """Whether the job is as hard as it is meant to be, in words, from what the base policy does."""
    if not before:
        return "the base policy was not measured"
    mean = 100 * float(np.mean([success(scores) for scores in before]))
    never = sorted(task for task in before[0] if not any(scores[task][0] for scores in before))
    is_hard = mean < HARD_PERCENT and never
    return (
        f"{'the job is hard' if is_hard else 'THE JOB IS NOT HARD ENOUGH'}: the base policy solves "
        f"{mean:.1f} % (less than {HARD_PERCENT:g} wanted), and never {', '.join(never) or 'nothing'}"
    )


def table(found: Sequence[ArmRow]) -> str:
    """The table as text, the paper's beside it."""
    head = f"{'arm':30} {'seeds':>5} {'before':>7} {'after (95 %)':>20} {'gain over none (95 %)':>24}"
    told = [head + f" {'rollouts':>9} {'trained':>8} {'updates':>8} {'s':>5}"]
    for row in found:
        gain = f"{row.gain.mean:+.1f} ({row.gain.low:+.1f} – {row.gain.high:+.1f})" if row.gain else "–"
        after = f"{row.after.mean:.1f} ({row.after.low:.1f} – {row.after.high:.1f})"
        told.append(
            f"{row.arm:30} {len(row.seeds):>5} {row.before:>7.1f} {after:>20} {gain:>24}"
            f" {row.rollouts:>9.0f} {row.trained:>8.0f} {row.updates:>8.1f} {row.seconds:>5.0f}"
        )
    tasks = list(found[0].by_task) if found else []
    told += ["", f"{'after, by task':30} " + " ".join(f"{_page(task):>15}" for task in tasks)]
    told += [
        f"{row.arm:30} " + " ".join(f"{row.by_task[task]:>15.1f}" for task in tasks if task in row.by_task)
        for row in found
    ]
    told += ["", f"The paper's ablation, success in %. {PAPER['conditions']}"]
    told += [f"  {name:28} {value:6.2f}" for name, value in _paper_rows()]
    return "\n".join(told)


def _paper_rows() -> list[tuple[str, float]]:
    figures = PAPER["success_percent"]
    assert isinstance(figures, dict)
    return list(figures.items())


def _page(task: str) -> str:
    return task.rpartition("/")[2][:15]


def to_json(found: Sequence[ArmRow], about: Mapping[str, Any]) -> dict[str, Any]:
    """The table as plain data."""
    return {**about, "confidence": 0.95, "arms": [asdict(row) for row in found], "paper": PAPER}


def picture(lines: Sequence[Line], found: Sequence[ArmRow], path: Path) -> None:
    """Success of each arm with its interval, and the curves of success, N and length over actions."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(13, 9), layout="constrained")
    _draw_arms(axes[0][0], found)
    shown = [row.arm for row in found if not row.arm.startswith("all but")]
    for axis, name, title in (
        (axes[0][1], "success", "success of the training rollouts, %"),
        (axes[1][0], "rollouts", "rollouts of a group (N)"),
        (axes[1][1], "length", "environment steps of an episode"),
    ):
        for arm in shown:
            _draw_curve(axis, [line for line in lines if line["arm"] == arm], name, arm)
        axis.set_xlabel("environment steps of training")
        axis.set_title(title, loc="left")
        axis.grid(alpha=0.3)
    axes[0][1].legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_arms(axis: Any, found: Sequence[ArmRow]) -> None:
    places = np.arange(len(found))[::-1]
    means = np.array([row.after.mean for row in found])
    low = means - np.array([row.after.low for row in found])
    high = np.array([row.after.high for row in found]) - means
    axis.errorbar(means, places, xerr=np.clip([low, high], 0, None), fmt="o", capsize=3)
    axis.set_yticks(places, [row.arm for row in found])
    if found:
        axis.axvline(found[0].before, color="grey", linestyle=":")
    axis.set_title("held-out success after training, %, 95 % intervals; dotted: before", loc="left")
    axis.grid(alpha=0.3, axis="x")


def _draw_curve(axis: Any, lines: Sequence[Line], name: str, label: str) -> None:
    """Mean over seeds of the windows all of them have."""
    windows = min((len(line["curve"]) for line in lines), default=0)
    if not windows:
        return
    actions = np.mean([[point["actions"] for point in line["curve"][:windows]] for line in lines], axis=0)
    values = np.mean([[point[name] for point in line["curve"][:windows]] for line in lines], axis=0)
    factor = 100 if name == "success" else 1
    is_whole = label in (BASELINE, "all")
    axis.plot(actions, factor * values, label=label, linewidth=2.5 if is_whole else 1.2)
