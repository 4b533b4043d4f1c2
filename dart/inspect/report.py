"""The final tables: success of each task on held-out seeds, before and after training, with 95 % intervals.

An episode without a result is left out of the rates. Below each table stand the number of such episodes, the
reasons, and the rates that would result if these episodes were failures.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from os.path import commonpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dart.config.problems import shortened
from dart.core.pass_at_k import PassAtK
from dart.core.statistics import ConfidenceInterval, Score, difference_interval, mean_interval, mean_rate
from dart.inspect.formatting import DASH, counts, percent, whole_percent
from dart.inspect.terminal_safe import one_line

if TYPE_CHECKING:
    from rich.console import Group

MESSAGE_CHARACTERS = 200
"""Largest number of characters of a failure's message that the line below a table quotes."""

MEAN = "mean"
"""Name of the row over all tasks."""


class ChangeVerdict(StrEnum):
    """Whether success changed from the evaluation before training to the one after it."""

    IMPROVED = "improved"
    WITHIN_NOISE = "within noise"
    """The 95 % interval of the difference contains 0: these episodes do not show a change."""
    WORSE = "worse"
    NOT_COMPARED = "not compared"
    """One of the two evaluations has no result, or they did not measure the same tasks."""


@dataclass(frozen=True, slots=True)
class MeanScore:
    """Mean success over tasks, which have equal weights."""

    rate: float
    interval: ConfidenceInterval


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One row of the table: a task, or the mean over all tasks.

    `before` or `after` is None if that evaluation did not measure it.
    """

    name: str
    before: Score | MeanScore | None
    after: Score | MeanScore | None
    difference: ConfidenceInterval | None
    """95 % interval of the rate after minus the rate before; None if the two cannot be compared."""

    @property
    def verdict(self) -> ChangeVerdict:
        """What the interval `difference` says about the change."""
        if self.difference is None:
            return ChangeVerdict.NOT_COMPARED
        if self.difference.low > 0:
            return ChangeVerdict.IMPROVED
        return ChangeVerdict.WORSE if self.difference.high < 0 else ChangeVerdict.WITHIN_NOISE


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What one evaluation measured; empty before its first episode has ended."""

    scores: Mapping[str, Score] = field(default_factory=dict)
    """Score over the episodes that have a result, by task id."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of episodes without a result, by task id; a task without such episodes is not a key."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Number of episodes without a result, by reason: a kind of fault, or `not played`."""
    played_again: int = 0
    """Number of episodes that failed at first and have a result because they were played again."""
    commonest_failure: str = ""
    """The most frequent message of the failures of episodes without a result; empty if none failed."""

    @property
    def episodes_left_out(self) -> int:
        """The number of episodes without a result, over all tasks."""
        return sum(self.left_out.values())

    @property
    def planned(self) -> int:
        """The number of planned episodes, with and without a result."""
        return sum(score.episodes for score in self.scores.values()) + self.episodes_left_out

    @property
    def rate_if_failed(self) -> float:
        """The mean success over tasks if every episode without a result counts as a failure.

        raises    ZeroDivisionError if no episode was planned
        """
        tasks = self.scores.keys() | self.left_out.keys()
        rates = (
            score.successes / (score.episodes + self.left_out.get(task, 0))
            for task, score in self.scores.items()
        )
        return sum(rates) / len(tasks)

    @property
    def mean(self) -> MeanScore | None:
        """The mean over tasks; None if no episode has a result."""
        scores = list(self.scores.values())
        return MeanScore(mean_rate(scores), mean_interval(scores)) if scores else None


@dataclass(frozen=True, slots=True)
class SuccessReport:
    """Success of the policy on held-out seeds, before and after training."""

    before: EvaluationResult = EvaluationResult()
    after: EvaluationResult = EvaluationResult()
    answers: str = "sampled"
    """How the policy's answers were chosen: sampled at a temperature, or greedy."""

    @property
    def tasks(self) -> list[str]:
        """Every task that was measured or should have been, in the order of the first measurement."""
        before, after = self.before, self.after
        return list(dict.fromkeys([*before.scores, *after.scores, *before.left_out, *after.left_out]))

    @property
    def rows(self) -> list[ReportRow]:
        """One row per task."""
        return [self._row(task) for task in self.tasks]

    def _row(self, task: str) -> ReportRow:
        before, after = self.before.scores.get(task), self.after.scores.get(task)
        difference = difference_interval([before], [after]) if before and after else None
        return ReportRow(task, before, after, difference)

    @property
    def mean(self) -> ReportRow:
        """The row of the mean over tasks; no difference unless both evaluations have the same tasks."""
        before, after = self.before.scores, self.after.scores
        is_comparable = before and before.keys() == after.keys()
        difference = difference_interval([*before.values()], [*after.values()]) if is_comparable else None
        return ReportRow(MEAN, self.before.mean, self.after.mean, difference)


@dataclass(frozen=True, slots=True)
class RunReport:
    """The success of a run, measured both with sampled and with greedy answers.

    Both are needed: training may only make the policy surer of the answers that were the most likely ones
    already. This raises sampled success and leaves greedy success as it was.
    """

    sampled: SuccessReport
    """The report on answers sampled at `evaluation.temperature`."""
    greedy: SuccessReport
    """The report on the most likely answers. It is empty if these were not measured. It is also empty if
    `evaluation.temperature` is 0, because `sampled` then has them."""

    @property
    def measured(self) -> list[SuccessReport]:
        """The reports that hold a measurement."""
        return [report for report in (self.sampled, self.greedy) if report.tasks]


