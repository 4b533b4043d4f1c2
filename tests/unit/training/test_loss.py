"""Each term of the objective against a loop that a reader can check by hand, and by gradient check."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dart.training.loss import (
    LossConfig,
    TokenBatch,
    clipped_policy_loss,
    dart_loss,
    importance_weight,
    k3_kl,
    sequence_mean_token_mean,
    truncated_weight,
)

LENGTHS = [3, 1, 0, 4]


def batch(seed: int = 0, *, spread: float = 0.4, reference: bool = True) -> TokenBatch:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    shape = (len(LENGTHS), max(LENGTHS))
    logp = -normal(*shape).abs()
    return TokenBatch(
        logp=logp.clone().requires_grad_(),
        old=logp + spread * normal(*shape),
        behaviour=logp + spread * normal(*shape),
        has_behaviour=torch.ones(len(LENGTHS), dtype=torch.bool),
        reference=logp + spread * normal(*shape) if reference else None,
        advantage=normal(len(LENGTHS)),
        mask=torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1),
    )


def naive_loss(b: TokenBatch, config: LossConfig) -> float:
    """The formula of the module's docstring, one token at a time."""
    per_sample = []
    for row, length in enumerate(LENGTHS):
        if length == 0:
            continue
        total = 0.0
        advantage = float(b.advantage[row])
        for t in range(length):
            logp, old, behaviour = (float(x[row, t].detach()) for x in (b.logp, b.old, b.behaviour))
            rho = math.exp(logp - old)
            clipped = min(max(rho, 1 - config.clip_low), 1 + config.clip_high)
            weight = 1.0
            if config.tis_cap is not None and bool(b.has_behaviour[row]):
                weight = min(math.exp(old - behaviour), config.tis_cap)
            term = -weight * min(rho * advantage, clipped * advantage)
            if b.reference is not None and config.kl_beta > 0:
                d = float(b.reference[row, t]) - logp
                term += config.kl_beta * (math.exp(d) - d - 1)
            total += term
        per_sample.append(total / length)
    return sum(per_sample) / len(per_sample)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kl_beta", [0.0, 0.1])
def test_the_objective_equals_its_formula_token_by_token(seed: int, kl_beta: float) -> None:
    config = LossConfig(kl_beta=kl_beta)
    assert float(dart_loss(batch(seed), config).loss.detach()) == pytest.approx(
        naive_loss(batch(seed), config), rel=1e-9
    )


@pytest.mark.parametrize("cap", [None, 0.7, 1.0, 2.0])
def test_weights_that_are_off_or_unknown_are_1_in_the_formula_too(cap: float | None) -> None:
    b, config = batch(4), LossConfig(tis_cap=cap)
    b = replace(b, has_behaviour=torch.tensor([True, False, True, False]))
    assert float(dart_loss(b, config).loss.detach()) == pytest.approx(naive_loss(b, config), rel=1e-9)


def test_a_weight_is_1_without_behaviour_whatever_the_numbers_in_its_place() -> None:
    b = batch(0)
    wild = replace(
        b,
        behaviour=torch.full_like(b.behaviour, -1e4),
        has_behaviour=torch.zeros(len(LENGTHS), dtype=torch.bool),
    )
    assert (importance_weight(wild, 1.0) == 1).all()
    assert (importance_weight(b, None) == 1).all()


@pytest.mark.parametrize("kl_beta", [0.0, 0.1])
def test_the_objectives_gradient_is_right(kl_beta: float) -> None:
    b = batch(3)

    def loss(logp: Tensor) -> Tensor:
        moved = TokenBatch(
            logp=logp,
            old=b.old,
            behaviour=b.behaviour,
            has_behaviour=b.has_behaviour,
            reference=b.reference,
            advantage=b.advantage,
            mask=b.mask,
        )
        return dart_loss(moved, LossConfig(kl_beta=kl_beta)).loss

    assert torch.autograd.gradcheck(loss, (b.logp,))


def test_the_clip_is_asymmetric_and_only_binds_in_the_advantages_direction() -> None:
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5], dtype=torch.float64)
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    got = clipped_policy_loss(ratio, advantage, 0.2, 0.28)
    assert got.tolist() == pytest.approx([-1.28, -0.5, 1.5, 0.8])


def test_the_policy_terms_gradient_is_right() -> None:
    ratio = torch.tensor([0.5, 0.9, 1.1, 1.5], dtype=torch.float64, requires_grad=True)
    for sign in (1.0, -1.0):
        advantage = torch.full((4,), sign, dtype=torch.float64)
        assert torch.autograd.gradcheck(lambda r, a=advantage: clipped_policy_loss(r, a, 0.2, 0.28), (ratio,))


