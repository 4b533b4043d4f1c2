"""The mismatch between the trainer's log-probs and those that the engine recorded.

Fresh and older steps are counted separately. For steps of the trainer's own version, the mismatch is the
difference of two implementations of one policy; a large one is a fault of the engine. For older versions it
also contains what training has changed since.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from dart.training.loss import TokenBatch

CUT = 1.001
"""A weight counts as truncated if it exceeds the cap by more than this factor; less is rounding."""


def mismatch_sums(
    batch: TokenBatch, is_stale: Tensor, is_demonstration: Tensor, cap: float | None
) -> dict[str, float]:
    """Return sums over the tokens of a micro-batch whose behaviour log-probs are known. Sums of micro-batches
    and of ranks can be added up.

    is_stale      (samples,), bool: the step was sampled by an older version
    is_demonstration   (samples,), bool: the step belongs to a demonstration. These are left out: another
                  policy, or this one with a hint, sampled them
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
    """Return the mismatch figures of an `UpdateReport` from such sums; None for a figure without tokens."""
    return {
        "mismatch_engine": _ratio(sums["nats_engine"], sums["tokens_engine"]),
        "mismatch_stale": _ratio(sums["nats_stale"], sums["tokens_stale"]),
        "tis_truncated": _ratio(sums["truncated"], sums["tokens_engine"] + sums["tokens_stale"]),
    }


def _ratio(total: float, count: float) -> float | None:
    return total / count if count else None
