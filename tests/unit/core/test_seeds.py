"""Training and held-out seeds never meet."""

from dart.core import seeds


def test_no_seed_is_both_trained_on_and_held_out() -> None:
    assert not set(seeds.TRAINING_SEEDS[::999]) & set(seeds.HELD_OUT_SEEDS[::999])
    assert seeds.TRAINING_SEEDS.stop <= seeds.HELD_OUT_SEEDS.start


def test_a_model_card_is_measured_on_seeds_that_no_run_is_trained_or_evaluated_on() -> None:
    """A base policy is chosen by its card."""
    assert seeds.HELD_OUT_SEEDS.stop <= seeds.MODEL_CARD_SEEDS.start
    assert all(map(seeds.is_held_out, seeds.MODEL_CARD_SEEDS[::9999]))


def test_the_first_and_last_seed_of_each_side_know_their_side() -> None:
    for seeds_of_side, is_held_out in ((seeds.TRAINING_SEEDS, False), (seeds.HELD_OUT_SEEDS, True)):
        assert [seeds.is_held_out(seeds_of_side[end]) for end in (0, -1)] == [is_held_out] * 2
