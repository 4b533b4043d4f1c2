"""The final table says what was measured and no more."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from dart.core.statistics import Score
from dart.inspect.report import (
    ChangeVerdict,
    EvaluationResult,
    ReportRow,
    RunReport,
    SuccessReport,
    family_of,
    render,
    row_cells,
    short_id,
    to_json,
    write_json,
)

BEFORE = EvaluationResult({"a": Score(10, 50), "b": Score(25, 50), "c": Score(45, 50)})
AFTER = EvaluationResult({"a": Score(45, 50), "b": Score(27, 50), "c": Score(20, 50)})


def rows(report: SuccessReport) -> dict[str, ReportRow]:
    return {row.name: row for row in report.rows}


def printed(report: SuccessReport) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(report))
    return console.export_text()


def test_each_task_is_judged_by_the_interval_of_its_difference() -> None:
    verdicts = {name: row.verdict for name, row in rows(SuccessReport(BEFORE, AFTER)).items()}

    assert verdicts == {
        "a": ChangeVerdict.IMPROVED,
        "b": ChangeVerdict.WITHIN_NOISE,
        "c": ChangeVerdict.WORSE,
    }


def test_the_mean_row_is_the_mean_over_tasks() -> None:
    mean = SuccessReport(BEFORE, AFTER).mean

    assert mean.before is not None
    assert mean.before.rate == pytest.approx((0.2 + 0.5 + 0.9) / 3)
    assert mean.after is not None
    assert mean.after.rate == pytest.approx((0.9 + 0.54 + 0.4) / 3)


def test_the_table_shows_no_100_with_a_failure_and_no_change_of_minus_0() -> None:
    before = EvaluationResult({"a": Score(1, 400), "b": Score(400, 400)})
    after = EvaluationResult({"a": Score(0, 400), "b": Score(399, 400)})

    cells = [line.split() for line in printed(SuccessReport(before, after)).splitlines()]

    shown = {line[0]: line for line in cells if line and line[0] in ("a", "b", "mean")}
    assert shown["a"][:5] == ["a", "<1", "(0", "–", "1)"]
    assert shown["a"][5] == "0", "no success at all"
    assert shown["b"][1] == "100", "no failure at all"
    assert shown["b"][5] == ">99"
    assert {name: line[9] for name, line in shown.items()} == {"a": "+0", "b": "+0", "mean": "+0"}


def test_a_change_is_green_where_it_is_better_and_red_where_it_is_worse() -> None:
    verdicts = {name: row_cells(row)[-1] for name, row in rows(SuccessReport(BEFORE, AFTER)).items()}

    assert verdicts == {
        "a": "[green]improved[/]",
        "b": "[yellow]within noise[/]",
        "c": "[red]worse[/]",
    }


def test_a_side_that_was_not_measured_is_not_compared() -> None:
    report = SuccessReport(after=AFTER)

    assert {row.verdict for row in report.rows} == {ChangeVerdict.NOT_COMPARED}
    assert report.mean.before is None


def test_a_table_of_one_evaluation_has_its_success_and_no_comparison() -> None:
    text = printed(SuccessReport(after=AFTER))

    assert "success " in text.splitlines()[2]
    assert "90 (79 – 96)" in text
    assert "episodes left out: 0 of 150" in text
    assert [word for word in ("before", "after", "change", "not compared") if word in text] == []


def test_means_over_different_tasks_are_not_compared() -> None:
    report = SuccessReport(BEFORE, EvaluationResult({"a": Score(45, 50)}))

    assert report.mean.verdict is ChangeVerdict.NOT_COMPARED
    assert rows(report)["b"].after is None
    assert rows(report)["a"].verdict is ChangeVerdict.IMPROVED


def test_the_table_shows_rates_intervals_change_and_verdict() -> None:
    text = printed(SuccessReport(BEFORE, AFTER))

    (line,) = [line for line in text.splitlines() if line.strip().startswith("a ")]
    assert "20 (11 – 33)" in line
    assert "90 (79 – 96)" in line
    assert "+70" in line
    assert "improved" in line


def test_a_common_family_of_tasks_is_named_once_and_the_table_fits_80_columns() -> None:
    name = "miniwob/click-button-sequence"
    console = Console(width=80, record=True, file=io.StringIO())

    measured = EvaluationResult({name: Score(50, 50)})
    console.print(render(SuccessReport(measured, measured)))

    text = console.export_text()
    assert "miniwob task" in text
    assert "click-button-sequence " in text
    assert "100 (93 – 100)" in text
    assert "…" not in text


def test_a_long_task_id_takes_a_second_line_and_cuts_no_verdict() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    names = ("miniwob/use-autocomplete-nodelay-of-another-kind", "miniwob/click-tab")
    half = EvaluationResult(dict.fromkeys(names, Score(20, 50)))
    console.print(render(SuccessReport(half, half)))

    text = console.export_text()
    assert text.count("within noise") == 3
    assert "…" not in text


def test_an_empty_report_is_a_table_without_tasks() -> None:
    assert "mean" in printed(SuccessReport())


def test_the_json_holds_counts_rates_and_what_is_known_about_the_run(tmp_path: Path) -> None:
    measured = RunReport(SuccessReport(BEFORE, AFTER), SuccessReport())
    write_json(measured, tmp_path / "report.json", about={"seed": 3})

    data = json.loads((tmp_path / "report.json").read_text())
    assert data["seed"] == 3
    assert data["tasks"][0]["before"]["successes"] == 10
    assert data["tasks"][0]["before"]["episodes"] == 50
    assert data["tasks"][0]["after"]["rate"] == 0.9
    assert data["tasks"][0]["verdict"] == "improved"
    assert data["mean"]["verdict"] == "within noise"
    assert data["greedy"] is None


def test_the_json_leaves_out_what_was_not_measured() -> None:
    assert to_json(SuccessReport(after=AFTER))["tasks"][0]["before"] is None


def test_what_was_left_out_stands_with_its_reasons_and_the_rate_that_counts_it_as_failed() -> None:
    before = EvaluationResult({"a": Score(50, 50)})
    after = EvaluationResult({"a": Score(45, 50)}, {"a": 50}, {"evaluator": 49, "not played": 1}, 2)

    text = " ".join(printed(SuccessReport(before, after)).split())

    assert "episodes left out: before 0 of 50; after 50 of 100" in text
    assert "(49 evaluator, 1 not played; mean with these as failures 45 %), played again 2" in text


def test_a_task_without_any_result_is_a_row_and_counts_as_failed() -> None:
    report = SuccessReport(after=EvaluationResult({"a": Score(40, 40)}, {"b": 40}, {"task": 40}))

    data = to_json(report)

    assert [row["name"] for row in data["tasks"]] == ["a", "b"]
    assert data["tasks"][1]["after"] is None
    assert data["left_out"] == {
        "before": None,
        "after": {
            "episodes": 40,
            "planned": 80,
            "reasons": {"task": 40},
            "tasks": {"b": 40},
            "mean_counted_as_failures": 0.5,
            "played_again": 0,
        },
    }


def test_sampled_and_greedy_success_stand_beside_each_other(tmp_path: Path) -> None:
    both = RunReport(
        SuccessReport(BEFORE, AFTER, answers="sampled at temperature 1"), SuccessReport(AFTER, AFTER)
    )

    write_json(both, tmp_path / "report.json", about={})

    data = json.loads((tmp_path / "report.json").read_text())
    assert data["answers"] == "sampled at temperature 1"
    assert data["greedy"]["mean"]["before"]["rate"] == data["mean"]["after"]["rate"]
    assert "sampled at temperature 1" in printed(both.sampled)


def test_tasks_are_shown_without_the_parts_that_all_their_ids_begin_with() -> None:
    sites = ["sites/mail/easy", "sites/shop/easy"]
    assert family_of(sites) == "sites"
    assert [short_id(one, "sites") for one in sites] == ["mail/easy", "shop/easy"]
    assert family_of(["osworld/chrome/1", "osworld/gimp/2"]) == "osworld"
    assert family_of(["miniwob/click-test", "miniwob/enter-text"]) == "miniwob"
    assert family_of(["miniwob/click-test", "sites/mail/easy"]) == ""
    assert family_of(["alone"]) == family_of([]) == ""
