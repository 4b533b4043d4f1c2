import dataclasses
import math
from collections.abc import Callable, Sequence

import pytest

from dart.core.types import Demonstration, Group
from dart.policy.protocols import PointerTokens
from dart.training.batch import step_samples
from dart.training.entropy import Pointing, entropy_threshold, is_kept, quantile, step_entropy
from tests.unit.training.conftest import step_of


def group_with(group_of: Callable[..., Group], entropies: Sequence[Sequence[float]]) -> Group:
    """One trajectory whose steps have these token entropies."""
    group = group_of(rewards=[1.0], lengths=[len(entropies)])
    trajectory = group.trajectories[0]
    steps = tuple(
        dataclasses.replace(
            step, token_ids=(1,) * len(own), logprobs=(-1.0,) * len(own), entropies=tuple(own)
        )
        for step, own in zip(trajectory.steps, entropies, strict=True)
    )
    return dataclasses.replace(group, trajectories=(dataclasses.replace(trajectory, steps=steps),))


def kept(group: Group, share: float) -> list[bool]:
    threshold = entropy_threshold(group, share)
    return [is_kept(step, threshold) for one in group.trajectories for step in one.steps]


def test_the_entropy_of_a_step_is_the_mean_over_its_own_tokens(group_of: Callable[..., Group]) -> None:
    group = group_with(group_of, [(0.0, 3.0), (1.0,)])
    assert [step_entropy(step) for step in group.trajectories[0].steps] == [1.5, 1.0]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([0.0, 1.0, 2.0, 3.0, 4.0], 0.2, 0.8),
        ([0.0, 10.0], 0.25, 2.5),
        ([5.0], 0.2, 5.0),
        ([1.0, 2.0], 0.0, 1.0),
        ([float(i) for i in range(31)], 0.1, 3.0),
        ([], 0.2, -math.inf),
    ],
)
def test_the_quantile_is_interpolated_linearly(values: list[float], share: float, expected: float) -> None:
    assert quantile(values, share) == expected


@pytest.mark.parametrize(
    ("entropies", "share", "expected"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5], 0.2, [False, True, True, True, True]),
        ([0.5, 0.5, 0.5, 0.5], 0.2, [True] * 4),
        ([0.2, 0.2, 0.2, 0.9, 0.1], 0.2, [True, True, True, True, False]),
        ([0.3, 0.1], 0.2, [True, False]),
        ([0.3], 0.9, [True]),
        ([0.4, 0.1, 0.2], 0.0, [True] * 3),
    ],
)
def test_steps_at_or_above_the_quantile_are_kept_ties_too(
    group_of: Callable[..., Group], entropies: list[float], share: float, expected: list[bool]
) -> None:
    assert kept(group_with(group_of, [(value,) for value in entropies]), share) == expected


def test_empty_answers_have_no_entropy_are_kept_and_move_no_quantile(group_of: Callable[..., Group]) -> None:
    assert kept(group_with(group_of, [(), (0.1,), (0.3,)]), 0.5) == [True, False, True]
    assert kept(group_with(group_of, [(), ()]), 0.5) == [True, True]


def test_demonstrations_take_no_part_in_the_quantile(
    group_of: Callable[..., Group], demonstration_of: Callable[..., Demonstration]
) -> None:
    group = group_with(group_of, [(0.1,), (0.3,)])
    helped = dataclasses.replace(group, demonstrations=(demonstration_of(steps=4),))
    threshold = entropy_threshold(group, 0.5)
    assert entropy_threshold(helped, 0.5) == threshold
    assert all(is_kept(step, threshold) for step in helped.demonstrations[0].steps)


def test_the_entropy_of_a_patch_is_a_share_of_the_largest_one() -> None:
    tokens = PointerTokens(token_id=7, first_patch_id=10)
    pointing = Pointing(tokens=tokens, patches=lambda _: 100)
    step = step_of(token_ids=(4, 7, 55, 1), entropies=(0.2, 0.4, math.log(100), 0.0))
    assert step_entropy(step, pointing) == pytest.approx((0.2 + 0.4 + 1.0 + 0.0) / 4)
    assert step_entropy(step) == pytest.approx((0.6 + math.log(100)) / 4)


def test_a_step_that_points_at_random_stays_and_one_that_is_sure_is_left_out(
    group_of: Callable[..., Group],
) -> None:
    pointing = Pointing(tokens=PointerTokens(token_id=7, first_patch_id=10), patches=lambda _: 100)
    group = group_of(rewards=[1.0, 0.0], lengths=[1, 1], token_ids=(7, 55))
    steps = [step_of(token_ids=(7, 55), entropies=(0.1, entropy)) for entropy in (0.5, 4.0)]
    trajectories = tuple(
        dataclasses.replace(one, steps=(step,)) for one, step in zip(group.trajectories, steps, strict=True)
    )
    kept = step_samples([dataclasses.replace(group, trajectories=trajectories)], 0.9, pointing).kept
    assert [sample.step for sample in kept] == [steps[1]]
