"""The mismatch between the trainer's log-probs and those that the engine recorded.

It is counted separately by age. For steps of the trainer's own version, the mismatch is the difference of two
implementations of one policy; a large one is a fault of the engine. For older versions it also contains what
training has changed since.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from dart.training.loss import TokenBatch

CUT = 1.001
"""Factor by which a ratio must exceed the cap to count as truncated; less is rounding."""


class MismatchTally:
    """Sums over the tokens of an update whose behaviour log-prob is known."""

    def __init__(self, tis_cap: float | None) -> None:
        self._cap = tis_cap
        self._distance = {False: 0.0, True: 0.0}
        """Sum of |old - behaviour| in nats, by whether the token is of an older version."""
        self._tokens = {False: 0, True: 0}
        self._truncated = 0

    def add(self, batch: TokenBatch, is_stale: Tensor, is_injected: Tensor) -> None:
        """Count a micro-batch.

        is_stale      (samples,), bool: the step was sampled by an older version
        is_injected   (samples,), bool: the step belongs to a demonstration. These are left out: another
                      policy, or this one with a hint, sampled them
        """
        known = batch.mask & (batch.has_behaviour & ~is_injected).unsqueeze(-1)
        difference = (batch.old - batch.behaviour).detach()
        for stale in (False, True):
            chosen = known & (is_stale.unsqueeze(-1) == stale)
            self._distance[stale] += float(difference[chosen].abs().sum())
            self._tokens[stale] += int(chosen.sum())
        if self._cap is not None:
            self._truncated += int((torch.exp(difference[known]) > self._cap * CUT).sum())

    def sums(self) -> dict[str, float]:
        """Return the sums so far, which several processes can add up."""
        return {
            "distance_engine": self._distance[False],
            "distance_stale": self._distance[True],
            "tokens_engine": self._tokens[False],
            "tokens_stale": self._tokens[True],
            "truncated": self._truncated,
        }

    def with_sums(self, sums: Mapping[str, float]) -> "MismatchTally":
        """Return a tally with these sums."""
        made = MismatchTally(self._cap)
        made._distance = {False: sums["distance_engine"], True: sums["distance_stale"]}
        made._tokens = {False: int(sums["tokens_engine"]), True: int(sums["tokens_stale"])}
        made._truncated = int(sums["truncated"])
        return made

    def figures(self) -> Mapping[str, float | None]:
        """Return the figures of an `UpdateReport`; None for those without tokens."""
        return {
            "mismatch_engine": _ratio(self._distance[False], self._tokens[False]),
            "mismatch_stale": _ratio(self._distance[True], self._tokens[True]),
            "tis_truncated": _ratio(self._truncated, self._tokens[False] + self._tokens[True]),
        }


def _ratio(total: float, count: int) -> float | None:
    return total / count if count else None
