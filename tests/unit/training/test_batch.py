import dataclasses
from collections.abc import Callable

import pytest
import torch

from dart.core.types import Demonstration, Group, Step
from dart.training.batch import padded, step_samples
from dart.training.batch_errors import MalformedStep


def test_every_step_becomes_a_sample_with_its_trajectorys_advantage(group_of: Callable[..., Group]) -> None:
    samples = step_samples([group_of(rewards=[1.0, 0.0], lengths=[2, 2])])
    assert [round(sample.advantage, 3) for sample in samples.kept] == [1.0, 1.0, -1.0, -1.0]
    assert (samples.steps, samples.low_entropy, samples.groups_without_spread) == (4, 0, 0)


def test_groups_without_spread_give_no_samples_and_are_counted(group_of: Callable[..., Group]) -> None:
    groups = [group_of(rewards=[1.0, 1.0], lengths=[1, 1]), group_of(rewards=[1.0, 0.0], lengths=[1, 1])]
    samples = step_samples(groups)
    assert (len(samples.kept), samples.groups_without_spread) == (2, 1)


def test_a_step_whose_log_probs_do_not_fit_its_tokens_is_refused(group_of: Callable[..., Group]) -> None:
    group = group_of(rewards=[1.0, 0.0], lengths=[1, 1], logprobs=(-0.1,))
    with pytest.raises(MalformedStep, match="3 token ids, 1 log-probs and 3 entropies"):
        step_samples([group])


def test_rows_are_padded_with_the_numbers_of_the_tensor_whose_shape_they_get() -> None:
    like = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0], [-5.0, -6.0, 0.0]], requires_grad=True)
    made = padded([torch.tensor([-0.5, -0.5, -0.5]), torch.tensor([-2.0]), None], like)
    assert made.tolist() == [[-0.5, -0.5, -0.5], [-2.0, 0.0, 0.0], [-5.0, -6.0, 0.0]]
    assert not made.requires_grad


def with_entropies(group: Group, *entropies: float) -> Group:
    """The group whose steps, in order, have these mean entropies."""
    given = iter(entropies)

    def changed(step: Step) -> Step:
        return dataclasses.replace(step, entropies=(next(given),) * len(step.token_ids))

    return dataclasses.replace(
        group,
        trajectories=tuple(
            dataclasses.replace(one, steps=tuple(changed(step) for step in one.steps))
            for one in group.trajectories
        ),
    )


def test_steps_of_low_entropy_are_left_out_and_advantages_are_those_of_all_steps(
    group_of: Callable[..., Group],
) -> None:
    group = with_entropies(group_of(rewards=[1.0, 0.0], lengths=[2, 4]), 0.1, 0.9, 0.2, 0.8, 0.7, 0.6)
    every, some = step_samples([group]), step_samples([group], 0.4)
    assert [sample.step.entropies[0] for sample in some.kept] == [0.9, 0.8, 0.7, 0.6]
    assert (some.steps, some.low_entropy) == (6, 2)
    assert {sample.advantage for sample in some.kept} == {sample.advantage for sample in every.kept}


def test_each_group_has_its_own_threshold(group_of: Callable[..., Group]) -> None:
    certain = with_entropies(group_of(rewards=[1.0, 0.0], lengths=[2, 2]), 0.1, 0.2, 0.3, 0.4)
    unsure = with_entropies(group_of(rewards=[1.0, 0.0], lengths=[2, 2]), 5.1, 5.2, 5.3, 5.4)
    kept = step_samples([certain, unsure], 0.5).kept
    assert [sample.step.entropies[0] for sample in kept] == [0.3, 0.4, 5.3, 5.4]


def test_demonstrations_are_kept_and_have_no_behaviour(
    group_of: Callable[..., Group], demonstration_of: Callable[..., Demonstration]
) -> None:
    group = with_entropies(group_of(rewards=[0.0, 0.0], lengths=[1, 1]), 0.1, 0.2)
    samples = step_samples([dataclasses.replace(group, demonstrations=(demonstration_of(steps=3),))], 0.5)
    assert [sample.step.has_behaviour for sample in samples.kept] == [True, False, False, False]


def test_empty_answers_count_as_steps_and_are_not_computed(group_of: Callable[..., Group]) -> None:
    empty: dict[str, object] = {"token_ids": (), "logprobs": (), "entropies": ()}
    samples = step_samples([group_of(rewards=[1.0, 0.0], lengths=[2, 1], **empty)], 0.2)
    assert (samples.kept, samples.steps, samples.low_entropy) == ((), 3, 0)
