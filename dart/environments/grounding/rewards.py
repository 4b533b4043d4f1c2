"""Rewards for grounding by reinforcement learning, in [0, 1]. Pure."""

import math
from collections.abc import Callable, Mapping

from dart.core.boxes import Box

SPREAD = 0.5
"""Standard deviation of the Gaussian point reward, as a share of the element's width and height."""


def hit_reward(x: float, y: float, box: Box) -> float:
    """Return 1 for a point inside the box or on its border, else 0."""
    return float(box.contains(x, y))


def gaussian_reward(x: float, y: float, box: Box) -> float:
    """Return exp(-(dx^2 / sx^2 + dy^2 / sy^2) / 2) of a point, with a variance that adapts to the element.

    dx and dy are the distances from the box's centre; sx and sy are SPREAD times its width and height, so a
    point at the border is worth the same for small and for large elements.
    Source: GUI-G2, arXiv 2507.15846 (its abstract; the value of SPREAD is ours).
    """
    centre_x, centre_y = box.centre
    across = (x - centre_x) / (SPREAD * box.width)
    down = (y - centre_y) / (SPREAD * box.height)
    return math.exp(-0.5 * (across**2 + down**2))


REWARDS: Mapping[str, Callable[[float, float, Box], float]] = {"hit": hit_reward, "gaussian": gaussian_reward}
"""The rewards by their names in `environments.grounding.reward`."""
