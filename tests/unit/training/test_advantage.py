import dataclasses
import math
from collections.abc import Callable

import pytest

from dart.core.types import Demonstration, Group
from dart.training.advantage import step_advantages, weighted_advantages


def test_every_step_counts_once_in_mean_and_deviation() -> None:
    got = weighted_advantages([1.0, 0.0], [1, 3], eps=0.0)
    samples = [1.0, 0.0, 0.0, 0.0]
    mean = sum(samples) / 4
    deviation = math.sqrt(sum((r - mean) ** 2 for r in samples) / 4)
    assert got == pytest.approx(((1.0 - mean) / deviation, (0.0 - mean) / deviation))


def test_advantages_have_zero_mean_and_unit_deviation_over_step_samples() -> None:
    lengths = [1, 2, 5, 3]
    got = weighted_advantages([1.0, 0.0, 0.25, 1.0], lengths, eps=0.0)
    assert got is not None
    samples = [a for a, n in zip(got, lengths, strict=True) for _ in range(n)]
    assert sum(samples) == pytest.approx(0.0, abs=1e-12)
    assert sum(a * a for a in samples) / len(samples) == pytest.approx(1.0)


def test_eps_is_added_to_the_deviation() -> None:
    assert weighted_advantages([1.0, 0.0], [1, 1], eps=0.5) == (0.5, -0.5)


@pytest.mark.parametrize("rewards", [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.1 + 0.2, 0.3, 0.3]])
def test_a_group_without_spread_has_no_advantages(rewards: list[float]) -> None:
    assert weighted_advantages(rewards, [2, 1, 4]) is None


def test_a_group_without_a_single_step_has_no_advantages() -> None:
    assert weighted_advantages([1.0, 0.0], [0, 0]) is None


def test_a_trajectory_without_steps_does_not_move_the_mean() -> None:
    with_empty = weighted_advantages([1.0, 0.0, 0.5], [2, 2, 0])
    assert with_empty is not None
    assert with_empty[:2] == weighted_advantages([1.0, 0.0], [2, 2])


def test_a_groups_advantages_follow_its_trajectories(group_of: Callable[..., Group]) -> None:
    group = group_of(rewards=[1.0, 0.0, 1.0], lengths=[1, 2, 1])
    assert step_advantages(group) == pytest.approx((1.0, -1.0, 1.0), abs=1e-5)


def test_a_demonstration_gives_a_group_of_failures_something_to_compare_with(
    group_of: Callable[..., Group], demonstration_of: Callable[..., Demonstration]
) -> None:
    failed = group_of(rewards=[0.0, 0.0], lengths=[3, 3])
    assert step_advantages(failed) is None
    helped = dataclasses.replace(failed, demonstrations=(demonstration_of(steps=2),))
    assert step_advantages(helped) == weighted_advantages([0.0, 0.0, 1.0], [3, 3, 2])