def to_json(report: SuccessReport) -> dict[str, Any]:
    """Return a report as plain data; rates and intervals are in [0, 1]."""
    return {
        "confidence": 0.95,
        "answers": report.answers,
        "tasks": [row_json(row) for row in report.rows],
        MEAN: row_json(report.mean),
        "left_out": {"before": _left_out_json(report.before), "after": _left_out_json(report.after)},
    }


def _left_out_json(result: EvaluationResult) -> dict[str, Any] | None:
    """The episodes without a result as plain data; None for an evaluation that was not measured."""
    if not result.planned:
        return None
    return {
        "episodes": result.episodes_left_out,
        "planned": result.planned,
        "reasons": dict(result.reasons),
        "tasks": dict(result.left_out),
        "mean_counted_as_failures": result.rate_if_failed,
        "played_again": result.played_again,
    }


def row_json(row: ReportRow) -> dict[str, Any]:
    """Return a row as plain data; rates and intervals are in [0, 1]."""
    return {
        "name": row.name,
        "before": _side_json(row.before),
        "after": _side_json(row.after),
        "difference": [row.difference.low, row.difference.high] if row.difference else None,
        "verdict": row.verdict.value,
    }


def _side_json(score: Score | MeanScore | None) -> dict[str, Any] | None:
    if score is None:
        return None
    counts = asdict(score) if isinstance(score, Score) else {}
    return {"rate": score.rate, "interval": [score.interval.low, score.interval.high], **counts}


def write_json(report: RunReport, path: Path, *, about: Mapping[str, Any]) -> None:
    """Write the tables as JSON, with facts `about` the run (seed, seconds, restarts, fates).

    The table of sampled answers is at the top level. The table of greedy answers is under `greedy`, which is
    null if there is no such table.
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
    """Draw a report as a table, 80 columns wide, and below it how many episodes were left out.

    Without an evaluation before, such as in `dartrl eval`, there is nothing to compare, so the table only has
    the success that was measured.

    If all task ids share the part before the last slash, such as `miniwob/`, only the header shows that part.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    family = family_of(report.tasks)
    is_compared = bool(report.before.planned)
    cells = row_cells if is_compared else _cells_after
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(f"{family} task".strip(), overflow="fold")  # the others keep their width
    for side in ("before", "after", "change") if is_compared else ("success",):
        table.add_column(side, justify="right", no_wrap=True)
    if is_compared:
        table.add_column("", no_wrap=True)
    for row in report.rows:
        table.add_row(short_id(row.name, family), *cells(row))
    table.add_section()
    table.add_row(MEAN, *cells(report.mean), style="bold")
    title = f"success in % on held-out seeds, {report.answers}, 95 % intervals"
    return Group(Text(title, style="italic"), table, Text(left_out_text(report), style="dim"), "")


def render_pass_rates(rates: Sequence[PassAtK]) -> "Group":
    """Draw pass@k, the mean over tasks, as a table."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("k", justify="right")
    table.add_column("pass@k", justify="right", no_wrap=True)
    for one in rates:
        table.add_row(str(one.k), _rate(MeanScore(one.rate, one.interval)))
    title = "at least one of k episodes of a task succeeds, in %, mean over tasks, 95 % intervals"
    return Group(Text(title, style="italic"), table)


def left_out_text(report: SuccessReport) -> str:
    """Say how many episodes have no result, why, and what the rates are with these episodes as failures."""
    if not report.before.planned:
        return f"episodes left out: {_left_out_of(report.after)}"
    sides = {"before": report.before, "after": report.after}
    return "episodes left out: " + "; ".join(
        f"{side} {_left_out_of(result)}" for side, result in sides.items() if result.planned
    )


def _left_out_of(result: EvaluationResult) -> str:
    text = f"{result.episodes_left_out} of {result.planned}"
    if result.episodes_left_out:
        mean = percent(result.rate_if_failed)
        message = shortened(one_line(result.commonest_failure), MESSAGE_CHARACTERS)
        reasons = counts(result.reasons) + (f", mostly: {message}" if message else "")
        text += f" ({reasons}; mean with these as failures {mean})"
    return text + (f", played again {result.played_again}" if result.played_again else "")


def family_of(tasks: Iterable[str]) -> str:
    """Return the parts before slashes with which all these task ids begin, such as `sites` or `sites/mail`.

    Without the family, the ids are short and still different (`short_id`). Empty if they share no part.
    """
    parents = [task.rpartition("/")[0] for task in tasks]
    return commonpath(parents) if parents else ""


def short_id(task_id: str, family: str) -> str:
    """Return a task id without the family of all tasks that are shown."""
    return task_id.removeprefix(f"{family}/")


def row_cells(row: ReportRow) -> list[str]:
    """Return the cells of a row: before, after, change and verdict."""
    change = DASH
    if row.before and row.after and row.difference:
        change = f"{round(100 * (row.after.rate - row.before.rate)):+d}"  # a whole number is never -0
    return [_rate(row.before), _rate(row.after), change, f"[{STYLES[row.verdict]}]{row.verdict}[/]"]


def _cells_after(row: ReportRow) -> list[str]:
    return [_rate(row.after)]


def _rate(score: Score | MeanScore | None) -> str:
    if score is None:
        return DASH
    low, high = score.interval.low, score.interval.high
    return f"{whole_percent(score.rate)} [dim]({100 * low:.0f} – {100 * high:.0f})[/]"
