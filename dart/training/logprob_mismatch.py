"""The mismatch between the trainer's log-probs and those that the engine recorded.

Steps of the trainer's own version and steps of older versions are counted separately. For the own version,
the mismatch is the difference of two implementations of one policy; a large mismatch is a fault of the
engine. For older versions, the mismatch also contains what training has changed since.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from dart.training.loss import TokenBatch

CUT = 1.001
"""A weight counts as truncated if it is above the cap times this factor; a smaller excess is rounding."""


def mismatch_sums(
    batch: TokenBatch, is_stale: Tensor, is_demonstration: Tensor, cap: float | None
) -> dict[str, float]:
    """Return sums over those tokens of a micro-batch that have behaviour log-probs, without demonstrations.

    `nats_engine` and `nats_stale` sum up absolute differences, `tokens_engine` and `tokens_stale` count
    tokens, each for the trainer's own version and for older ones; `truncated` counts truncated weights. The
    sums of micro-batches and of ranks can be added up.

    is_stale      (samples,), bool: the step was sampled by an older version
    is_demonstration   (samples,), bool: the step belongs to a demonstration. Such steps are left out, because
                  another policy, or this policy with a hint, sampled them
    cap           largest importance weight; None: no weight is truncated
    """
    known = batch.mask & (batch.has_behaviour & ~is_demonstration).unsqueeze(-1)
    difference = (batch.old - batch.behaviour).detach()
    sums: dict[str, float] = {}
    for age, is_of_age in (("engine", ~is_stale), ("stale", is_stale)):
        chosen = known & is_of_age.unsqueeze(-1)
        sums[f"nats_{age}"] = float(difference[chosen].abs().sum())
        sums[f"tokens_{age}"] = int(chosen.sum())
    is_cut = torch.exp(difference[known]) > (math.inf if cap is None else cap * CUT)
    return {**sums, "truncated": int(is_cut.sum())}


def mismatch_figures(sums: Mapping[str, float]) -> dict[str, float | None]:
    """Return the mismatch figures of an `UpdateReport` from the sums that `mismatch_sums` returns.

    None stands for a figure without tokens.
    """
    return {
        "mismatch_engine": _ratio(sums["nats_engine"], sums["tokens_engine"]),
        "mismatch_stale": _ratio(sums["nats_stale"], sums["tokens_stale"]),
        "tis_truncated": _ratio(sums["truncated"], sums["tokens_engine"] + sums["tokens_stale"]),
    }


def _ratio(total: float, count: float) -> float | None:
    return total / count if count else None
