"""Training and held-out seeds never meet."""

import pytest

from dart.core import seeds


def test_no_seed_is_both_trained_on_and_held_out() -> None:
    assert not set(seeds.TRAINING_SEEDS[::999]) & set(seeds.HELD_OUT_SEEDS[::999])
    assert seeds.TRAINING_SEEDS.stop <= seeds.HELD_OUT_SEEDS.start


def test_a_model_card_is_measured_on_seeds_that_no_run_is_trained_or_evaluated_on() -> None:
    """A base policy is chosen by its card."""
    assert seeds.HELD_OUT_SEEDS.stop <= seeds.MODEL_CARD_SEEDS.start
    assert all(map(seeds.is_held_out, seeds.MODEL_CARD_SEEDS[::9999]))


def test_the_first_and_last_seed_of_each_side_know_their_side() -> None:
    assert not seeds.is_held_out(seeds.training_seed(0))
    assert not seeds.is_held_out(seeds.training_seed(999_999))
    assert seeds.is_held_out(seeds.held_out_seed(0))
    assert seeds.is_held_out(seeds.held_out_seed(999_999))


@pytest.mark.parametrize("index", [-1, 1_000_000])
def test_an_index_past_the_end_is_an_error_and_not_a_seed_of_the_other_side(index: int) -> None:
    with pytest.raises(IndexError, match=f"got: {index}"):
        seeds.training_seed(index)
    with pytest.raises(IndexError, match=f"got: {index}"):
        seeds.held_out_seed(index)
