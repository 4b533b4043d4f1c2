"""The policy objective of DART (arXiv 2509.23866, sections 3 and 4), term by term.

With theta the policy being trained, old the trainer's policy at the start of the update,
behaviour the engine that sampled, and ref the frozen base policy, per answer token::

    rho = exp(logp_theta - logp_old)
    w   = min(exp(logp_old - logp_behaviour), C)                           truncated importance weight
    L   = -w * min(rho * A, clip(rho, 1 - eps_low, 1 + eps_high) * A)  +  beta * KL(theta || ref)

The asymmetric clip is DAPO's (Yu et al. 2025, arXiv 2503.14476, section 3.1), the truncated
weight is that of Yao et al. 2025 ("Your efficient RL framework secretly brings you
off-policy RL training"): it multiplies the policy term only and carries no gradient. Where
the behaviour is not known (demonstrations), or the weights are switched off, w is 1.

Every tensor is (samples, answer tokens); `mask` is True at tokens that were sampled, the
rest is padding and may hold any finite number.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossConfig:
    """The constants of the objective (defaults: DART appendix A.4)."""

    clip_low: float = 0.2
    clip_high: float = 0.28
    tis_cap: float | None = 1.0
    """C; None: every weight is 1."""
    kl_beta: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """What the objective needs of a batch; gradients flow through `logp` only."""

    logp: Tensor
    """Of the policy being trained."""
    old: Tensor
    """Of the trainer's policy at the start of the update."""
    behaviour: Tensor
    """As recorded by the engine at sampling time; any finite number where it was not."""
    has_behaviour: Tensor
    """(samples,), bool: whether the engine recorded it."""
    reference: Tensor | None
    """Of the frozen base policy; None when kl_beta is 0 and nobody computed it."""
    advantage: Tensor
    """(samples,)"""
    mask: Tensor
    """(samples, tokens), bool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """The scalar to differentiate, and what happened on the way (means over samples)."""

    loss: Tensor
    policy_loss: Tensor
    kl: Tensor
    clip_fraction: Tensor
    ratio: Tensor
    tis_weight: Tensor


def clipped_policy_loss(ratio: Tensor, advantage: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """Per-token -min(rho A, clip(rho, 1 - low, 1 + high) A); shapes broadcast."""
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio * advantage, clipped * advantage)


def truncated_weight(old: Tensor, behaviour: Tensor, cap: float) -> Tensor:
    """Per-token min(exp(old - behaviour), cap), without gradient (Yao et al. 2025)."""
    return torch.exp((old - behaviour).detach()).clamp(max=cap)


def importance_weight(batch: TokenBatch, cap: float | None) -> Tensor:
    """Per-token weight of the policy term: truncated, or 1 where there is nothing to weigh with."""
    ones = torch.ones_like(batch.old)
    if cap is None:
        return ones
    weight = truncated_weight(batch.old, batch.behaviour, cap)
    return torch.where(batch.has_behaviour.unsqueeze(-1), weight, ones)


def k3_kl(logp: Tensor, reference: Tensor) -> Tensor:
    """Per-token estimate of KL(theta || ref) from samples of theta, never negative.

    k3 of Schulman 2020 ("Approximating KL divergence"): exp(d) - d - 1 with d = ref - theta.
    """
    difference = reference - logp
    return torch.expm1(difference) - difference


def sequence_mean_token_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the samples of each sample's mean over its own tokens.

    Every step sample weighs the same however long its answer is. A sample without tokens
    takes no part; without any sample the result is 0 (and has no gradient).
    """
    tokens = mask.sum(-1)
    totals = torch.where(mask, values, values.new_zeros(())).sum(-1)
    means = totals / tokens.clamp(min=1)
    return means.sum() / (tokens > 0).sum().clamp(min=1)


def dart_loss(batch: TokenBatch, config: LossConfig) -> LossTerms:
    """The whole objective of one micro-batch; see the module's docstring for the formula."""
    mask = batch.mask
    padded = ~mask
    advantage = batch.advantage.unsqueeze(-1)
    ratio = torch.exp((batch.logp - batch.old).masked_fill(padded, 0.0))
    weight = importance_weight(batch, config.tis_cap)
    policy = weight * clipped_policy_loss(ratio, advantage, config.clip_low, config.clip_high)
    policy_loss = sequence_mean_token_mean(policy, mask)
    kl = _mean_kl(batch, padded)
    clipped = ((ratio - 1.0) * advantage.sign() > _allowance(advantage, config)).to(ratio.dtype)
    return LossTerms(
        loss=policy_loss + config.kl_beta * kl if config.kl_beta > 0 else policy_loss,
        policy_loss=policy_loss.detach(),
        kl=kl.detach(),
        clip_fraction=sequence_mean_token_mean(clipped, mask).detach(),
        ratio=sequence_mean_token_mean(ratio, mask).detach(),
        tis_weight=sequence_mean_token_mean(weight, mask).detach(),
    )


def _mean_kl(batch: TokenBatch, padded: Tensor) -> Tensor:
    if batch.reference is None:
        return batch.logp.new_zeros(())
    logp = batch.logp.masked_fill(padded, 0.0)
    reference = batch.reference.masked_fill(padded, 0.0)
    return sequence_mean_token_mean(k3_kl(logp, reference), batch.mask)


def _allowance(advantage: Tensor, config: LossConfig) -> Tensor:
    """How far the ratio may move in the advantage's direction before the clip takes its gradient."""
    return torch.where(advantage >= 0, config.clip_high, config.clip_low).to(advantage.dtype)
