"""Thresholds follow from labelled pairs of screens."""

import pytest

from benchmarks.matching_calibration import LabelledPair, Thresholds, calibrate, operating_point

PAIRS = [
    LabelledPair(0.00, 0.00, True),
    LabelledPair(0.02, 0.01, True),
    LabelledPair(0.06, 0.00, False),
    LabelledPair(0.02, 0.30, False),
]


def test_rates_are_those_of_the_labels() -> None:
    found = operating_point(PAIRS, Thresholds(d_dom=0.1, d_img=0.02))
    assert (found.true_positive_rate, found.false_positive_rate) == (1.0, 0.5)


def test_calibration_takes_the_smallest_thresholds_that_separate_best() -> None:
    best = calibrate(PAIRS, d_doms=[0.0, 0.02, 0.04, 0.1], d_imgs=[0.0, 0.01, 0.02, 0.5])
    assert best.thresholds == Thresholds(d_dom=0.02, d_img=0.01)
    assert best.youden == 1.0


def test_calibration_needs_pairs_of_both_labels() -> None:
    with pytest.raises(ValueError, match="got none labelled is_same=False"):
        operating_point(PAIRS[:2], Thresholds(d_dom=0.1, d_img=0.02))
