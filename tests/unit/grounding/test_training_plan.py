"""The learning rates and the batches by which a grounding model is trained."""

from itertools import chain, islice
from typing import Any

import pytest

from dart.grounding.training import _batches, _falling


def test_the_learning_rate_rises_for_a_tenth_of_the_updates_and_falls_to_almost_zero() -> None:
    rates = _falling(2.0, 20)

    assert rates[:3] == pytest.approx([1.0, 2.0, 2.0 * 18 / 19])
    assert rates[-1] == pytest.approx(2.0 / 19)
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert _falling(2.0, 1) == [2.0]


def test_every_sample_comes_once_before_one_comes_again_and_a_seed_repeats_the_batches() -> None:
    samples: Any = ["a", "b", "c", "d", "e"]

    batches = list(islice(_batches(samples, 2, seed=3), 5))

    drawn: list[Any] = list(chain.from_iterable(batches))
    assert [len(batch) for batch in batches] == [2] * 5
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == samples
    assert batches == list(islice(_batches(samples, 2, seed=3), 5))
