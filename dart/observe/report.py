"""The final table: success of each task before and after, on held-out seeds, with 95 % intervals."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dart.observe.statistics import Interval, Score, difference_interval, mean_interval, mean_rate

if TYPE_CHECKING:
    from rich.table import Table

MEAN = "mean"
"""Name of the row over all tasks."""


class Verdict(StrEnum):
    """What the interval of the difference says."""

    IMPROVED = "improved"
    WITHIN_NOISE = "within noise"
    """The interval holds 0: these episodes cannot tell."""
    WORSE = "worse"
    NOT_COMPARED = "not compared"
    """One side was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One task, or the mean over all of them."""

    name: str
    before: float | None
    before_interval: Interval | None
    after: float | None
    after_interval: Interval | None
    difference: Interval | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """What training did to the policy, measured on held-out seeds."""

    before: Mapping[str, Score]
    """By task id; empty if it was not measured."""
    after: Mapping[str, Score]

    @property
    def tasks(self) -> list[str]:
        """Every task that was measured, in the order of the first measurement."""
        return list(dict.fromkeys([*self.before, *self.after]))

    @property
    def rows(self) -> list[ReportRow]:
        """One row per task."""
        return [_row(task, _listed(self.before, task), _listed(self.after, task)) for task in self.tasks]

    @property
    def mean(self) -> ReportRow:
        """The mean over tasks. It is compared only where both sides measured the same tasks."""
        comparable = self.before.keys() == self.after.keys()
        return _row(MEAN, list(self.before.values()), list(self.after.values()), comparable=comparable)


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


def verdict(difference: Interval | None) -> Verdict:
    """What may be said about a difference with this interval."""
    if difference is None:
        return Verdict.NOT_COMPARED
    if difference.low > 0:
        return Verdict.IMPROVED
    return Verdict.WORSE if difference.high < 0 else Verdict.WITHIN_NOISE


def to_json(report: Report) -> dict[str, Any]:
    """The table as plain data; rates and intervals in [0, 1]."""
    return {
        "confidence": 0.95,
        "tasks": [_row_json(row, report) for row in report.rows],
        MEAN: _row_json(report.mean, report),
    }


def _row_json(row: ReportRow, report: Report) -> dict[str, Any]:
    return {
        "name": row.name,
        "before": _side_json(row.before, row.before_interval, report.before.get(row.name)),
        "after": _side_json(row.after, row.after_interval, report.after.get(row.name)),
        "difference": [row.difference.low, row.difference.high] if row.difference else None,
        "verdict": row.verdict.value,
    }


def _side_json(rate: float | None, interval: Interval | None, score: Score | None) -> dict[str, Any] | None:
    if rate is None or interval is None:
        return None
    counts = {"successes": score.successes, "episodes": score.episodes} if score else {}
    return {"rate": rate, "interval": [interval.low, interval.high], **counts}


def write_json(report: Report, path: Path, *, about: Mapping[str, Any]) -> None:
    """Write the table with what is known `about` the run (seed, seconds, restarts, fates)."""
    text = json.dumps({**about, **to_json(report)}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


STYLES: Mapping[Verdict, str] = {
    Verdict.IMPROVED: "green",
    Verdict.WITHIN_NOISE: "yellow",
    Verdict.WORSE: "red",
    Verdict.NOT_COMPARED: "dim",
}


def render(report: Report) -> "Table":
    """The table for people, 80 columns wide; what all tasks have before the slash is said once."""
    from rich import box
    from rich.table import Table

    family = family_of(report.tasks)
    title = "success in % on held-out seeds, with 95 % intervals"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(f"{family} task".strip(), no_wrap=True)
    for side in ("before", "after", "change"):
        table.add_column(side, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in report.rows:
        table.add_row(row.name.removeprefix(f"{family}/"), *_cells(row))
    table.add_section()
    table.add_row(MEAN, *_cells(report.mean), style="bold")
    return table


def family_of(tasks: Iterable[str]) -> str:
    """What all tasks have before the slash; empty when they differ."""
    families = {task.rpartition("/")[0] for task in tasks}
    return families.pop() if len(families) == 1 else ""


def _cells(row: ReportRow) -> list[str]:
    """Before, after, change and verdict."""
    both = row.before is not None and row.after is not None and row.difference is not None
    change = f"{100 * ((row.after or 0) - (row.before or 0)):+.0f}" if both else "–"
    return [
        _percent(row.before, row.before_interval),
        _percent(row.after, row.after_interval),
        change,
        f"[{STYLES[row.verdict]}]{row.verdict}[/]",
    ]


def _percent(rate: float | None, interval: Interval | None) -> str:
    if rate is None or interval is None:
        return "–"
    return f"{100 * rate:.0f} [dim]({100 * interval.low:.0f} – {100 * interval.high:.0f})[/]"
