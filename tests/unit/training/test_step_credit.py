"""GiGPO's advantages against values worked out by hand, and what must hold for any group."""

import dataclasses
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.config.config import Config
from dart.core.types import Group
from dart.training.advantage import step_advantages
from dart.training.batch import step_samples
from dart.training.learner_factory import learner_config
from dart.training.step_credit import StepCredit, anchor_advantages, credited_advantages


def on_screens(group: Group, screens: list[list[str]]) -> Group:
    """The group with these screenshots."""
    trajectories = tuple(
        dataclasses.replace(
            one,
            steps=tuple(
                dataclasses.replace(s, screenshot_sha256=n) for s, n in zip(one.steps, row, strict=True)
            ),
        )
        for one, row in zip(group.trajectories, screens, strict=True)
    )
    return dataclasses.replace(group, trajectories=trajectories)


def test_steps_on_the_same_screen_are_compared_by_their_discounted_returns() -> None:
    got = anchor_advantages(
        [["start", "menu"], ["start", "menu", "end"], ["start"]], [1.0, 1.0, 0.0], 0.5, eps=0.0
    )
    start = [0.5, 0.25, 0.0]
    mean = sum(start) / 3
    deviation = math.sqrt(sum((one - mean) ** 2 for one in start) / 3)
    assert [row[0] for row in got] == pytest.approx([(one - mean) / deviation for one in start])
    assert [got[0][1], got[1][1]] == pytest.approx([1.0, -1.0])
    assert got[1][2] == 0.0, "nothing to compare with"


def test_a_screen_that_a_trajectory_sees_twice_is_compared_with_itself() -> None:
    got = anchor_advantages([["loop", "loop"]], [1.0], 0.5, eps=0.0)
    assert got == [pytest.approx([-1.0, 1.0])]


def test_equal_returns_on_a_screen_give_no_credit() -> None:
    assert anchor_advantages([["start"], ["start"]], [1.0, 1.0], 0.95) == [[0.0], [0.0]]


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abcd"), max_size=5), st.floats(0, 1)), min_size=1, max_size=6
    ),
    st.floats(0.1, 1),
)
def test_the_advantages_of_each_screen_sum_to_zero(
    rows: list[tuple[list[str], float]], discount: float
) -> None:
    anchors = [row for row, _ in rows]
    found = anchor_advantages(anchors, [reward for _, reward in rows], discount, eps=0.0)
    for anchor in "abcd":
        values = [
            value
            for row, values in zip(anchors, found, strict=True)
            for name, value in zip(row, values, strict=True)
            if name == anchor
        ]
        assert sum(values) == pytest.approx(0.0, abs=1e-6)


def test_the_credit_of_a_step_is_added_to_that_of_its_trajectory(group_of: Callable[..., Group]) -> None:
    group = on_screens(group_of(rewards=[1.0, 0.0], lengths=[2, 2]), [["start", "right"], ["start", "wrong"]])
    plain, credited = credited_advantages(group, None), credited_advantages(group, StepCredit(weight=0.5))
    assert plain is not None
    assert credited is not None
    differences = [
        [b - a for a, b in zip(one, other, strict=True)] for one, other in zip(plain, credited, strict=True)
    ]
    assert differences == [pytest.approx([0.5, 0.0], abs=1e-4), pytest.approx([-0.5, 0.0], abs=1e-4)]


def test_without_credit_every_step_has_the_advantage_of_its_trajectory(
    group_of: Callable[..., Group],
) -> None:
    group = group_of(rewards=[1.0, 0.0, 1.0], lengths=[1, 3, 2])
    of_members, of_steps = step_advantages(group), credited_advantages(group, None)
    assert of_members is not None
    assert of_steps == tuple((a,) * n for a, n in zip(of_members, (1, 3, 2), strict=True))


def test_a_group_of_equal_successes_teaches_the_shorter_way(group_of: Callable[..., Group]) -> None:
    group = on_screens(group_of(rewards=[1.0, 1.0], lengths=[1, 3]), [["start"], ["start", "menu", "end"]])
    assert credited_advantages(group, None) is None
    credited = credited_advantages(group, StepCredit())
    assert credited is not None
    assert [value for row in credited for value in row] == pytest.approx([1.0, -1.0, 0.0, 0.0], abs=1e-4)
    assert step_samples([group], credit=StepCredit()).groups_without_spread == 0


@pytest.mark.parametrize(
    ("reward", "screens"),
    [
        (1.0, [["start"], ["start"]]),  # equally long ways
        (1.0, [["start"], ["other", "end"]]),  # nothing to compare
        (0.0, [["start"], ["start", "end"]]),
        (0.4, [["start"], ["start", "end"]]),  # failures: the shorter one is no better
    ],
)
def test_other_groups_without_spread_stay_without_a_gradient(
    group_of: Callable[..., Group], reward: float, screens: list[list[str]]
) -> None:
    group = on_screens(group_of(rewards=[reward, reward], lengths=[len(row) for row in screens]), screens)
    assert credited_advantages(group, StepCredit()) is None


def test_samples_carry_the_credit_of_their_step(group_of: Callable[..., Group]) -> None:
    group = on_screens(group_of(rewards=[1.0, 0.0], lengths=[2, 2]), [["start", "right"], ["start", "wrong"]])
    credited = credited_advantages(group, StepCredit())
    assert credited is not None
    kept = step_samples([group], credit=StepCredit()).kept
    assert [sample.advantage for sample in kept] == [value for row in credited for value in row]


def test_the_configuration_switches_it_on() -> None:
    assert learner_config(Config()).step_credit is None
    chosen = Config.model_validate(
        {
            "curation": {
                "step_credit": {"method": "gigpo", "discount": 0.9, "weight": 0.5},
                "success_above": 0.7,
            }
        }
    )
    credit = StepCredit(discount=0.9, weight=0.5, success_above=0.7)
    assert learner_config(chosen).step_credit == credit
