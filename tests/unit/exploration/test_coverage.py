"""The coverage curve and its slope."""

import pytest

from dart.exploration.coverage import CoveragePoint, at, coverage_curve, is_flat, slope


def test_a_curve_has_a_point_wherever_something_was_found() -> None:
    curve = coverage_curve([(1, "a"), (4, "b"), (4, "b"), (7, "a")], actions=10)
    assert curve == [
        CoveragePoint(0, 0, 0),
        CoveragePoint(1, 1, 1),
        CoveragePoint(4, 3, 2),
        CoveragePoint(7, 4, 2),
        CoveragePoint(10, 4, 2),
    ]
    assert at(curve, 6) == at(curve, 4) == CoveragePoint(4, 3, 2)


def test_a_curve_is_flat_after_100_actions_with_less_than_one_new_shape_in_25() -> None:
    four_late = [(number, f"shape {number}") for number in (1, 110, 120, 130, 140)]
    assert not is_flat(coverage_curve(four_late, 205))
    assert slope(coverage_curve(four_late, 205)) == pytest.approx(4 / 100)
    assert is_flat(coverage_curve(four_late, 211))


def test_a_young_exploration_is_never_flat() -> None:
    assert not is_flat(coverage_curve([(1, "a")], 99))
    assert is_flat(coverage_curve([(1, "a")], 100))
