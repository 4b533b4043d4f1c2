"""The policy objective of DART (arXiv 2509.23866, sections 3 and 4), term by term.

With theta the policy being trained, old the trainer's policy at the start of the update,
behaviour the engine that sampled, and ref the frozen base policy, per answer token::

    rho = exp(logp_theta - logp_old)
    w   = min(exp(logp_old - logp_behaviour), C)                           truncated importance weight
    J   = min(rho * A, clip(rho, 1 - eps_low, 1 + eps_high) * A)
    L   = -w * (max(J, c * A) where A < 0, else J)  +  beta * KL(theta || ref)

Three bounds keep the loss finite and prevent one token from outweighing a batch: the dual clip c
of Ye et al. 2020 (arXiv 1912.09729, section 5), without which the loss at a negative advantage is
unbounded; log rho within +-LOG_RATIO_BOUND; and the gradient of a token's KL at most
KL_GRADIENT_BOUND. The asymmetric clip is DAPO's (Yu et al. 2025, arXiv 2503.14476, section
3.1). The truncated weight is that of Yao et al. 2025 ("Your efficient RL framework secretly
brings you off-policy RL training"): it multiplies the policy term only and carries no gradient. w is 1
where the behaviour log-probs are not known (demonstrations), or if importance weights are switched off.

Unless said otherwise, tensors have the shape (samples, answer tokens). `mask` is True at tokens that
were sampled; all other places are padding and may hold any finite number.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Largest |log rho|: exp(20) is far beyond every clip, and finite in every precision that training uses."""

KL_GRADIENT_BOUND = 10.0
"""Largest gradient of one token's KL with respect to its log-prob."""

KL_GAP_BOUND_NATS = math.log1p(KL_GRADIENT_BOUND)
"""Value of logp_ref - logp_theta at which the k3 estimate has the gradient KL_GRADIENT_BOUND: 2.4 nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """The constants of the objective (defaults: DART appendix A.4)."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    tis_cap: float | None = 1.0
    """C, the largest importance weight; None: every weight is 1."""
    dual_clip: float = 10.0
    """c: the largest ratio that counts when the advantage is negative."""
    kl_beta: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """The inputs of the objective; gradients flow through `logp` only."""

    logp: Tensor
    """Log-probs under the policy being trained."""
    old: Tensor
    """Log-probs under the trainer's policy at the start of the update."""
    behaviour: Tensor
    """Log-probs that the engine recorded at sampling time; any finite number where it recorded none."""
    has_behaviour: Tensor
    """(samples,), bool: whether the engine recorded log-probs for the sample."""
    reference: Tensor | None
    """Log-probs under the frozen base policy; None when kl_beta is 0, because they are not computed then."""
    advantage: Tensor
    """(samples,): the advantage of each sample."""
    mask: Tensor
    """(samples, tokens), bool: True at tokens that were sampled, False at padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """The loss to differentiate, and diagnostics (means over samples)."""

    loss: Tensor
    policy_loss: Tensor
    kl: Tensor | None
    """None without log-probs of the base policy."""
    kl_bounded_fraction: Tensor | None
    """Share of tokens whose KL is beyond its bound; None like `kl`."""
    clip_fraction: Tensor
    dual_clip_fraction: Tensor
    """Share of tokens with a negative advantage and a ratio beyond c."""
    ratio: Tensor
    ratio_bounded_fraction: Tensor
    """Share of tokens whose log-ratio was bounded."""
    tis_weight: Tensor


@dataclass(frozen=True, slots=True)
class _TokenTerms:
    """The terms of the objective for every token; 0, 1 or False at padding."""

    policy: Tensor
    kl: Tensor
    log_ratio: Tensor
    """log rho, before its bound is applied."""
    ratio: Tensor
    weight: Tensor
    kl_gap: Tensor
    """logp_ref - logp_theta in nats."""


def clipped_policy_loss(
    ratio: Tensor, advantage: Tensor, clip_low: float, clip_high: float, dual_clip: float = math.inf
) -> Tensor:
    """Return -J for each token, with J = min(rho A, clip(rho, 1 - low, 1 + high) A).

    Where A < 0, J is at least c A. rho is `ratio`, A is `advantage` and c is `dual_clip`. Shapes broadcast.
    """
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    return -torch.where(advantage < 0, torch.maximum(objective, dual_clip * advantage), objective)


def truncated_weight(old: Tensor, behaviour: Tensor, cap: float) -> Tensor:
    """Return per-token min(exp(old - behaviour), cap), without gradient (Yao et al. 2025)."""
    return torch.exp((old - behaviour).detach()).clamp(max=cap)


def importance_weight(batch: TokenBatch, cap: float | None) -> Tensor:
    """Return the per-token weight of the policy term; 1 where no behaviour log-probs are recorded or the cap
    is None."""
    ones = torch.ones_like(batch.old)
    if cap is None:
        return ones
    weight = truncated_weight(batch.old, batch.behaviour, cap)
    return torch.where(batch.has_behaviour.unsqueeze(-1), weight, ones)


def k3_kl(logp: Tensor, reference: Tensor) -> Tensor:
    """Return the per-token estimate of KL(theta || ref) from samples of theta, never negative.

    k3 of Schulman 2020 ("Approximating KL divergence"): exp(d) - d - 1 with d = ref - theta. Beyond
    KL_GAP_BOUND_NATS it continues as a straight line, so the gradient towards the reference is bounded.
    """
    gap = reference - logp
    near = gap.clamp(max=KL_GAP_BOUND_NATS)
    return torch.expm1(near) - near + KL_GRADIENT_BOUND * (gap - near)


def sequence_mean_token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over samples of each sample's mean over its own tokens.

    Every step sample has the same weight, whatever the length of its answer. Samples without tokens
    are ignored; without any sample the result is 0 and has no gradient.
    """
    tokens = mask.sum(-1)
    totals = torch.where(mask, values, values.new_zeros(())).sum(-1)
    means = totals / tokens.clamp(min=1)
    return means.sum() / (tokens > 0).sum().clamp(min=1)