def test_the_importance_weight_is_cut_at_its_cap_and_carries_no_gradient() -> None:
    old = torch.tensor([-1.0, -1.0, -3.0], requires_grad=True)
    behaviour = torch.tensor([-1.0, -2.0, -1.0])
    weight = truncated_weight(old, behaviour, 1.0)
    assert weight.tolist() == pytest.approx([1.0, 1.0, math.exp(-2.0)])
    assert not weight.requires_grad


def test_the_importance_weight_leaves_the_kl_term_alone() -> None:
    b = batch(1)
    stale = TokenBatch(
        logp=b.logp,
        old=b.old,
        behaviour=b.behaviour + 5.0,
        has_behaviour=b.has_behaviour,
        reference=b.reference,
        advantage=b.advantage,
        mask=b.mask,
    )
    fresh_terms, stale_terms = dart_loss(b, LossConfig()), dart_loss(stale, LossConfig())
    assert float(stale_terms.kl) == pytest.approx(float(fresh_terms.kl))
    assert abs(float(stale_terms.policy_loss)) < 0.02 * abs(float(fresh_terms.policy_loss)) + 0.02


def test_kl_is_zero_at_the_reference_and_positive_elsewhere() -> None:
    logp = torch.linspace(-3.0, 0.0, 7, dtype=torch.float64)
    assert k3_kl(logp, logp).abs().max() == 0
    assert (k3_kl(logp, logp + 0.5) > 0).all()
    assert (k3_kl(logp, logp - 0.5) > 0).all()


def test_the_kl_terms_gradient_is_right() -> None:
    logp = torch.linspace(-3.0, 0.0, 7, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: k3_kl(x, torch.full_like(x, -1.0)), (logp,))


def test_short_and_long_answers_weigh_the_same() -> None:
    values = torch.tensor([[1.0, 1.0, 1.0, 1.0], [3.0, 99.0, 99.0, 99.0]])
    mask = torch.tensor([[True] * 4, [True, False, False, False]])
    assert float(sequence_mean_token_mean(values, mask)) == pytest.approx(2.0)


def test_a_batch_of_empty_answers_gives_zero_and_no_nan() -> None:
    b = batch(0)
    empty = TokenBatch(
        logp=b.logp,
        old=b.old,
        behaviour=b.behaviour,
        has_behaviour=b.has_behaviour,
        reference=b.reference,
        advantage=b.advantage,
        mask=torch.zeros_like(b.mask),
    )
    terms = dart_loss(empty, LossConfig())
    terms.loss.backward()
    assert float(terms.loss.detach()) == 0.0
    assert b.logp.grad is not None
    assert torch.isfinite(b.logp.grad).all()


def test_padding_never_reaches_loss_or_gradient() -> None:
    b, pad = batch(2), -1e4
    wild = {
        name: torch.where(b.mask, getattr(b, name).detach(), torch.tensor(pad * sign, dtype=torch.float64))
        for name, sign in (("logp", -1), ("old", 1), ("behaviour", 1), ("reference", -1))
    }
    wild["logp"].requires_grad_()
    padded = TokenBatch(**wild, has_behaviour=b.has_behaviour, advantage=b.advantage, mask=b.mask)
    terms = dart_loss(padded, LossConfig())
    terms.loss.backward()
    assert float(terms.loss.detach()) == pytest.approx(naive_loss(b, LossConfig()), rel=1e-9)
    assert wild["logp"].grad is not None
    assert torch.isfinite(wild["logp"].grad).all()
    assert (wild["logp"].grad[~b.mask] == 0).all()


def test_the_diagnostics_of_an_update_that_has_not_moved_are_neutral() -> None:
    b = batch(0)
    still = b.logp.detach()
    terms = dart_loss(
        TokenBatch(
            logp=b.logp,
            old=still,
            behaviour=still,
            has_behaviour=b.has_behaviour,
            reference=still,
            advantage=b.advantage,
            mask=b.mask,
        ),
        LossConfig(),
    )
    assert float(terms.ratio) == pytest.approx(1.0)
    assert float(terms.tis_weight) == pytest.approx(1.0)
    assert float(terms.clip_fraction) == 0.0
    assert float(terms.kl) == 0.0


def test_the_clip_fraction_counts_tokens_whose_gradient_was_cut() -> None:
    old = torch.zeros(1, 4, dtype=torch.float64)
    logp = torch.tensor([[0.5, -0.5, 0.1, 0.0]], dtype=torch.float64)
    terms = dart_loss(
        TokenBatch(
            logp=logp,
            old=old,
            behaviour=old,
            has_behaviour=torch.tensor([True]),
            reference=None,
            advantage=torch.tensor([1.0]).double(),
            mask=torch.ones(1, 4, dtype=torch.bool),
        ),
        LossConfig(),
    )
    assert float(terms.clip_fraction) == pytest.approx(0.25)
