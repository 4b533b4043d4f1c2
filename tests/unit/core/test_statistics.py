"""Confidence intervals, against published figures and by their own laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.core.statistics import Score, difference_interval, mean_interval, mean_rate

scores = st.integers(1, 300).flatmap(lambda n: st.builds(Score, st.integers(0, n), st.just(n)))


def test_wilson_gives_the_published_interval() -> None:
    interval = Score(81, 263).interval  # Newcombe 1998, Stat. Med. 17, 857, table I

    assert (round(interval.low, 4), round(interval.high, 4)) == (0.2553, 0.3662)


def test_wilson_says_something_even_when_all_failed_or_all_succeeded() -> None:
    assert Score(0, 50).interval.low == 0.0
    assert 0.06 < Score(0, 50).interval.high < 0.08
    assert 0.92 < Score(50, 50).interval.low < 0.94
    assert Score(50, 50).interval.high == 1.0


def test_an_interval_begins_at_0_if_all_failed_and_ends_at_1_if_all_succeeded() -> None:
    assert {Score(0, episodes).interval.low for episodes in range(1, 400)} == {0.0}
    assert {Score(episodes, episodes).interval.high for episodes in range(1, 400)} == {1.0}


def test_the_difference_of_two_rates_gives_newcombes_interval() -> None:
    interval = difference_interval([Score(48, 80)], [Score(56, 70)])  # Newcombe 1998, 17, 873, table II (a)

    assert (round(interval.low, 4), round(interval.high, 4)) == (0.0524, 0.3339)


@given(scores)
def test_an_interval_holds_its_rate_and_stays_in_bounds(score: Score) -> None:
    interval = score.interval

    assert 0 <= interval.low <= score.rate + 1e-12
    assert score.rate - 1e-12 <= interval.high <= 1


@given(scores)
def test_the_mean_over_one_task_is_that_task(score: Score) -> None:
    mean = mean_interval([score])

    assert math.isclose(mean.low, score.interval.low, abs_tol=1e-12)
    assert math.isclose(mean.high, score.interval.high, abs_tol=1e-12)


@given(scores, scores)
def test_swapping_before_and_after_mirrors_the_difference(one: Score, other: Score) -> None:
    there, back = difference_interval([one], [other]), difference_interval([other], [one])

    assert math.isclose(there.low, -back.high, abs_tol=1e-12)
    assert math.isclose(there.high, -back.low, abs_tol=1e-12)


def test_the_mean_over_more_tasks_is_known_better() -> None:
    one, four = mean_interval([Score(20, 50)]), mean_interval([Score(20, 50)] * 4)

    assert math.isclose(four.high - four.low, (one.high - one.low) / 2)


def test_tasks_weigh_the_same_whatever_their_number_of_episodes() -> None:
    assert mean_rate([Score(1, 1), Score(0, 100)]) == 0.5


@pytest.mark.parametrize(("successes", "episodes"), [(0, 0), (-1, 5), (6, 5)])
def test_an_impossible_score_is_refused(successes: int, episodes: int) -> None:
    with pytest.raises(ValueError, match=f"got {successes} of {episodes}"):
        Score(successes, episodes)
