import dataclasses
from collections.abc import Callable

import pytest

from dart.store.errors import BlobCorrupt, BlobMissing
from dart.training.refusal import (
    REFUSED_IN_A_ROW,
    TRIES,
    Blame,
    MalformedStep,
    NonFiniteUpdate,
    NothingToLearn,
    Refused,
    blame,
    ends_training,
    is_worth_another_try,
)
from dart.types import Demonstration, Group

NOT_FINITE = NonFiniteUpdate("loss", float("nan"), 3)


@pytest.fixture
def groups(group_of: Callable[..., Group], demonstration_of: Callable[..., Demonstration]) -> list[Group]:
    """Groups 1, 2 and 3, each with pictures of its own; the last one was given demonstration 9."""

    def pictured(number: int) -> Group:
        group = group_of(rewards=[1.0, 0.0], lengths=[1, 2])
        played = tuple(
            dataclasses.replace(
                one,
                steps=tuple(
                    dataclasses.replace(step, screenshot_sha256=f"picture {number}") for step in one.steps
                ),
            )
            for one in group.trajectories
        )
        return dataclasses.replace(group, group_id=number, trajectories=played)

    shown = demonstration_of(steps=2)
    steps = tuple(dataclasses.replace(step, screenshot_sha256="of the pool") for step in shown.steps)
    helped = dataclasses.replace(pictured(3), injected=(dataclasses.replace(shown, pool_id=9, steps=steps),))
    return [pictured(1), pictured(2), helped]


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (BlobMissing("picture 2", ""), Blame(group_ids=(2,), reason="damaged_screenshot")),
        (BlobCorrupt("of the pool", ""), Blame(group_ids=(3,), pool_ids=(9,), reason="damaged_screenshot")),
        (BlobCorrupt("of nobody", ""), Blame(group_ids=(1, 2, 3), reason="damaged_screenshot")),
        (NothingToLearn("too few"), Blame(group_ids=(1, 2, 3), reason="nothing_to_learn")),
        (NOT_FINITE, Blame(group_ids=(1, 2, 3), reason="not_finite")),
    ],
)
def test_to_blame_is_who_holds_what_is_named_else_the_batch(
    groups: list[Group], error: Refused, found: Blame
) -> None:
    assert blame(error, groups) == found


def test_a_malformed_step_names_its_group(groups: list[Group]) -> None:
    step = groups[1].trajectories[1].steps[0]
    error = MalformedStep(step, 2)
    assert "group 2" in str(error)
    assert blame(error, groups) == Blame(group_ids=(2,), reason="malformed_step")


def test_only_what_is_not_finite_is_tried_again_and_ends_training_when_it_goes_on() -> None:
    missing = BlobMissing("a", "")
    assert [is_worth_another_try(NOT_FINITE, tries) for tries in (1, TRIES)] == [True, False]
    assert not is_worth_another_try(missing, 1)
    assert [ends_training(NOT_FINITE, n) for n in (0, REFUSED_IN_A_ROW - 1, REFUSED_IN_A_ROW)] == [
        False,
        False,
        True,
    ]
    assert not ends_training(missing, REFUSED_IN_A_ROW)
