"""The comparison of evaluations with direct calls finds a difference, and takes no failure for a score."""

import pytest

from benchmarks.osworld_evaluators import compared, task_of


@pytest.mark.parametrize(
    ("direct", "judged", "lacks", "relation"),
    [
        (0.5, 0.5, False, "the same score"),
        (0.5, 0.25, False, "DIFFERENT"),
        (1.0, "fails broke", False, "DIFFERENT"),
        ("raises TypeError", "fails broke", False, "raises: no score"),
        ("raises TypeError", 0.0, True, "raises over a missing file: 0"),
        ("raises TypeError", 0.0, False, "DIFFERENT"),
        ("raises TypeError", 1.0, True, "DIFFERENT"),
        ("nan", "nan", False, "the same score"),
    ],
)
def test_a_relation_is_what_it_says(direct: object, judged: object, lacks: bool, relation: str) -> None:
    assert compared(direct, judged, lacks) == relation


def test_a_case_becomes_a_task_with_files_of_the_guest_and_of_the_network() -> None:
    case = {"function": "f", "result": {"missing": True}, "expected": {"file": "a.txt"}, "options": {"x": 1}}
    assert task_of(case)["evaluator"] == {
        "func": "f",
        "result": {"type": "vm_file", "path": "missing", "dest": "missing"},
        "expected": {"type": "cloud_file", "path": "https://corpus.example/a.txt", "dest": "a.txt"},
        "options": {"x": 1},
    }
