"""Figures as text for people."""

import pytest

from dart.inspect.formatting import percent


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, "–"),
        (0.0, "0 %"),
        (1 / 200, "<1 %"),
        (1 / 300, "<1 %"),
        (0.006, "1 %"),
        (0.425, "42 %"),
        (0.994, "99 %"),
        (199 / 200, ">99 %"),
        (299 / 300, ">99 %"),
        (1.0, "100 %"),
        (1.004, "100 %"),
    ],
)
def test_no_rate_with_a_success_is_0_percent_and_none_with_a_failure_100(
    rate: float | None, text: str
) -> None:
    assert percent(rate) == text
