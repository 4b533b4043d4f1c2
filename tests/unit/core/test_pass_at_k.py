"""pass@k, against every choice of k episodes and against made-up truth."""

import random
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.core.pass_at_k import ks_of, mean_pass_at_k, pass_at_k
from dart.core.statistics import Score, mean_rate

scores = st.integers(1, 60).flatmap(lambda n: st.builds(Score, st.integers(0, n), st.just(n)))


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_it_is_the_share_of_all_choices_of_k_episodes_that_hold_a_success(case: tuple[int, int, int]) -> None:
    n, c, k = case
    choices = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(Score(c, n), k) == pytest.approx(fmean(any(one) for one in choices))


@given(st.lists(scores, min_size=1, max_size=5))
def test_the_first_is_the_success_rate_and_every_interval_holds_its_estimate(scores: list[Score]) -> None:
    rates = [mean_pass_at_k(scores, k) for k in ks_of(scores)]
    assert rates[0].rate == pytest.approx(mean_rate(scores))
    assert all(one.interval.low <= one.rate + 1e-12 for one in rates)
    assert all(one.rate <= one.interval.high + 1e-12 for one in rates)
    assert [one.rate for one in rates] == sorted(one.rate for one in rates)


def test_more_episodes_than_there_are_cannot_be_chosen() -> None:
    with pytest.raises(ValueError, match="between 1 and the 4 episodes of a task, got 5"):
        pass_at_k(Score(1, 4), 5)


@pytest.mark.parametrize(("fewest", "ks"), [(1, [1]), (2, [1, 2]), (8, [1, 2, 4, 8]), (11, [1, 2, 4, 8, 11])])
def test_k_doubles_up_to_the_fewest_episodes_of_a_task(fewest: int, ks: list[int]) -> None:
    assert ks_of([Score(0, fewest), Score(3, 50)]) == ks


def test_without_episodes_there_is_no_k() -> None:
    assert ks_of([]) == []


@pytest.mark.parametrize("k", [1, 4])
def test_the_estimate_has_no_bias_and_most_intervals_hold_the_truth(k: int) -> None:
    chance, rates = random.Random(5), (0.05, 0.3, 0.5, 0.9)
    truth = fmean(1 - (1 - rate) ** k for rate in rates)
    found = [
        mean_pass_at_k([Score(sum(chance.random() < rate for _ in range(12)), 12) for rate in rates], k)
        for _ in range(2000)
    ]
    assert fmean(one.rate for one in found) == pytest.approx(truth, abs=0.01)
    assert fmean(one.interval.low <= truth <= one.interval.high for one in found) > 0.93
