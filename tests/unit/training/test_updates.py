"""The loop of optimizer steps of supervised training, with one weight whose gradients are given."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise, repeat

import pytest
import torch
from torch import nn

from dart.training.updates import REPORT_EVERY, run_updates


def steps_of(
    weight: nn.Parameter,
    gradients: Iterator[float],
    lrs: list[float],
    report: Callable[[str], None] = lambda _: None,
) -> list[float]:
    """Run plain gradient descent with these gradients; returns how far each step moved the weight."""
    places: list[float] = []

    def add_gradient() -> str:
        places.append(float(weight.detach()))
        (weight * next(gradients)).backward()  # type: ignore[no-untyped-call]
        return f"loss {len(places)}"

    optimizer = torch.optim.SGD([weight], lr=9.0)
    run_updates(optimizer, [weight], lrs, 2.0, add_gradient, report)
    places.append(float(weight.detach()))
    return [after - before for before, after in pairwise(places)]


@pytest.fixture
def weight() -> nn.Parameter:
    return nn.Parameter(torch.zeros(()))


def test_each_step_has_its_own_gradient_and_learning_rate(weight: nn.Parameter) -> None:
    assert steps_of(weight, iter([1.0, -1.0, 2.0]), [0.5, 0.25, 0.1]) == pytest.approx([-0.5, 0.25, -0.2])


def test_a_gradient_beyond_the_largest_norm_is_shortened(weight: nn.Parameter) -> None:
    assert steps_of(weight, iter([100.0]), [0.5]) == pytest.approx([-1.0])


@pytest.mark.parametrize(("updates", "reported"), [(1, [1]), (REPORT_EVERY, [20]), (45, [20, 40, 45])])
def test_the_loss_is_reported_at_intervals_and_at_the_end(
    weight: nn.Parameter, updates: int, reported: list[int]
) -> None:
    lines: list[str] = []
    steps_of(weight, repeat(1.0), [0.1] * updates, lines.append)
    assert lines == [f"update {number}/{updates} loss {number}" for number in reported]


@pytest.mark.parametrize("wild", [math.nan, math.inf])
def test_training_that_diverges_says_so_with_the_remedy_before_the_step_is_made(
    weight: nn.Parameter, wild: float
) -> None:
    with pytest.raises(
        FloatingPointError, match=r"the gradient of update 2 is .* at the learning rate 0\.25; lower"
    ):
        steps_of(weight, iter([1.0, wild]), [0.5, 0.25])
    assert float(weight.detach()) == pytest.approx(-0.5)
