from collections.abc import Callable

import pytest

from dart.training.batch import (
    MalformedStep,
    chunks,
    pad_answers,
    split_evenly,
    step_samples,
)
from dart.types import Group


def test_every_step_becomes_a_sample_with_its_trajectorys_advantage(group_of: Callable[..., Group]) -> None:
    samples, without_spread = step_samples([group_of(rewards=[1.0, 0.0], lengths=[2, 2])])
    assert [round(sample.advantage, 3) for sample in samples] == [1.0, 1.0, -1.0, -1.0]
    assert without_spread == 0


def test_groups_without_spread_give_no_samples_and_are_counted(group_of: Callable[..., Group]) -> None:
    groups = [group_of(rewards=[1.0, 1.0], lengths=[1, 1]), group_of(rewards=[1.0, 0.0], lengths=[1, 1])]
    samples, without_spread = step_samples(groups)
    assert (len(samples), without_spread) == (2, 1)


def test_a_step_whose_log_probs_do_not_fit_its_tokens_is_refused(group_of: Callable[..., Group]) -> None:
    group = group_of(rewards=[1.0, 0.0], lengths=[1, 1], logprobs=(-0.1,))
    with pytest.raises(MalformedStep, match="3 token ids and 1 log-probs"):
        step_samples([group])


def test_answers_are_padded_on_the_right_and_masked(group_of: Callable[..., Group]) -> None:
    one, _ = step_samples([group_of(rewards=[1.0, 0.0], lengths=[1, 1], token_ids=(7, 8, 9))])
    two, _ = step_samples(
        [group_of(rewards=[1.0, 0.0], lengths=[1, 1], token_ids=(4,), logprobs=(-2.0,), entropies=(0.1,))]
    )
    padded = pad_answers([one[0], two[0]])
    assert padded.token_ids.tolist() == [[7, 8, 9], [4, 0, 0]]
    assert padded.mask.tolist() == [[True, True, True], [True, False, False]]
    assert padded.behaviour.tolist() == [[-0.5, -0.5, -0.5], [-2.0, 0.0, 0.0]]
    assert padded.advantage.tolist() == pytest.approx([1.0, 1.0], abs=1e-5)


def test_chunks_keep_order_and_lose_nothing() -> None:
    assert [list(chunk) for chunk in chunks(range(7), 3)] == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize(("items", "parts", "sizes"), [(10, 3, [3, 4, 3]), (2, 4, [1, 1]), (5, 1, [5])])
def test_minibatches_are_as_even_as_can_be(items: int, parts: int, sizes: list[int]) -> None:
    got = split_evenly(range(items), parts)
    assert [len(part) for part in got] == sizes
    assert [item for part in got for item in part] == list(range(items))
