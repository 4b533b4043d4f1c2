"""The final table says what was measured and no more."""

import io
import json
from pathlib import Path

from rich.console import Console

from dart.observe.report import Report, ReportRow, Verdict, render, to_json, write_json
from dart.observe.statistics import Score

BEFORE = {"a": Score(10, 50), "b": Score(25, 50), "c": Score(45, 50)}
AFTER = {"a": Score(45, 50), "b": Score(27, 50), "c": Score(20, 50)}


def rows(report: Report) -> dict[str, ReportRow]:
    return {row.name: row for row in report.rows}


def printed(report: Report) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(report))
    return console.export_text()


def test_each_task_is_judged_by_the_interval_of_its_difference() -> None:
    verdicts = {name: row.verdict for name, row in rows(Report(BEFORE, AFTER)).items()}

    assert verdicts == {"a": Verdict.IMPROVED, "b": Verdict.WITHIN_NOISE, "c": Verdict.WORSE}


def test_the_mean_row_is_the_mean_over_tasks() -> None:
    mean = Report(BEFORE, AFTER).mean

    assert mean.before == (0.2 + 0.5 + 0.9) / 3
    assert mean.after == (0.9 + 0.54 + 0.4) / 3


def test_a_side_that_was_not_measured_is_not_compared() -> None:
    report = Report({}, AFTER)

    assert {row.verdict for row in report.rows} == {Verdict.NOT_COMPARED}
    assert report.mean.before is None
    assert "–" in printed(report)


def test_means_over_different_tasks_are_not_compared() -> None:
    report = Report(BEFORE, {"a": AFTER["a"]})

    assert report.mean.verdict is Verdict.NOT_COMPARED
    assert rows(report)["b"].after is None
    assert rows(report)["a"].verdict is Verdict.IMPROVED


def test_the_table_shows_rates_intervals_change_and_verdict() -> None:
    text = printed(Report(BEFORE, AFTER))

    (line,) = [line for line in text.splitlines() if line.strip().startswith("a ")]
    assert "20 (11 – 33)" in line
    assert "90 (79 – 96)" in line
    assert "+70" in line
    assert "improved" in line


def test_a_common_family_of_tasks_is_named_once_and_the_table_fits_80_columns() -> None:
    name = "miniwob/click-button-sequence"
    console = Console(width=80, record=True, file=io.StringIO())

    console.print(render(Report({name: Score(50, 50)}, {name: Score(50, 50)})))

    text = console.export_text()
    assert "miniwob task" in text
    assert "click-button-sequence " in text
    assert "100 (93 – 100)" in text
    assert "…" not in text


def test_an_empty_report_is_a_table_without_tasks() -> None:
    assert "mean" in printed(Report({}, {}))


def test_the_json_holds_counts_rates_and_what_is_known_about_the_run(tmp_path: Path) -> None:
    write_json(Report(BEFORE, AFTER), tmp_path / "report.json", about={"seed": 3})

    data = json.loads((tmp_path / "report.json").read_text())
    assert data["seed"] == 3
    assert data["tasks"][0]["before"]["successes"] == 10
    assert data["tasks"][0]["before"]["episodes"] == 50
    assert data["tasks"][0]["after"]["rate"] == 0.9
    assert data["tasks"][0]["verdict"] == "improved"
    assert data["mean"]["verdict"] == "within noise"


def test_the_json_leaves_out_what_was_not_measured() -> None:
    assert to_json(Report({}, AFTER))["tasks"][0]["before"] is None
