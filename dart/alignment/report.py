"""The closing report of an alignment: what was explored, and accuracy and success before and after. Pure.

Rates have 95 % intervals. The intervals of accuracies assume that samples are independent, which is only
partly true for samples of the same screen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dart.alignment.folder import Result
from dart.alignment.stages import AlignmentStage
from dart.core.statistics import Score, difference_interval
from dart.inspect.formatting import percent
from dart.inspect.report import EvaluationResult, ReportRow, SuccessReport, row_cells, row_json

if TYPE_CHECKING:
    from rich.console import Group

ALL = "all"
"""Name of the row over all samples of a data set."""

QUERY = "query"
"""Group of the rows that each have one kind of queries, in a report of accuracies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentReport:
    """The results of an alignment before and after its trainings."""

    site: str
    explored: Result
    """Numbers of actions, screens and shapes."""
    samples: Mapping[str, int]
    """Number of samples by split."""
    generic_share: float
    """Share of generic samples in the training of the grounding policy."""
    accuracy: tuple[ReportRow, ...]
    """Accuracy of the base and the aligned policy on the test split: over all samples, then by query kind."""
    generic: ReportRow | None
    """Accuracy of both policies on held-out generic data; None if no such data were given."""
    success: tuple[ReportRow, ...]
    """Success on the site's tasks, sampled and greedily, before and after reinforcement learning."""


def alignment_report(site: str, results: Mapping[AlignmentStage, Result]) -> AlignmentReport:
    """Return the closing report of an alignment from the results of all its stages."""
    base, aligned = results[AlignmentStage.MEASURE_BASE], results[AlignmentStage.MEASURE_ALIGNED]
    has_generic = base["generic"] and aligned["generic"]
    return AlignmentReport(
        site=site,
        explored=results[AlignmentStage.EXPLORE],
        samples=results[AlignmentStage.DATA],
        generic_share=results[AlignmentStage.ALIGN]["generic_share"],
        accuracy=tuple(accuracy_rows_of(base["site"], aligned["site"])),
        generic=next(accuracy_rows_of(base["generic"], aligned["generic"])) if has_generic else None,
        success=tuple(_success_rows(results[AlignmentStage.TRAIN])),
    )


def accuracy_rows_of(before: Result, after: Result) -> Iterator[ReportRow]:
    """Yield the row over all samples of a data set, then one row for each query kind.

    before, after   reports of accuracies as plain data
    """
    sides = [
        {
            one["name"]: Score(one["hits"], one["samples"])
            for one in side["rows"]
            if one["group"] in (ALL, QUERY)
        }
        for side in (before, after)
    ]
    for name in sides[0]:
        first, second = (side[name] for side in sides)
        yield ReportRow(name, first, second, difference_interval([first], [second]))


def _success_rows(trained: Result) -> Iterator[ReportRow]:
    for answers in ("sampled", "greedy"):
        if not trained[answers]:
            continue
        report = success_of(trained[answers])
        rows = [*report.rows, report.mean] if len(report.tasks) > 1 else report.rows
        for row in rows:
            yield ReportRow(f"{row.name}, {answers}", row.before, row.after, row.difference)


def success_of(table: Result) -> SuccessReport:
    """Return a report of successes from its plain data, which `dart.inspect.report.to_json` made."""
    before, after = (
        EvaluationResult(
            {
                row["name"]: Score(row[side]["successes"], row[side]["episodes"])
                for row in table["tasks"]
                if row[side]
            }
        )
        for side in ("before", "after")
    )
    return SuccessReport(before, after)


def report_json(report: AlignmentReport) -> dict[str, Any]:
    """Return a report as plain data; rates and intervals are in [0, 1]."""
    return {
        "confidence": 0.95,
        "site": report.site,
        "explored": report.explored,
        "samples": report.samples,
        "generic_share": report.generic_share,
        "accuracy": [row_json(row) for row in report.accuracy],
        "generic": row_json(report.generic) if report.generic else None,
        "success": [row_json(row) for row in report.success],
    }


def drawn(report: AlignmentReport) -> "Group":
    """Draw a report as a table, with what was explored above it."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("", "before", "after", "change", ""):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    _add_rows(table, "accuracy on unseen screens", report.accuracy)
    _add_rows(table, "accuracy on generic data", (report.generic,) if report.generic else ())
    _add_rows(table, "success in training", report.success)
    head = f"{report.site}: {explored_line(report.explored)}; {data_line(report.samples)}"
    title = f"rates in %, 95 % intervals; {percent(report.generic_share)} of the trained samples were generic"
    return Group("", Text(head), Text(title, style="italic"), table)


def _add_rows(table: Any, title: str, rows: tuple[ReportRow, ...]) -> None:
    if rows:
        table.add_row(title, style="bold")
    for row in rows:
        table.add_row(f"  {row.name}", *row_cells(row))


# ---- one line for each stage ----


def result_line(stage: AlignmentStage, result: Result) -> str:
    """Return the result of a finished stage as one line of text."""
    match stage:
        case AlignmentStage.EXPLORE:
            return explored_line(result)
        case AlignmentStage.DATA:
            return data_line(result)
        case AlignmentStage.MEASURE_BASE | AlignmentStage.MEASURE_ALIGNED:
            generic = f"; generic data {_accuracy(result['generic'])}" if result["generic"] else ""
            return f"accuracy on unseen screens {_accuracy(result['site'])}{generic}"
        case AlignmentStage.ALIGN:
            share = percent(result["generic_share"])
            return f"{result['updates']} updates on {result['site_samples']} samples, {share} of all generic"
        case AlignmentStage.TRAIN:
            return f"{result['updates']} updates, success {_success(result)}"


def explored_line(result: Result) -> str:
    """Return what an exploration found as one line of text."""
    return f"{result['screens']} screens of {result['shapes']} shapes with {result['actions']} actions"


def data_line(result: Result) -> str:
    """Return the number of samples of each split as one line of text."""
    return "samples: " + ", ".join(f"{count} {split}" for split, count in result.items())


def _accuracy(report: Result) -> str:
    row = report["rows"][0]
    return f"{percent(row['accuracy'])} ({percent(row['low'])} to {percent(row['high'])} of {row['samples']})"


def _success(result: Result) -> str:
    mean = success_of(result["sampled"]).mean
    rates = (percent(side.rate) if side else "not measured" for side in (mean.before, mean.after))
    return " -> ".join(rates)
