"""Which version sampled which token."""

import pytest

from dart.core.types import VersionSpan
from dart.inference.version_spans import oldest, spans_of


def test_an_answer_of_one_version_is_one_span() -> None:
    assert spans_of([("3", 0, 7)], 7) == (VersionSpan(version=3, end=7),)


def test_spans_follow_one_another_and_empty_ones_are_left_out() -> None:
    spans = spans_of([("3", 0, 2), ("4", 2, 2), ("5", 2, 7)], 7)
    assert spans == (VersionSpan(version=3, end=2), VersionSpan(version=5, end=7))
    assert oldest(spans) == 3


@pytest.mark.parametrize(
    "reported", [[], [("3", 0, 0)], [("3", 1, 7)], [("3", 0, 6)], [("3", 0, 2), ("4", 3, 7)]]
)
def test_no_spans_and_spans_with_a_hole_are_refused(reported: list[tuple[str, int, int]]) -> None:
    with pytest.raises(ValueError, match="cover 7 tokens"):
        spans_of(reported, 7)
