"""What advantages, quantiles and the loss promise, for any group and any numbers."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dart.core.types import Group
from dart.training.advantage import weighted_advantages
from dart.training.entropy import quantile
from dart.training.failure_penalty import FailurePenalty
from dart.training.loss import (
    LossConfig,
    TokenBatch,
    clipped_policy_loss,
    dart_loss,
    k3_kl,
    sequence_mean_token_mean,
    truncated_weight,
)
from tests.unit.training.conftest import step_of, trajectory_of

members = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 30)), min_size=1, max_size=12)
numbers = st.floats(-10.0, 10.0)


def over_steps(values: tuple[float, ...], lengths: list[int]) -> list[float]:
    return [value for value, length in zip(values, lengths, strict=True) for _ in range(length)]


@given(members)
def test_advantages_are_centred_over_steps_and_order_the_members_by_reward(
    group: list[tuple[float, int]],
) -> None:
    rewards, lengths = [reward for reward, _ in group], [length for _, length in group]
    found = weighted_advantages(rewards, lengths)
    if found is None:
        assert max(rewards) - min(rewards) < 1e-6
        return
    samples = over_steps(found, lengths)
    assert math.fsum(samples) == pytest.approx(0.0, abs=1e-4)
    assert math.fsum(one * one for one in samples) <= len(samples) * (1 + 1e-9)
    in_order = [advantage for _, advantage in sorted(zip(rewards, found, strict=True))]
    assert in_order == sorted(in_order)


@given(members, st.floats(0.1, 1.0), st.floats(-1.0, 1.0))
def test_other_units_of_the_reward_change_no_advantage(
    group: list[tuple[float, int]], scale: float, offset: float
) -> None:
    rewards, lengths = [reward for reward, _ in group], [length for _, length in group]
    if max(rewards) - min(rewards) < 0.01:
        return
    found = weighted_advantages(rewards, lengths, eps=0.0)
    other = weighted_advantages([offset + scale * reward for reward in rewards], lengths, eps=0.0)
    assert found is not None
    assert other == pytest.approx(found, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=60), st.floats(0.0, 0.99))
def test_at_most_the_share_below_a_quantile_is_left_out(values: list[float], share: float) -> None:
    threshold = quantile(values, share)
    assert min(values) <= threshold <= max(values)
    below = sum(value < threshold for value in values)
    assert below <= math.ceil(share * (len(values) - 1) + 1e-6)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=9))
def test_a_penalty_is_never_a_reward_and_grows_with_the_number_of_equal_answers(
    episodes: list[tuple[str, int]],
) -> None:
    trajectories = tuple(
        trajectory_of(tuple(replace(step_of(), answer=answer) for _ in range(length)), 0.0, number)
        for number, (answer, length) in enumerate(episodes)
    )
    group = Group(group_id=1, task_id="click-test", seed=7, trajectories=trajectories)
    at_once, penalties = FailurePenalty(weight=1.0).penalised(group)
    counts = Counter(one.steps[0].answer for one in at_once)
    by_count = [
        (counts[one.steps[0].answer], -penalty) for one, (penalty,) in zip(at_once, penalties, strict=True)
    ]
    assert len(at_once) == sum(length == 1 for _, length in episodes)
    assert all(0.0 < penalty <= len(episodes) for _, penalty in by_count)
    assert [penalty for _, penalty in sorted(by_count)] == sorted(penalty for _, penalty in by_count)


@given(old=numbers, behaviour=numbers, cap=st.floats(0.1, 5.0))
def test_a_weight_is_the_ratio_below_the_cap_and_the_cap_above_it(
    old: float, behaviour: float, cap: float
) -> None:
    weight = float(truncated_weight(torch.tensor(old).double(), torch.tensor(behaviour).double(), cap))
    ratio = float(torch.tensor(old).double().sub(torch.tensor(behaviour).double()).exp())
    assert weight == pytest.approx(min(ratio, cap))


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20))
def test_the_estimate_of_the_kl_is_never_negative_and_pulls_towards_the_reference(
    pairs: list[tuple[float, float]],
) -> None:
    logp = torch.tensor([one for one, _ in pairs], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([other for _, other in pairs], dtype=torch.float64)
    kl = k3_kl(logp, reference)
    (gradient,) = torch.autograd.grad(kl.sum(), logp)
    assert bool((kl >= 0).all())
    assert bool((gradient * (logp - reference) >= 0).all())
    assert bool((gradient.abs() <= 10.0 + 1e-9).all())


@given(ratio=st.floats(0.0, 50.0), advantage=st.floats(-3.0, 3.0))
def test_a_clipped_objective_is_never_better_than_the_ratio_says(ratio: float, advantage: float) -> None:
    rho, a = torch.tensor(ratio).double(), torch.tensor(advantage).double()
    unclipped, low, dual = (
        -float(rho * a),
        float(clipped_policy_loss(rho, a, 0.2, 0.28)),
        float(clipped_policy_loss(rho, a, 0.2, 0.28, 10.0)),
    )
    assert low >= unclipped - 1e-9
    assert dual <= max(low, 10.0 * abs(advantage)) + 1e-9
    assert dual == pytest.approx(low) or (advantage < 0 and ratio > 10.0)


@given(
    lengths=st.lists(st.integers(1, 4), min_size=2, max_size=8), cut=st.integers(1, 7), seed=st.integers(0, 9)
)
def test_how_a_minibatch_is_cut_into_passes_changes_neither_loss_nor_gradient(
    lengths: list[int], cut: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    rows = len(lengths)
    shape = (rows, max(lengths))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=draw, dtype=torch.float64)

    logp = normal(*shape).requires_grad_()
    fixed = [normal(*shape) for _ in range(3)]
    advantage = normal(rows)

    def of_rows(begin: int, end: int) -> TokenBatch:
        old, behaviour, reference = (one[begin:end] for one in fixed)
        return TokenBatch(
            logp=logp[begin:end],
            old=old,
            behaviour=behaviour,
            has_behaviour=torch.ones(end - begin, dtype=torch.bool),
            reference=reference,
            advantage=advantage[begin:end],
            mask=mask[begin:end],
        )

    whole = dart_loss(of_rows(0, rows), LossConfig()).loss
    edges = [0, min(cut, rows - 1), rows]
    parts = [
        dart_loss(of_rows(begin, end), LossConfig()).loss * (end - begin) / rows
        for begin, end in pairwise(edges)
    ]
    summed = torch.stack(parts).sum()
    assert float(summed.detach()) == pytest.approx(float(whole.detach()))
    (one,), (other,) = torch.autograd.grad(whole, logp), torch.autograd.grad(summed, logp)
    assert torch.allclose(one, other)


@given(st.lists(st.lists(numbers, max_size=5), min_size=1, max_size=6))
def test_a_mean_over_samples_is_between_their_means(rows: list[list[float]]) -> None:
    width = max(1, *map(len, rows)) if len(rows) > 1 else max(1, len(rows[0]))
    values = torch.tensor([[*row, *[math.inf] * (width - len(row))] for row in rows], dtype=torch.float64)
    mask = torch.tensor([[place < len(row) for place in range(width)] for row in rows])
    means = [math.fsum(row) / len(row) for row in rows if row]
    found = float(sequence_mean_token_mean(values, mask))
    assert found == pytest.approx(math.fsum(means) / len(means) if means else 0.0, abs=1e-9)
