"""Choosing among candidates, and the points that a verifier learns from."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dart.core.boxes import Box
from dart.grounding.verification import (
    MarkedPoint,
    Verified,
    choose,
    near_misses,
    other_centres,
    training_points,
)
from dart.grounding.verifier import Verifier, verifier_loss
from dart.policy.protocols import Pixels
from tests.unit.grounding.samples import made_sample, samples

POINTS = [(0.1, 0.1), (0.2, 0.2), (0.3, 0.3)]


def scorer(*scores: float):  # type: ignore[no-untyped-def]
    found = dict(zip(POINTS, scores, strict=True))
    return lambda point: found[point]


def test_the_first_candidate_that_is_good_enough_ends_the_search() -> None:
    assert choose(POINTS, scorer(0.5, 0.8, 0.99)) == Verified(1, 0.8, 2)


def test_the_best_of_all_is_chosen_when_none_is_good_enough() -> None:
    assert choose(POINTS, scorer(0.5, 0.7, 0.6)) == Verified(1, 0.7, 3)


def test_the_first_of_equals_is_chosen() -> None:
    assert choose(POINTS, scorer(0.5, 0.5, 0.5)).index == 0


def test_no_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one candidate"):
        choose([], lambda point: 1.0)


def test_near_misses_lie_one_and_two_patches_outside_of_each_side() -> None:
    points = near_misses(Box(0.4, 0.4, 0.6, 0.5), (0.05, 0.1))

    assert {(round(x, 6), round(y, 6)) for x, y in points} == {
        *((0.35, 0.45), (0.3, 0.45), (0.65, 0.45), (0.7, 0.45)),
        *((0.5, 0.3), (0.5, 0.2), (0.5, 0.6), (0.5, 0.7)),
    }


def test_near_misses_beyond_the_screen_are_left_out() -> None:
    assert near_misses(Box(0.0, 0.0, 1.0, 0.5), (0.1, 0.1)) == [
        pytest.approx((0.5, 0.6)),
        pytest.approx((0.5, 0.7)),
    ]


def test_elements_inside_of_the_box_are_no_negatives() -> None:
    sample = made_sample(Box(0, 0, 50, 50), [Box(0, 0, 50, 50), Box(10, 10, 20, 20), Box(60, 60, 80, 80)])

    assert other_centres(sample, sample.box.scaled(0.01, 0.01)) == [pytest.approx((0.7, 0.7))]


def test_there_are_as_many_right_as_wrong_points_of_all_three_kinds() -> None:
    elements = [Box(10, 10, 30, 30), Box(60, 60, 80, 80)]
    samples = [made_sample(elements[0], elements)] * 30
    points = list(training_points(samples, lambda _: (0.05, 0.05), random.Random(0)))
    right = [one.point for one in points if one.is_right]
    wrong = [one.point for one in points if not one.is_right]
    box = Box(0.1, 0.1, 0.3, 0.3)

    assert len(right) == len(wrong) == 30
    assert all(box.contains(*point) for point in right)
    assert not any(box.contains(*point) for point in wrong)
    assert sum(point == pytest.approx((0.7, 0.7)) for point in wrong) == 10
    near = near_misses(box, (0.05, 0.05))
    assert sum(point in near for point in wrong) == 10


def test_an_element_that_fills_the_screen_teaches_nothing() -> None:
    samples = [made_sample(Box(0, 0, 95, 95))]
    assert list(training_points(samples, lambda _: (0.1, 0.1), random.Random(0))) == []


def test_a_near_miss_is_as_far_outside_as_the_patches_of_its_own_screen_are_large() -> None:
    wide = made_sample(Box(10, 10, 30, 30))
    tall = replace(wide, height_px=200, box=Box(10, 20, 30, 60))
    patches = {100: (0.05, 0.1), 200: (0.1, 0.05)}
    draw = random.Random(0)

    turns = ([wide, tall], [tall, wide]) * 20  # they decide on the kinds of the wrong points
    points = [
        one
        for order in turns
        for one in training_points(order, lambda sample: patches[sample.height_px], draw)
    ]

    box = Box(0.1, 0.1, 0.3, 0.3)
    for height_px, patch in patches.items():
        wrong = {one.point for one in points if one.sample.height_px == height_px and not one.is_right}
        assert wrong & {*near_misses(box, patch)}
        assert not wrong & ({*near_misses(box, patch[::-1])} - {*near_misses(box, patch)})


class SureOfTrue(Verifier):
    """Finds every point right, with a logit of 2 for True and of 0 for False."""

    def logits(self, crops: Sequence[Pixels], instructions: Sequence[str]) -> torch.Tensor:
        return torch.tensor([[2.0, 0.0]] * len(crops))

    def patch(self, image: Pixels) -> tuple[float, float]:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def test_the_score_of_a_point_is_the_probability_of_true_which_a_right_point_teaches(tmp_path: Path) -> None:
    of_true = 1 / (1 + math.exp(-2.0))
    sample = samples(tmp_path)[0]
    point = (0.5, 0.5)

    assert SureOfTrue().score(np.zeros((20, 20, 3), np.uint8), "click it", point) == pytest.approx(of_true)
    for is_right, probability in ((True, of_true), (False, 1 - of_true)):
        loss = verifier_loss(SureOfTrue(), [MarkedPoint(sample, point, is_right)])
        assert float(loss) == pytest.approx(-math.log(probability))
