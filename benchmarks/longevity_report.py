"""What `benchmarks.longevity` measured, fitted, judged and drawn. Nothing here looks at a process."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import Any

MIB = 2**20
HOUR_S = 3600.0

LAUNCHER = "launcher"
"""The role of the run's main process; on the board a row without an actor."""

SUPERVISORS = ("root", "rollout_pool", "environment_pool")

WARM_UP = 0.2
"""Share of the training that is not judged: caches fill, every task is played, browsers load all pages."""

BINS = 40
"""Of the rest; each counts by its median, so that a restart in one of them is no slope."""

JUDGED_S = 600.0
"""A shorter time after the warm-up is told, not judged."""

STEADY = 1.5
"""What grows with what was played grows by about as much for each step early and late."""

Sample = Mapping[str, Any]
Point = tuple[float, float]


class Verdict(StrEnum):
    """What became of one figure over the run."""

    FLAT = "flat"
    LEVELS_OFF = "levels off"
    """It grew at first and no more."""
    WITH_DATA = "grows with what is played"
    """By as much for each environment step at the end as before."""
    GROWS = "GROWS"
    UNJUDGED = "too short to say"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure after the warm-up."""

    name: str
    unit: str
    begin: float
    """By the fit, in its unit."""
    end: float
    slope_per_h: float
    verdict: Verdict
    per_step_bytes: float | None = None
    """Of what grows with what is played: bytes for each environment step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A whole run."""

    samples: int
    stretch: int
    """Which of its starts is judged: the longest."""
    hours: float
    """Of that, from the first look to the last."""
    warm_up_s: float
    """When the judged time begins, from the start."""
    ends_s: float
    counts: Mapping[str, int]
    """How far the run was at the last look."""
    look_cpu_s: float
    """Processor time of one look, the median."""
    figures: Sequence[Figure]

    @property
    def growing(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.verdict is Verdict.GROWS]


# ---- whose process it is ----


def role_of(pid: int, parents: Mapping[int, int], names: Mapping[int, str], launcher: int) -> str:
    """The role of a process: of its own actor, or by the actor it descends from."""
    if pid == launcher:
        return LAUNCHER
    if pid in names:
        return _role_of_actor(names[pid])
    above = parents.get(pid)
    while above is not None and above not in names:
        above = parents.get(above)
    if above is None:
        return "helpers"
    role = _role_of_actor(names[above])
    return {"environments": "browsers", "supervisors": "helpers"}.get(role, role)


def _role_of_actor(name: str) -> str:
    if name in SUPERVISORS:
        return "supervisors"
    for prefix, role in (("env-", "environments"), ("rollout-", "engines")):
        if name.startswith(prefix):
            return role
    return name


# ---- series ----


def longest_stretch(samples: Sequence[Sample]) -> list[Sample]:
    """The looks between the start and the end of the run that lasted longest: every start begins anew."""
    stretches = {one["stretch"]: [s for s in samples if s["stretch"] == one["stretch"]] for one in samples}
    return max(stretches.values(), key=lambda looks: looks[-1]["t_s"], default=[])


def series(samples: Sequence[Sample]) -> dict[tuple[str, str], list[Point]]:
    """Every figure over time: (name, unit) to points of seconds and value."""
    found: dict[tuple[str, str], list[Point]] = {}

    def add(name: str, unit: str, t_s: float, value: float) -> None:
        found.setdefault((name, unit), []).append((t_s, value))

    for one in samples:
        for role, held in one["roles"].items():
            add(f"memory {role}", "MiB", one["t_s"], held["uss_bytes"] / MIB)
            for what in ("fds", "threads", "processes"):
                add(f"{what} {role}", "", one["t_s"], held[what])
        for what, value in one["disk"].items():
            is_size = what.endswith("_bytes")
            name = what.removesuffix("_bytes").replace("_", " ")
            add(f"disk {name}", "MiB" if is_size else "", one["t_s"], value / MIB if is_size else value)
        add("memory in all", "MiB", one["t_s"], sum(r["pss_bytes"] for r in one["roles"].values()) / MIB)
    return found


def judge(samples: Sequence[Sample]) -> Judged:
    """Fit and judge everything that was measured while it trained."""
    looks = longest_stretch(samples)
    training = [one for one in looks if one["training"]] or looks
    first_s, last_s = (training[0]["t_s"], training[-1]["t_s"]) if training else (0.0, 0.0)
    warm_up_s = first_s + WARM_UP * (last_s - first_s)
    steps = [(one["t_s"], float(one["counts"]["steps"])) for one in training]
    within = {
        key: [point for point in points if warm_up_s <= point[0] <= last_s]
        for key, points in series(looks).items()
    }
    return Judged(
        samples=len(samples),
        stretch=looks[0]["stretch"] if looks else 0,
        hours=(looks[-1]["t_s"] - looks[0]["t_s"]) / HOUR_S if looks else 0.0,
        warm_up_s=warm_up_s,
        ends_s=last_s,
        counts=looks[-1]["counts"] if looks else {},
        look_cpu_s=statistics.median(one["look_cpu_s"] for one in looks) if looks else 0.0,
        figures=[judge_one(*key, points, steps) for key, points in sorted(within.items()) if len(points) > 1],
    )


# ---- one figure ----


def judge_one(name: str, unit: str, points: Sequence[Point], steps: Sequence[Point]) -> Figure:
    """One figure over the judged time.

    steps   environment steps that were played, over the same time
    """
    level, slope = fitted(points)
    begins_s, ends_s = points[0][0], points[-1][0]
    begin, end = level + slope * begins_s, level + slope * ends_s
    verdict, per_step = _verdict(name, points, steps, begin, end)
    return Figure(
        name=name,
        unit=unit,
        begin=begin,
        end=end,
        slope_per_h=slope * HOUR_S,
        verdict=verdict,
        per_step_bytes=None if per_step is None else per_step * (MIB if unit == "MiB" else 1),
    )


def _verdict(
    name: str, points: Sequence[Point], steps: Sequence[Point], begin: float, end: float
) -> tuple[Verdict, float | None]:
    """The verdict, and for what grows with data its growth for each step, in the figure's unit."""
    if points[-1][0] - points[0][0] < JUDGED_S:
        return Verdict.UNJUDGED, None
    if end - begin <= tolerance(name, begin):
        return Verdict.FLAT, None
    middle = (points[0][0] + points[-1][0]) / 2
    halves = [p for p in points if p[0] <= middle], [p for p in points if p[0] >= middle]
    late = halves[1]
    if fitted(late)[1] * (late[-1][0] - late[0][0]) <= tolerance(name, begin) / 2:
        return Verdict.LEVELS_OFF, None
    if name.startswith("disk "):
        early_each, late_each = (_per_step(half, steps) for half in halves)
        if early_each and late_each and 0 < late_each < STEADY * early_each:
            return Verdict.WITH_DATA, _per_step(points, steps)
    return Verdict.GROWS, None


