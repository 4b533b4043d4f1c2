"""The closing report of an alignment, from results that were read from their files."""

import io
import json
from typing import Any

from rich.console import Console

from dart.alignment.report import alignment_report, drawn, report_json, result_line
from dart.alignment.stages import AlignmentStage
from dart.core.statistics import Score
from dart.inspect.report import EvaluationResult, SuccessReport, to_json


def accuracies(**hits: tuple[int, int]) -> dict[str, Any]:
    """A report of accuracies: (hits, samples) by query kind, and over all."""
    total = sum(hit for hit, _ in hits.values()), sum(samples for _, samples in hits.values())
    rows = [("all", "all", *total), *(("query", name, *one) for name, one in hits.items())]
    keys = "group", "name", "hits", "samples"
    return {
        "rows": [
            dict(zip(keys, row, strict=True)) | {"accuracy": row[2] / row[3], "low": 0.0, "high": 1.0}
            for row in rows
        ]
    }


def success(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, Any]:
    sides = (EvaluationResult({name: Score(*one) for name, one in side.items()}) for side in (before, after))
    return to_json(SuccessReport(*sides))


def results(*, has_generic: bool = True) -> dict[AlignmentStage, Any]:
    generic = accuracies(text=(60, 100)), accuracies(text=(20, 100))
    made = {
        AlignmentStage.EXPLORE: {"actions": 100, "screens": 40, "shapes": 12, "ways": 90},
        AlignmentStage.DATA: {"train": 70, "validation": 15, "test": 100},
        AlignmentStage.MEASURE_BASE: {
            "site": accuracies(element=(5, 60), outcome=(5, 40)),
            "generic": generic[0] if has_generic else None,
        },
        AlignmentStage.ALIGN: {
            "site_samples": 70,
            "generic_samples": 30,
            "generic_share": 0.3,
            "updates": 400,
        },
        AlignmentStage.MEASURE_ALIGNED: {
            "site": accuracies(element=(50, 60), outcome=(6, 40)),
            "generic": generic[1] if has_generic else None,
        },
        AlignmentStage.TRAIN: {
            "updates": 12,
            "sampled": success({"sites/shop/easy": (2, 50)}, {"sites/shop/easy": (20, 50)}),
            "greedy": None,
        },
    }
    return {stage: json.loads(json.dumps(result)) for stage, result in made.items()}


def test_accuracy_is_compared_over_all_and_by_query_kind() -> None:
    report = alignment_report("sites/shop/explore", results())

    assert [row.name for row in report.accuracy] == ["all", "element", "outcome"]
    assert [row.verdict.value for row in report.accuracy] == ["improved", "improved", "within noise"]
    assert (report.accuracy[0].before, report.accuracy[0].after) == (Score(10, 100), Score(56, 100))


def test_what_was_forgotten_is_said_where_generic_data_was_held_out() -> None:
    forgot = alignment_report("s", results()).generic
    assert forgot is not None
    assert forgot.verdict.value == "worse"
    assert alignment_report("s", results(has_generic=False)).generic is None


def test_success_before_and_after_reinforcement_learning_is_part_of_it() -> None:
    (row,) = alignment_report("s", results()).success

    assert (row.name, row.before, row.after) == ("sites/shop/easy, sampled", Score(2, 50), Score(20, 50))


def test_json_has_every_rate_with_its_interval() -> None:
    found = json.loads(json.dumps(report_json(alignment_report("sites/shop/explore", results()))))

    assert (found["site"], found["explored"]["screens"], found["samples"]["test"]) == (
        "sites/shop/explore",
        40,
        100,
    )
    low, high = found["accuracy"][0]["after"]["interval"]
    assert low < found["accuracy"][0]["after"]["rate"] < high
    assert found["generic"]["verdict"] == "worse"


def test_the_table_shows_all_of_it() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(drawn(alignment_report("sites/shop/explore", results())))
    text = console.export_text()

    for part in (
        "40 screens of 12 shapes",
        "element",
        "outcome",
        "accuracy on generic data",
        "easy, sampled",
    ):
        assert part in text


def test_each_finished_stage_has_a_line() -> None:
    lines = {stage: result_line(stage, result) for stage, result in results().items()}

    assert lines[AlignmentStage.EXPLORE] == "40 screens of 12 shapes with 100 actions"
    assert lines[AlignmentStage.DATA] == "samples: 70 train, 15 validation, 100 test"
    assert lines[AlignmentStage.ALIGN] == "400 updates on 70 samples, 30 % of all generic"
    assert lines[AlignmentStage.TRAIN] == "12 updates, success 4 % -> 40 %"
    assert lines[AlignmentStage.MEASURE_BASE].startswith("accuracy on unseen screens 10 %")
