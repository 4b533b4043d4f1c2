"""How many rollouts a group gets: the paper's values, and what they become for other settings."""

import pytest

from dart.curation.quota import Quota, fixed_quota

PAPER = Quota(most=8, minimum=2, threshold=0.6)


@pytest.mark.parametrize("rewards", [(), (0.0,) * 8, (1.0,) * 8])
def test_the_fixed_quota_is_the_same_whatever_a_task_did(rewards: tuple[float, ...]) -> None:
    quota = fixed_quota(8)
    assert quota.at_first(3) == quota.rollouts(8, rewards) == 8


@pytest.mark.parametrize(
    ("success", "rollouts"),
    [(0.0, 8), (0.59, 8), (0.60, 8), (0.65, 6), (0.70, 5), (0.75, 5), (0.80, 4), (0.90, 3), (1.0, 2)],
)
def test_the_number_at_each_success_is_the_papers(success: float, rollouts: int) -> None:
    assert PAPER.for_success(success) == rollouts


@pytest.mark.parametrize("most", [2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.6, 0.9, 1.0])
def test_other_settings_begin_at_the_largest_end_at_two_and_never_rise(most: int, threshold: float) -> None:
    quota = Quota(most=most, minimum=2, threshold=threshold)
    numbers = [quota.for_success(s / 1000) for s in range(1001)]
    assert numbers == sorted(numbers, reverse=True)
    assert (numbers[0], numbers[-1]) == (most, 2)
    if threshold < 1:
        assert quota.for_success(threshold) == most


def test_the_minimum_holds() -> None:
    assert Quota(most=8, minimum=4, threshold=0.6).for_success(1.0) == 4


@pytest.mark.parametrize(
    ("current", "rewards", "rollouts"),
    [
        (8, (), 8),
        (8, (1.0,) * 7, 8),  # not yet as many as it has
        (8, (1.0,) * 8, 2),
        (8, (0.0,) * 9 + (1.0,) * 8, 2),  # older ones do not count
        (8, (0.0, 0.0) + (1.0,) * 6, 5),
        (2, (1.0,) * 8 + (0.0,), 8),  # success fell to 0.5 over the last two
        (4, (1.0, 1.0, 1.0, 0.0), 5),
        (2, (1.0, 1.0), 2),
    ],
)
def test_success_is_that_of_the_latest_as_many_as_the_task_has_now(
    current: int, rewards: tuple[float, ...], rollouts: int
) -> None:
    assert PAPER.rollouts(current, rewards) == rollouts


@pytest.mark.parametrize(("decided", "rollouts"), [(None, 8), (4, 4), (1, 2), (16, 8)])
def test_what_was_decided_before_a_restart_holds_within_the_settings(
    decided: int | None, rollouts: int
) -> None:
    quota: Quota = PAPER
    assert quota.at_first(decided) == rollouts
