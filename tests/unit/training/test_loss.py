"""Each term of the objective against a loop that a reader can check by hand, and by gradient check."""

import math
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from dart.training.loss import (
    KL_GRADIENT_BOUND,
    LossConfig,
    TokenBatch,
    clipped_policy_loss,
    dart_loss,
    importance_weight,
    k3_kl,
    non_finite_samples,
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
    assert stale_terms.kl == fresh_terms.kl
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
    assert terms.kl == 0.0


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


def single(
    logp: float, *, old: float = 0.0, reference: float | None = None, advantage: float = 1.0
) -> TokenBatch:
    """One sample of one token, in the trainer's precision."""
    return TokenBatch(
        logp=torch.tensor([[logp]], requires_grad=True),
        old=torch.tensor([[old]]),
        behaviour=torch.tensor([[old]]),
        has_behaviour=torch.tensor([True]),
        reference=None if reference is None else torch.tensor([[reference]]),
        advantage=torch.tensor([advantage]),
        mask=torch.tensor([[True]]),
    )


def gradient_of(b: TokenBatch, config: LossConfig) -> float:
    dart_loss(b, config).loss.backward()
    assert b.logp.grad is not None
    return float(b.logp.grad[0, 0])


@pytest.mark.parametrize("gap_nats", [8.0, 100.0, 1e4])
def test_a_token_far_from_the_reference_pulls_with_a_bounded_gradient_and_is_counted(gap_nats: float) -> None:
    b = single(-gap_nats, old=-gap_nats, reference=0.0, advantage=0.0)
    config = LossConfig(kl_beta=1.0)
    terms = dart_loss(b, config)
    assert math.isfinite(float(terms.loss.detach()))
    assert terms.kl_bounded_fraction == 1.0
    assert gradient_of(b, config) == pytest.approx(-KL_GRADIENT_BOUND)


def test_one_extreme_token_does_not_hold_the_gradient_of_the_kl_term() -> None:
    """300 answers of 4 tokens, near the reference but for one token 8 nats from it."""
    draw = torch.Generator().manual_seed(0)
    logp = -torch.rand(300, 4, generator=draw) * 2
    reference = logp + 0.1 * torch.randn(300, 4, generator=draw)
    logp[0, 0] = reference[0, 0] - 8.0
    b = TokenBatch(
        logp=logp.requires_grad_(),
        old=logp.detach(),
        behaviour=logp.detach(),
        has_behaviour=torch.ones(300, dtype=torch.bool),
        reference=reference,
        advantage=torch.randn(300, generator=draw),
        mask=torch.ones(300, 4, dtype=torch.bool),
    )
    dart_loss(b, LossConfig()).loss.backward()
    assert b.logp.grad is not None
    assert float(b.logp.grad[0, 0].abs() / b.logp.grad.norm()) < 0.1


def test_within_its_bound_kl_is_k3_and_beyond_it_goes_on_without_a_step() -> None:
    bound = math.log1p(KL_GRADIENT_BOUND)
    for gap in (-50.0, -1.0, 0.0, 1.0, bound - 1e-6):
        logp, reference = torch.tensor([-gap], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        assert float(k3_kl(logp, reference)) == pytest.approx(math.expm1(gap) - gap)
    near, far = (k3_kl(torch.tensor([-g], dtype=torch.float64), torch.zeros(1)) for g in (bound, bound + 1))
    assert float(far - near) == pytest.approx(KL_GRADIENT_BOUND)


@pytest.mark.parametrize("log_ratio", [10.0, 100.0, 1e4])
def test_with_a_negative_advantage_the_loss_is_cut_at_c_and_counted(log_ratio: float) -> None:
    b = single(0.0, old=-log_ratio, advantage=-2.0)
    config = LossConfig(kl_beta=0.0, dual_clip=10.0)
    terms = dart_loss(b, config)
    assert float(terms.loss.detach()) == pytest.approx(20.0)
    assert float(terms.dual_clip_fraction) == 1.0
    assert gradient_of(b, config) == 0.0


def test_below_c_the_dual_clip_changes_nothing() -> None:
    b, config = single(0.0, old=-math.log(9.0), advantage=-1.0), LossConfig(kl_beta=0.0)
    terms = dart_loss(b, config)
    assert float(terms.loss.detach()) == pytest.approx(9.0, rel=1e-5)
    assert float(terms.dual_clip_fraction) == 0.0


@pytest.mark.parametrize("log_ratio", [-1e4, -100.0, 100.0, 1e4])
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_no_log_ratio_makes_a_loss_a_gradient_or_a_figure_that_is_not_finite(
    log_ratio: float, advantage: float
) -> None:
    b = single(0.0, old=-log_ratio, reference=0.0, advantage=advantage)
    terms = dart_loss(b, LossConfig())
    figures = {field.name: float(getattr(terms, field.name).detach()) for field in fields(terms)}
    assert all(map(math.isfinite, figures.values())), figures
    assert figures["ratio_bounded_fraction"] == 1.0
    assert math.isfinite(gradient_of(b, LossConfig()))


def test_a_ratio_within_its_bounds_is_not_counted_as_bounded() -> None:
    terms = dart_loss(batch(0), LossConfig())
    assert terms.ratio_bounded_fraction == terms.kl_bounded_fraction == 0.0


@pytest.mark.parametrize("name", ["behaviour", "reference"])
def test_the_samples_whose_loss_is_not_finite_are_named(name: str) -> None:
    b = batch(0)
    logprobs = getattr(b, name).clone()
    logprobs[1, 0] = math.nan
    logprobs[0, 3] = math.nan  # padding
    found = non_finite_samples(replace(b, **{name: logprobs}), LossConfig())
    assert found.tolist() == [False, True, False, False]
