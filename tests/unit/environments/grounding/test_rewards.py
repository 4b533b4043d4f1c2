"""Rewards of points for an element."""

import math

import pytest

from dart.core.boxes import Box
from dart.environments.grounding.rewards import gaussian_reward, hit_reward

BOX = Box(10, 20, 30, 60)


@pytest.mark.parametrize(
    ("point", "reward"),
    [((20, 40), 1.0), ((10, 20), 1.0), ((30, 60), 1.0), ((9.9, 40), 0.0), ((20, 61), 0.0)],
)
def test_a_hit_is_a_point_in_the_box_or_on_its_border(point: tuple[float, float], reward: float) -> None:
    assert hit_reward(*point, BOX) == reward


def test_the_gaussian_reward_is_one_at_the_centre_and_falls_with_the_distance() -> None:
    rewards = [gaussian_reward(20 + away, 40, BOX) for away in (0, 5, 10, 20)]

    assert rewards[0] == 1.0
    assert rewards == sorted(rewards, reverse=True)
    assert rewards[2] == pytest.approx(math.exp(-0.5))


def test_the_variance_adapts_so_a_border_is_worth_the_same_for_every_size() -> None:
    small, large = Box(0, 0, 8, 4), Box(0, 0, 800, 400)

    assert gaussian_reward(8, 2, small) == pytest.approx(gaussian_reward(800, 200, large))
    assert gaussian_reward(12, 2, small) < gaussian_reward(404, 200, large)
