"""How far the trainer's log-probs are from those the engine recorded, and what the truncation cuts.

Told apart by age: at the trainer's own version the difference is what two implementations of one policy
differ by (a fault of the engine, were it large); at older versions it is what training changed since.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from dart.training.loss import TokenBatch

CUT = 1.001
"""A ratio beyond the cap by less than this factor is rounding, not a weight that was cut."""


class MismatchTally:
    """Sums over the tokens of an update whose behaviour log-prob is known."""

    def __init__(self, tis_cap: float | None) -> None:
        self._cap = tis_cap
        self._distance = {False: 0.0, True: 0.0}
        """Sum of |old - behaviour| in nats, by whether the token is of an older version."""
        self._tokens = {False: 0, True: 0}
        self._truncated = 0

    def add(self, batch: TokenBatch, is_stale: Tensor, is_injected: Tensor) -> None:
        """Count a micro-batch; (samples,) each: which were sampled by an older version, and which are of
        demonstrations. These are left out: other policies, or this one with a hint, sampled them."""
        known = batch.mask & (batch.has_behaviour & ~is_injected).unsqueeze(-1)
        difference = (batch.old - batch.behaviour).detach()
        for stale in (False, True):
            chosen = known & (is_stale.unsqueeze(-1) == stale)
            self._distance[stale] += float(difference[chosen].abs().sum())
            self._tokens[stale] += int(chosen.sum())
        if self._cap is not None:
            self._truncated += int((torch.exp(difference[known]) > self._cap * CUT).sum())

    def sums(self) -> dict[str, float]:
        """What was counted, to be added to what others counted."""
        return {
            "distance_engine": self._distance[False],
            "distance_stale": self._distance[True],
            "tokens_engine": self._tokens[False],
            "tokens_stale": self._tokens[True],
            "truncated": self._truncated,
        }

    def with_sums(self, sums: Mapping[str, float]) -> "MismatchTally":
        """A tally that counted this."""
        made = MismatchTally(self._cap)
        made._distance = {False: sums["distance_engine"], True: sums["distance_stale"]}
        made._tokens = {False: int(sums["tokens_engine"]), True: int(sums["tokens_stale"])}
        made._truncated = int(sums["truncated"])
        return made

    def figures(self) -> Mapping[str, float | None]:
        """What an UpdateReport says; None where there was no such token."""
        return {
            "mismatch_engine": _ratio(self._distance[False], self._tokens[False]),
            "mismatch_stale": _ratio(self._distance[True], self._tokens[True]),
            "tis_truncated": _ratio(self._truncated, self._tokens[False] + self._tokens[True]),
        }


def _ratio(total: float, count: int) -> float | None:
    return total / count if count else None
