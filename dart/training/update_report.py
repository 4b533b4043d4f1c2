"""The figures of one update. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

BATCH_FIGURES: Mapping[str, str] = {
    "trajectories": "Number of trajectories of the batch, without demonstrations.",
    "staleness_mean": "Mean staleness of the steps of the batch, in policy versions. Steps that are left out "
    "of the loss count, those of demonstrations do not.",
    "staleness_p50": "Median of the staleness of these steps.",
    "staleness_p95": "95th percentile of the staleness of these steps.",
    "staleness_max": "Largest staleness of these steps.",
    "staleness_bound": "The bound of the staleness, `curation.staleness`.",
}
"""Meaning of the figures of a batch, which the trainer records with those of the learner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSummary:
    """The figures that every learner returns, a simulated one included."""

    version: int
    """Version of the policy that the update made."""
    samples: int
    """Number of steps in the loss."""
    tokens: int
    """Number of answer tokens of the samples."""
    groups: int
    """Number of groups of the batch."""
    groups_without_spread: int
    """Number of groups with equal rewards that have no gradient."""
    mean_reward: float
    """Mean over all trajectories, including groups without spread, but without demonstrations."""
    optimizer_steps: int
    """Number of optimizer steps of this update."""
    seconds: float
    """Duration of the update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport(UpdateSummary):
    """The figures of an update with a loss. Means are over the step samples in the loss unless said
    otherwise."""

    loss: float
    """Mean loss. The minimised value is this times samples / steps: omitted steps count as 0 (DART section
    2.6)."""
    policy_loss: float
    """The loss without its KL term."""
    kl: float | None = None
    """k3 estimate of the KL divergence to the base policy, per token, linear beyond its bound; None when
    training.kl_beta is 0, because it is not computed then."""
    kl_bounded_fraction: float | None = None
    """Share of tokens whose KL is beyond its bound (`dart.training.loss.KL_GRADIENT_BOUND`); None if
    `kl` is."""
    pointer_loss: float
    """Supervised loss of the pointer head in nats per step, before its multiplication by
    training.pointer_weight; 0 if this weight is 0."""
    clip_fraction: float
    """Share of tokens without a gradient because of the clip."""
    dual_clip_fraction: float
    """Share of tokens with a negative advantage and a ratio beyond training.dual_clip."""
    ratio: float
    """Mean over tokens of the probability under the current policy divided by the one before the update."""
    ratio_bounded_fraction: float
    """Share of tokens whose log-ratio is beyond its bound (`dart.training.loss.LOG_RATIO_BOUND`)."""
    tis_weight: float
    """Mean truncated importance weight of a token in the policy term."""
    entropy: float
    """Entropy of the policy being trained, in nats per token."""
    grad_norm: float
    """Norm of the gradient before clipping, mean over optimizer steps."""
    steps: int
    """Number of steps of all groups with spread."""
    steps_masked: int
    """Number of steps left out because of low entropy."""
    without_behaviour: int
    """Number of steps in the loss whose weight is 1 because their log-probs are unknown (demonstrations)."""
    mismatch_engine: float | None
    """Mean absolute difference, in nats, between the log-prob before the update and the one that the engine
    recorded, over all tokens of steps of the trainer's own version; None without such steps."""
    mismatch_stale: float | None
    """Like `mismatch_engine`, for steps of older versions."""
    tis_truncated: float | None
    """Share of all tokens with recorded log-probs whose weight was truncated; None without such tokens."""
    injected: int
    """Number of demonstrations of the experience pool in the groups."""
    prefixes: int
    """Number of distinct (prompt, screenshot) pairs of the samples; each is computed once per pass."""
