"""Items are found by their share of all weight, whatever came before."""

from hypothesis import given
from hypothesis import strategies as st

from dart.curation.weighted_choice import WeightedChoice

WEIGHTS = st.lists(st.sampled_from((0.0, 0.1, 0.5, 1.0, 3.0)), min_size=1, max_size=40)


def choice_of(weights: list[float]) -> WeightedChoice:
    choice = WeightedChoice(len(weights))
    for item, weight in enumerate(weights):
        choice.set(item, weight)
    return choice


@given(weights=WEIGHTS, fraction=st.floats(0, 1, exclude_max=True))
def test_an_item_is_found_at_its_share_of_all_weight(weights: list[float], fraction: float) -> None:
    item = choice_of(weights).at(fraction)
    if not any(weights):
        assert item is None
        return
    assert item is not None
    assert weights[item] > 0
    point, before = fraction * sum(weights), sum(weights[:item])
    assert before - 1e-9 <= point <= before + weights[item] + 1e-9


@given(weights=WEIGHTS, earlier=WEIGHTS, fraction=st.floats(0, 1, exclude_max=True))
def test_a_choice_does_not_depend_on_earlier_weights(
    weights: list[float], earlier: list[float], fraction: float
) -> None:
    changed = choice_of(weights)
    for item, weight in list(enumerate(earlier))[: len(weights)]:
        changed.set(item, weight)
    for item, weight in reversed(list(enumerate(weights))):
        changed.set(item, weight)
    assert changed.at(fraction) == choice_of(weights).at(fraction)
