"""The tables and pictures of `benchmarks.decoupling`, its goals, and whether they were reached."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.actors import number
from benchmarks.decoupling_cells import COUPLED, DECOUPLED, Cell, config_of
from benchmarks.simulated_run import Bound, Prediction, ideal, predict

COMPARED = ("actions_per_min", "raw_actions_per_min", "env_util", "rollout_util", "tokens_per_s")
"""Told as a ratio to the first arm."""

DART = {"actions_per_min": 1.9, "env_util": 5.5, "rollout_util": 1.6}
"""Ratios of arXiv 2509.23866 (22.6 to 43.6 actions/min, 12.2 to 67.7 %, 29.6 to 46.7 % of GPUs)."""

STEADY_UPDATES = 5
"""Fewer whole updates use up what was played before them: more comes out of them than goes in."""

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
            at_least(f"engines busy, {DECOUPLED}, within 5 % of the bound", busy, 0.95 * bound.rollout_util),
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
    too_short: str = ""
    """Why there are no rates, in words; empty where there are."""

    def arm_spread(self, arm: str, figure: str) -> dict[str, float] | None:
        return spread(list(series(self.results, self.cell.name, arm, figure).values()))

    def as_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        first = self.cell.arms[0].name
        return {
            "bound": None if self.bound is None else asdict(self.bound),
            "bound_in_words": self.cell.bound,
            "too_short": self.too_short,
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


def judged(cell: Cell, results: Sequence[Mapping[str, Any]], updates: int, warm_up: int) -> Report:
    """Bounds, predictions and goals of one cell. Runs too short for a steady state have no figure of those
    that have a bound."""
    if not cell.is_simulated:
        return Report(
            cell=cell, results=results, bound=None, predictions={}, goals=goals_of(cell, results, None)
        )
    bound = ideal(config_of(cell, cell.arms[0], 0, updates))
    predictions = {arm.name: predict(config_of(cell, arm, 0, updates), 60) for arm in cell.arms}
    too_short = why_too_short(updates - warm_up)
    known = [without_rates(result, bound) for result in results] if too_short else results
    return Report(
        cell=cell,
        results=known,
        bound=bound,
        predictions=predictions,
        goals=goals_of(cell, known, bound),
        too_short=too_short,
    )


def why_too_short(measured: int) -> str:
    """Why no rate is taken over so many updates; empty when one is."""
    if measured >= STEADY_UPDATES:
        return ""
    were = "update was" if measured == 1 else "updates were"
    return f"too short: {measured} {were} measured, a steady state takes at least {STEADY_UPDATES}"


def without_rates(result: Mapping[str, Any], bound: Bound) -> dict[str, Any]:
    """The result of a run without the figures that have a bound, and without their quotients."""
    if "figures" not in result:
        return dict(result)
    figures = {
        name: None if hasattr(bound, name) or name == "goodput" else value
        for name, value in result["figures"].items()
    }
    return {**result, "figures": figures}


def is_above(found: Mapping[str, float], bound: float | None) -> bool:
    """Whether the median of a figure is more than there can be; rounding is not."""
    return bound is not None and found["median"] > bound * (1 + 1e-6)


def above_bound(report: Report) -> list[str]:
    """Figures above their bound, in words: what measured them is at fault."""
    wrong = []
    for arm in report.cell.arms:
        for figure, _ in SHOWN:
            bound, found = getattr(report.bound, figure, None), report.arm_spread(arm.name, figure)
            if bound is not None and found is not None and is_above(found, bound):
                wrong.append(
                    f"{report.cell.name} {arm.name}: {figure} is {shown(figure, found['median'])}, above its "
                    f"bound of {shown(figure, bound)}: the measurement is at fault"
                )
    return wrong


def table(report: Report) -> str:
    """One cell for people: a block for each figure, an arm a line, the bound beside it."""
    cell, lines = report.cell, []
    lines.append(f"== {cell.name}: {cell.config}, medians over seeds (quartiles); simulated: without actors")
    if report.too_short:
        lines.append(report.too_short)
    for figure, title in SHOWN:
        bound = getattr(report.bound, figure, None)
        beside = f"   bound {shown(figure, bound)}" if bound is not None else ""
        lines.append(f"{title}{beside}")
        for arm in cell.arms:
            found = report.arm_spread(arm.name, figure)
            if found is None:
                lines.append(f"    {arm.name:24} not measured")
                continue
            if is_above(found, bound):
                lines.append(f"    {arm.name:24} above its bound: the measurement is at fault")
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
