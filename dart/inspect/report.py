"""The final tables: success of each task before and after, on held-out seeds, with 95 % intervals.

An episode without a result is left out of the rates. How many were, and why, stands below each table, next to
the rates with those counted as failures.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dart.core.statistics import ConfidenceInterval, Score, difference_interval, mean_interval, mean_rate
from dart.inspect.formatting import DASH, counts, percent

if TYPE_CHECKING:
    from rich.console import Group

MEAN = "mean"
"""Name of the row over all tasks."""


class ChangeVerdict(StrEnum):
    """What the interval of the difference shows."""

    IMPROVED = "improved"
    WITHIN_NOISE = "within noise"
    """The interval contains 0: these episodes do not decide it."""
    WORSE = "worse"
    NOT_COMPARED = "not compared"
    """One side was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One task, or the mean over all of them."""

    name: str
    before: float | None
    before_interval: ConfidenceInterval | None
    after: float | None
    after_interval: ConfidenceInterval | None
    difference: ConfidenceInterval | None
    verdict: ChangeVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Episodes of one evaluation that have no result."""

    tasks: Mapping[str, int] = field(default_factory=dict)
    """How many of each task; a task without any is not in it."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """How many for which reason: a kind of fault, or `not played`."""
    played_again: int = 0
    """Episodes that have a result, but not from the first time they were played."""

    @property
    def episodes(self) -> int:
        """How many in all."""
        return sum(self.tasks.values())


@dataclass(frozen=True, slots=True)
class SuccessReport:
    """What training did to the policy, measured on held-out seeds."""

    before: Mapping[str, Score]
    """Score before training, by task id; empty if nothing was evaluated then."""
    after: Mapping[str, Score]
    left_out_before: LeftOut = LeftOut()
    left_out_after: LeftOut = LeftOut()
    answers: str = "sampled"
    """How the policy's answers were chosen."""

    @property
    def tasks(self) -> list[str]:
        """Every task that was to be measured, in the order of the first measurement."""
        left_out = [*self.left_out_before.tasks, *self.left_out_after.tasks]
        return list(dict.fromkeys([*self.before, *self.after, *left_out]))

    @property
    def rows(self) -> list[ReportRow]:
        """One row per task."""
        return [_row(task, _listed(self.before, task), _listed(self.after, task)) for task in self.tasks]

    @property
    def mean(self) -> ReportRow:
        """The mean over tasks. It is compared only where both sides measured the same tasks."""
        comparable = self.before.keys() == self.after.keys()
        return _row(MEAN, list(self.before.values()), list(self.after.values()), comparable=comparable)


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run measured in both ways.

    Training may raise the sampled success by certainty alone, which leaves the greedy one as it was.
    """

    sampled: SuccessReport
    """With answers sampled at `evaluation.temperature`."""
    greedy: SuccessReport
    """With the most likely answers; empty where that was not measured, or is what `sampled` holds."""

    @property
    def measured(self) -> list[SuccessReport]:
        """Those that hold a measurement."""
        return [report for report in (self.sampled, self.greedy) if report.tasks]


def rate_if_failed(scores: Mapping[str, Score], left_out: LeftOut) -> float:
    """Mean success over tasks with the episodes that were left out counted as failures."""
    tasks = scores.keys() | left_out.tasks.keys()
    return sum(_rate_if_failed(scores.get(task), left_out.tasks.get(task, 0)) for task in tasks) / len(tasks)


def _rate_if_failed(score: Score | None, left_out: int) -> float:
    return score.successes / (score.episodes + left_out) if score is not None else 0.0


def _listed(scores: Mapping[str, Score], task: str) -> list[Score]:
    return [scores[task]] if task in scores else []


def _row(name: str, before: Sequence[Score], after: Sequence[Score], *, comparable: bool = True) -> ReportRow:
    difference = difference_interval(before, after) if before and after and comparable else None
    return ReportRow(
        name=name,
        before=mean_rate(before) if before else None,
        before_interval=mean_interval(before) if before else None,
        after=mean_rate(after) if after else None,
        after_interval=mean_interval(after) if after else None,
        difference=difference,
        verdict=verdict(difference),
    )


def verdict(difference: ConfidenceInterval | None) -> ChangeVerdict:
    """What may be said about a difference with this interval."""
    if difference is None:
        return ChangeVerdict.NOT_COMPARED
    if difference.low > 0:
        return ChangeVerdict.IMPROVED
    return ChangeVerdict.WORSE if difference.high < 0 else ChangeVerdict.WITHIN_NOISE


def to_json(report: SuccessReport) -> dict[str, Any]:
    """The table as plain data; rates and intervals in [0, 1]."""
    return {
        "confidence": 0.95,
        "answers": report.answers,
        "tasks": [_row_json(row, report) for row in report.rows],
        MEAN: _row_json(report.mean, report),
        "left_out": {
            "before": _left_out_json(report.before, report.left_out_before),
            "after": _left_out_json(report.after, report.left_out_after),
        },
    }


def _left_out_json(scores: Mapping[str, Score], left_out: LeftOut) -> dict[str, Any] | None:
    """None for a side that was not measured."""
    if not scores and not left_out.episodes:
        return None
    return {
        "episodes": left_out.episodes,
        "planned": _planned(scores, left_out),
        "reasons": dict(left_out.reasons),
        "tasks": dict(left_out.tasks),
        "mean_counted_as_failures": rate_if_failed(scores, left_out),
        "played_again": left_out.played_again,
    }


def _planned(scores: Mapping[str, Score], left_out: LeftOut) -> int:
    return sum(score.episodes for score in scores.values()) + left_out.episodes


def _row_json(row: ReportRow, report: SuccessReport) -> dict[str, Any]:
    return {
        "name": row.name,
        "before": _side_json(row.before, row.before_interval, report.before.get(row.name)),
        "after": _side_json(row.after, row.after_interval, report.after.get(row.name)),
        "difference": [row.difference.low, row.difference.high] if row.difference else None,
        "verdict": row.verdict.value,
    }


def _side_json(
    rate: float | None, interval: ConfidenceInterval | None, score: Score | None
) -> dict[str, Any] | None:
    if rate is None or interval is None:
        return None
    counts = {"successes": score.successes, "episodes": score.episodes} if score else {}
    return {"rate": rate, "interval": [interval.low, interval.high], **counts}


def write_json(report: RunReport, path: Path, *, about: Mapping[str, Any]) -> None:
    """Write the tables as JSON, with facts `about` the run (seed, seconds, restarts, fates).

    The table of sampled answers is at the top, that of greedy ones under `greedy`; null if there is none.
    """
    greedy = to_json(report.greedy) if report.greedy.tasks else None
    text = json.dumps({**about, **to_json(report.sampled), "greedy": greedy}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


STYLES: Mapping[ChangeVerdict, str] = {
    ChangeVerdict.IMPROVED: "green",
    ChangeVerdict.WITHIN_NOISE: "yellow",
    ChangeVerdict.WORSE: "red",
    ChangeVerdict.NOT_COMPARED: "dim",
}


def render(report: SuccessReport) -> "Group":
    """The table for people, 80 columns wide; what all tasks have before the slash is said once.

    Below it stands how many episodes were left out.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    family = family_of(report.tasks)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(f"{family} task".strip(), no_wrap=True)
    for side in ("before", "after", "change"):
        table.add_column(side, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in report.rows:
        table.add_row(row.name.removeprefix(f"{family}/"), *_cells(row))
    table.add_section()
    table.add_row(MEAN, *_cells(report.mean), style="bold")
    title = f"success in % on held-out seeds, {report.answers}, 95 % intervals"
    return Group(Text(title, style="italic"), table, Text(left_out_text(report), style="dim"), "")


def left_out_text(report: SuccessReport) -> str:
    """How many episodes have no result, why, and what the rates are with those counted as failures."""
    sides = (
        _left_out_of("before", report.before, report.left_out_before),
        _left_out_of("after", report.after, report.left_out_after),
    )
    return "; ".join(["episodes left out", *filter(None, sides)]).replace(";", ":", 1)


def _left_out_of(side: str, scores: Mapping[str, Score], left_out: LeftOut) -> str:
    if not scores and not left_out.episodes:
        return ""
    text = f"{side} {left_out.episodes} of {_planned(scores, left_out)}"
    if left_out.episodes:
        mean = percent(rate_if_failed(scores, left_out))
        text += f" ({counts(left_out.reasons)}; mean with these as failures {mean})"
    return text + (f", played again {left_out.played_again}" if left_out.played_again else "")


def family_of(tasks: Iterable[str]) -> str:
    """What all tasks have before the slash; empty when they differ."""
    families = {task.rpartition("/")[0] for task in tasks}
    return families.pop() if len(families) == 1 else ""


def _cells(row: ReportRow) -> list[str]:
    """Before, after, change and verdict."""
    both = row.before is not None and row.after is not None and row.difference is not None
    change = f"{100 * ((row.after or 0) - (row.before or 0)):+.0f}" if both else DASH
    return [
        _rate(row.before, row.before_interval),
        _rate(row.after, row.after_interval),
        change,
        f"[{STYLES[row.verdict]}]{row.verdict}[/]",
    ]


def _rate(rate: float | None, interval: ConfidenceInterval | None) -> str:
    if rate is None or interval is None:
        return DASH
    return f"{100 * rate:.0f} [dim]({100 * interval.low:.0f} – {100 * interval.high:.0f})[/]"
