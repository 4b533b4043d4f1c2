"""The map of CONTRIBUTING.md, "to change this, open that"."""

import re

import pytest

from tests.unit.docs.pages import ROOT

ROWS = re.findall(
    r"^\| (?!to change)([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.M
)


def test_the_map_has_at_least_thirty_rows() -> None:
    assert len(ROWS) >= 30
    assert len({what for what, _, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("what", "where", "tests"), ROWS, ids=[what for what, _, _ in ROWS])
def test_a_row_names_files_to_open_and_the_tests_that_hold_them(what: str, where: str, tests: str) -> None:
    opened = re.findall(r"`([\w./-]+/[\w./-]*)`", where)
    held_by = re.findall(r"`(tests/[\w./-]+\.py)`", tests)
    assert opened
    assert held_by
    assert [path for path in [*opened, *held_by] if not (ROOT / path).exists()] == []
