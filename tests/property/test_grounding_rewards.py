"""The rewards of a click, for any element and any point."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.core.boxes import Box
from dart.environments.grounding.rewards import REWARDS, gaussian_reward, hit_reward

places = st.floats(0, 4000)
sizes = st.floats(1, 2000)
boxes = st.builds(lambda left, top, w, h: Box(left, top, left + w, top + h), places, places, sizes, sizes)
fractions = st.floats(0, 1)


@given(boxes, places, places, st.sampled_from(sorted(REWARDS)))
def test_every_reward_is_between_nothing_and_one(box: Box, x: float, y: float, name: str) -> None:
    assert 0.0 <= REWARDS[name](x, y, box) <= 1.0


@given(boxes, fractions, fractions, st.floats(0.01, 10))
def test_the_gaussian_falls_on_every_way_out_from_the_centre(
    box: Box, across: float, down: float, further: float
) -> None:
    centre_x, centre_y = box.centre

    def at(share: float) -> float:
        return gaussian_reward(
            centre_x + share * across * box.width, centre_y + share * down * box.height, box
        )

    assert at(0.0) == pytest.approx(1.0)
    assert at(1.0 + further) <= at(1.0) <= at(0.0)


@given(boxes, fractions, fractions)
def test_a_hit_is_worth_at_least_what_a_corner_is_worth(box: Box, across: float, down: float) -> None:
    x, y = box.left + across * box.width, box.top + down * box.height
    x, y = min(x, box.right), min(y, box.bottom)

    assert hit_reward(x, y, box) == 1.0
    assert gaussian_reward(x, y, box) >= math.exp(-1.0) - 1e-6


@given(boxes, places, places, st.floats(0.1, 10), st.floats(0.1, 10))
def test_no_reward_depends_on_the_size_of_the_screen(
    box: Box, x: float, y: float, wider: float, higher: float
) -> None:
    on_larger = box.scaled(wider, higher)

    assert gaussian_reward(x * wider, y * higher, on_larger) == pytest.approx(
        gaussian_reward(x, y, box), rel=1e-3, abs=1e-6
    )
