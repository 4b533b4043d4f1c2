"""docs/conformance.md is current, and every known case has exactly one verdict."""

from collections import Counter

import pytest

from scripts.generate_conformance import DIFFERENT, NOT_APPLICABLE, PAGE, answers, known_cases, page

pytestmark = pytest.mark.slow


def names() -> list[str]:
    return [name.rstrip("†") for group in known_cases().values() for name in group]


def test_the_page_is_what_the_tests_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python scripts/generate_conformance.py"


def test_every_case_is_listed_once() -> None:
    assert [name for name, times in Counter(names()).items() if times > 1] == []
    counts = {heading.partition(":")[0]: 0 for heading in known_cases()}
    for heading, group in known_cases().items():
        counts[heading.partition(":")[0]] += len(group)
    assert counts == {"supervisor_SUITE": 93, "Elixir": 16 + 41}


def test_every_case_is_answered_by_a_test_or_does_not_apply() -> None:
    answered = set(answers())
    assert set(names()) - answered - set(NOT_APPLICABLE) == set()
    assert answered & set(NOT_APPLICABLE) == set()


def test_no_test_and_no_note_is_about_a_case_that_does_not_exist() -> None:
    assert (set(answers()) | set(NOT_APPLICABLE) | set(DIFFERENT)) - set(names()) == set()


def test_every_answer_runs_somewhere() -> None:
    assert all(a.in_process or a.on_processes for group in answers().values() for a in group)