def _per_step(points: Sequence[Point], steps: Sequence[Point]) -> float | None:
    """How much a figure grew for each step that was played meanwhile; None when none was."""
    begins_s, ends_s = points[0][0], points[-1][0]
    played = [count for t_s, count in steps if begins_s <= t_s <= ends_s]
    grown = fitted(points)[1] * (ends_s - begins_s)
    return grown / (played[-1] - played[0]) if played and played[-1] > played[0] else None


def tolerance(name: str, level: float) -> float:
    """How much more something may be at the end, in its unit, and still be flat."""
    kind = name.partition(" ")[0]
    return max(0.05 * level, {"memory": 4.0, "disk": 2.0}.get(kind, 3.0))


def fitted(points: Sequence[Point]) -> tuple[float, float]:
    """Level at second 0 and slope a second: Theil's and Sen's line through the medians of bins.

    The median of all slopes between two bins: up to a quarter of them may be anything.
    """
    middles = binned(points)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(middles, 2) if b[0] > a[0]]
    slope = statistics.median(slopes) if slopes else 0.0
    return statistics.median(value - slope * t_s for t_s, value in middles), slope


def binned(points: Sequence[Point], bins: int = BINS) -> list[Point]:
    """Medians of time and value in bins of equal length; empty bins are left out."""
    begins_s, ends_s = points[0][0], points[-1][0]
    width_s = (ends_s - begins_s) / bins or 1.0
    held: dict[int, list[Point]] = {}
    for point in points:
        held.setdefault(min(bins - 1, int((point[0] - begins_s) / width_s)), []).append(point)
    return [
        (statistics.median(p[0] for p in held[place]), statistics.median(p[1] for p in held[place]))
        for place in sorted(held)
    ]


