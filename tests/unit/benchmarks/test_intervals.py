"""The intervals of means over runs."""

import math
import statistics
from random import Random

import pytest

from benchmarks.exploration import mean_and_half
from benchmarks.grounding import mean_with_interval
from benchmarks.intervals import half_width


def test_the_interval_is_students() -> None:
    values = [5.0, 7.0, 8.0, 12.0]  # mean 8, standard error 1.472, 3 degrees of freedom
    assert half_width(values) == pytest.approx(3.182 * math.sqrt(26 / 3) / 2, rel=1e-3)
    assert half_width([3.0]) is None
    assert half_width([]) is None


@pytest.mark.parametrize("count", [2, 5, 6, 7, 10, 21, 40])
def test_about_95_of_100_intervals_hold_the_mean_whatever_the_number_of_values(count: int) -> None:
    draw = Random(count)
    samples = [[draw.gauss(1.0, 3.0) for _ in range(count)] for _ in range(3000)]
    halves = [half_width(values) for values in samples]
    held = sum(
        half is not None and abs(statistics.fmean(values) - 1.0) <= half
        for values, half in zip(samples, halves, strict=True)
    )
    assert 0.93 <= held / len(samples) <= 0.97


def test_tables_of_many_seeds_or_tasks_have_intervals() -> None:
    values = [0.1 * number for number in range(10)]
    for mean, half in (mean_and_half(values), mean_with_interval(values)):
        assert mean == pytest.approx(0.45)
        assert half == pytest.approx(half_width(values))
        assert math.isfinite(half)
    assert mean_and_half([0.5]) == (0.5, math.inf)
