"""Figures as text for people."""

import pytest

from dart.inspect.formatting import percent, size


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


@pytest.mark.parametrize(
    ("count_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2**20, "1.0 MiB"),
        (3.4 * 2**20, "3.4 MiB"),
        (2**30, "1.0 GiB"),
    ],
)
def test_bytes_are_shown_in_the_largest_unit_that_they_fill(count_bytes: float, text: str) -> None:
    assert size(count_bytes) == text
