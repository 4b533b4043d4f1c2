import dataclasses
from collections.abc import Callable

import pytest

from dart.core.types import Demonstration, Group
from dart.store.errors import BlobCorrupt, BlobMissing
from dart.training.batch_errors import (
    MAX_TRIES,
    Blame,
    MalformedStep,
    NonFiniteUpdate,
    NothingToLearn,
    Refused,
    blame,
    can_retry,
    is_policy_at_fault,
)

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
    helped = dataclasses.replace(
        pictured(3), demonstrations=(dataclasses.replace(shown, pool_id=9, steps=steps),)
    )
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


def test_steps_that_are_not_finite_cost_their_groups_and_their_demonstration(groups: list[Group]) -> None:
    played, shown = groups[0].trajectories[1].steps[1], groups[2].demonstrations[0].steps[0]
    error = NonFiniteUpdate("loss", float("nan"), 3, (played, shown))
    assert "2 steps" in str(error)
    found = blame(error, groups)
    assert found == Blame(group_ids=(1, 3), pool_ids=(9,), reason="not_finite")
    assert not can_retry(error, 1)
    assert not is_policy_at_fault(error, found, groups)


def test_only_what_is_not_finite_for_no_known_reason_is_tried_again() -> None:
    assert [can_retry(NOT_FINITE, tries) for tries in (1, MAX_TRIES)] == [True, False]
    assert not can_retry(BlobMissing("a", ""), 1)


def test_the_policy_is_to_blame_for_what_is_not_finite_in_every_group(groups: list[Group]) -> None:
    assert is_policy_at_fault(NOT_FINITE, blame(NOT_FINITE, groups), groups)
    everywhere = NonFiniteUpdate("loss", float("nan"), 3, [one.trajectories[0].steps[0] for one in groups])
    assert is_policy_at_fault(everywhere, blame(everywhere, groups), groups)
    damage = BlobCorrupt("of nobody", "")
    assert not is_policy_at_fault(damage, blame(damage, groups), groups)


def test_a_demonstration_stays_in_the_pool_where_the_policy_is_to_blame(groups: list[Group]) -> None:
    shown = groups[2].demonstrations[0].steps[0]
    steps = [*(one.trajectories[0].steps[0] for one in groups), shown]
    everywhere = NonFiniteUpdate("loss", float("nan"), 3, steps)
    assert blame(everywhere, groups) == Blame(group_ids=(1, 2, 3), reason="not_finite")