# ---- for people ----


def line(sample: Sample) -> str:
    """One look in a line."""
    pss = sum(role["pss_bytes"] for role in sample["roles"].values()) / MIB
    processes = sum(role["processes"] for role in sample["roles"].values())
    counts = sample["counts"]
    return (
        f"{sample['t_s'] / 60:6.1f} min  {pss:7.0f} MiB in {processes} processes, "
        f"{counts['updates']} updates, {counts['trajectories']} trajectories, {counts['restarts']} restarts"
    )


def table(judged: Judged) -> str:
    """Every figure with its verdict, what grows first."""
    far = ", ".join(f"{value} {name}" for name, value in judged.counts.items()) or "nothing"
    cost = f"{1000 * judged.look_cpu_s:.0f} ms of processor each"
    lines = [
        f"{judged.hours:.2f} hours, {judged.samples} looks ({cost}); {far}",
        f"judged from minute {judged.warm_up_s / 60:.1f} to {judged.ends_s / 60:.1f}",
        f"{'':28}{'begin':>10}{'end':>10}{'per hour':>11}",
    ]
    ordered = sorted(judged.figures, key=lambda figure: figure.verdict is not Verdict.GROWS)
    for one in ordered:
        each = "" if one.per_step_bytes is None else f", {one.per_step_bytes:.3g} for each step"
        values = f"{one.begin:10.1f}{one.end:10.1f}{one.slope_per_h:+11.2f} {one.unit:4}"
        lines.append(f"{one.name:28}{values} {one.verdict}{each}")
    return "\n".join(lines)


PANELS = (("memory", "MiB"), ("fds", ""), ("threads", ""), ("disk", "MiB"))
TITLES = {
    "memory": "own memory (USS; in all: PSS), MiB",
    "fds": "open descriptors",
    "threads": "threads",
    "disk": "on the disk, MiB",
}


def draw(samples: Sequence[Sample], judged: Judged, path: Path) -> None:
    """Four panels over hours: every role's memory, descriptors and threads, and the disk; the fits dashed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    looks = longest_stretch(samples)
    found = series(looks)
    figure, axes = pyplot.subplots(2, 2, figsize=(13, 8.5), layout="constrained")
    for axis, (kind, unit) in zip(axes.flat, PANELS, strict=True):
        _draw_panel(axis, kind, {key[0]: points for key, points in found.items() if key[1] == unit}, judged)
    updates = judged.counts.get("updates", 0)
    figure.suptitle(
        f"{judged.hours:.1f} hours of training, {updates} updates; grey: not judged; dashed: fitted slopes"
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw_panel(axis: Any, kind: str, lines: Mapping[str, Sequence[Point]], judged: Judged) -> None:
    fits = {figure.name: figure for figure in judged.figures}
    shown = {name: points for name, points in lines.items() if name.startswith(f"{kind} ")}
    ordered = sorted(shown, key=lambda name: -max(value for _, value in shown[name]))
    for name in ordered:
        hours = [t_s / HOUR_S for t_s, _ in shown[name]]
        colour = {"color": "black"} if name.endswith(" in all") else {}
        (drawn,) = axis.plot(hours, [value for _, value in shown[name]], linewidth=0.9, **colour)
        label = name.removeprefix(f"{kind} ")
        if name in fits:
            fit = fits[name]
            label += f"  {fit.slope_per_h:+.1f}/h  {fit.verdict}"
            ends = [judged.warm_up_s / HOUR_S, judged.ends_s / HOUR_S]
            axis.plot(ends, [fit.begin, fit.end], "--", color=drawn.get_color(), linewidth=1.4)
        drawn.set_label(label)
    axis.axvspan(0, judged.warm_up_s / HOUR_S, color="#999999", alpha=0.15)
    axis.set_yscale("symlog", linthresh=1.0)
    axis.set_title(TITLES[kind], fontsize=10)
    axis.set_xlabel("hours")
    axis.grid(alpha=0.25)
    axis.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