def dart_loss(batch: TokenBatch, config: LossConfig) -> LossTerms:
    """Compute the objective of one micro-batch; the module's docstring has the formula."""
    terms, mask = _token_terms(batch, config), batch.mask
    advantage = batch.advantage.unsqueeze(-1)
    policy_loss = sequence_mean_token_mean(terms.policy, mask)
    kl, has_reference = sequence_mean_token_mean(terms.kl, mask), batch.reference is not None

    def share(tokens: Tensor) -> Tensor:
        return sequence_mean_token_mean(tokens.to(terms.ratio.dtype), mask).detach()

    return LossTerms(
        loss=policy_loss + config.kl_beta * kl if config.kl_beta > 0 else policy_loss,
        policy_loss=policy_loss.detach(),
        kl=kl.detach() if has_reference else None,
        kl_bounded_fraction=share(terms.kl_gap > KL_GAP_BOUND_NATS) if has_reference else None,
        clip_fraction=share((terms.ratio - 1.0) * advantage.sign() > _allowance(advantage, config)),
        dual_clip_fraction=share((advantage < 0) & (terms.ratio > config.dual_clip)),
        ratio=share(terms.ratio),
        ratio_bounded_fraction=share(terms.log_ratio.abs() > LOG_RATIO_BOUND),
        tis_weight=share(terms.weight),
    )


def non_finite_samples(batch: TokenBatch, config: LossConfig) -> Tensor:
    """Return (samples,), bool: True for samples whose own loss is not a finite number."""
    terms = _token_terms(batch, config)
    loss = terms.policy + config.kl_beta * terms.kl
    return (batch.mask & ~torch.isfinite(loss)).any(-1)


def _token_terms(batch: TokenBatch, config: LossConfig) -> _TokenTerms:
    padded = ~batch.mask
    logp = batch.logp.masked_fill(padded, 0.0)
    log_ratio = (batch.logp - batch.old).masked_fill(padded, 0.0)
    ratio = torch.exp(log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    weight = importance_weight(batch, config.tis_cap)
    policy = weight * clipped_policy_loss(
        ratio, batch.advantage.unsqueeze(-1), config.clip_low, config.clip_high, config.dual_clip
    )
    reference = logp.detach() if batch.reference is None else batch.reference.masked_fill(padded, 0.0)
    return _TokenTerms(
        policy=policy,
        kl=k3_kl(logp, reference),
        log_ratio=log_ratio.detach(),
        ratio=ratio,
        weight=weight,
        kl_gap=(reference - logp).detach(),
    )


def _allowance(advantage: Tensor, config: LossConfig) -> Tensor:
    """Return how far the ratio may move in the advantage's direction before the clip removes its gradient."""
    return torch.where(advantage >= 0, config.clip_high, config.clip_low).to(advantage.dtype)
