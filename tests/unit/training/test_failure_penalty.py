"""Answers that failed at once are penalised by how many episodes of their group gave them."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from dart.config.config import Config
from dart.core.types import Demonstration, Group
from dart.training.batch import step_samples
from dart.training.failure_penalty import FailurePenalty
from dart.training.learner_factory import learner_config

HALF = FailurePenalty(weight=0.5)
LEFT, RIGHT = (0.0, 0.0, 10.0, 10.0), (20.0, 0.0, 30.0, 10.0)

GroupOf = Callable[..., Group]


def clicking(group: Group, boxes: Sequence[tuple[float, float, float, float] | None]) -> Group:
    """The group whose trajectories clicked these elements, each at a place of its own."""
    trajectories = tuple(
        dataclasses.replace(
            one,
            steps=tuple(dataclasses.replace(s, box=box, answer=f"click {number}") for s in one.steps),
        )
        for number, (one, box) in enumerate(zip(group.trajectories, boxes, strict=True))
    )
    return dataclasses.replace(group, trajectories=trajectories)


def penalties(group: Group, penalty: FailurePenalty = HALF) -> list[float]:
    return [sample.advantage for sample in step_samples([group], penalty=penalty).kept]


def test_the_more_episodes_clicked_an_element_the_larger_is_its_penalty(group_of: GroupOf) -> None:
    group = clicking(group_of(rewards=[0.0] * 4, lengths=[1] * 4), [LEFT, LEFT, LEFT, RIGHT])
    assert penalties(group) == pytest.approx([-0.5 * 3 / 2] * 3 + [-0.5 * 1 / 4])


def test_clicks_without_an_element_are_compared_by_their_answer(group_of: GroupOf) -> None:
    group = clicking(group_of(rewards=[0.0] * 2, lengths=[1] * 2), [None, None])
    assert penalties(group) == pytest.approx([-0.5 / 2] * 2)


@pytest.mark.parametrize("same", range(1, 9))
def test_the_largest_penalty_is_the_weight_times_the_size_of_the_group(group_of: GroupOf, same: int) -> None:
    others: list[tuple[float, float, float, float] | None] = [
        (100.0 + number, 0.0, 101.0 + number, 1.0) for number in range(8 - same)
    ]
    group = clicking(group_of(rewards=[0.0] * 8, lengths=[1] * 8), [LEFT] * same + others)
    found = penalties(group)
    assert min(found) == found[0] == pytest.approx(-0.5 * same / (9 - same))
    assert min(found) >= -0.5 * 8
    assert max(found) < 0


def test_steps_of_longer_episodes_get_none_because_one_of_them_may_have_been_right(group_of: GroupOf) -> None:
    group = group_of(rewards=[0.0] * 3, lengths=[1, 3, 1])
    samples = step_samples([group], penalty=HALF)
    assert (len(samples.kept), samples.steps, samples.groups_without_spread) == (2, 2, 0)
    longer = step_samples([group_of(rewards=[0.0] * 2, lengths=[2, 3])], penalty=HALF)
    assert (len(longer.kept), longer.groups_without_spread) == (0, 1)


def test_a_group_with_a_success_or_with_a_demonstration_gets_none(
    group_of: GroupOf, demonstration_of: Callable[..., Demonstration]
) -> None:
    succeeded = group_of(rewards=[1.0, 1.0], lengths=[1, 1])
    failed = group_of(rewards=[0.0, 0.0], lengths=[1, 1])
    helped = dataclasses.replace(failed, demonstrations=(demonstration_of(steps=1, reward=0.0),))
    for group in (succeeded, helped):
        assert HALF.penalised(group) == ((), ())
        assert step_samples([group], penalty=HALF).groups_without_spread == 1


def test_without_it_groups_without_spread_are_left_out(group_of: GroupOf) -> None:
    samples = step_samples([group_of(rewards=[0.0, 0.0], lengths=[1, 1])])
    assert (samples.kept, samples.groups_without_spread) == ((), 1)


def test_groups_with_spread_keep_their_advantages(group_of: GroupOf) -> None:
    group = group_of(rewards=[1.0, 0.0], lengths=[1, 2])
    assert step_samples([group], penalty=HALF).kept == step_samples([group]).kept


def test_the_configuration_switches_it_on() -> None:
    assert learner_config(Config()).failure_penalty is None
    chosen = Config.model_validate(
        {"curation": {"success_above": 0.2, "failure_penalty": {"enabled": True, "weight": 2.0}}}
    )
    assert learner_config(chosen).failure_penalty == FailurePenalty(weight=2.0, success_above=0.2)
