"""High-entropy steps: train where the policy was least certain (DART, arXiv 2509.23866, section 3.3).

The entropy of a step is the mean over the tokens of its whole answer, thought and action, of the entropy of
the sampling distribution, as the engine recorded it::

    H_t = 1 / (|r_t| + |a_t|) * sum_i H_ti              keep the step where H_t >= the q-quantile of its group

Coordinates are tokens of the answer, and their entropies are in the mean. The small policy's bins are two
tokens (`dart.policy.modeling`): the entropy of an x token is over columns, the entropy of a y token is over
the cells of its column, and their sum is the entropy of pointing at a cell. A patch of a pointer head counts
with its entropy divided by the log of the number of patches, a number in [0, 1]: the patches of a large
screenshot would otherwise outweigh every word.

Leaving a step out affects the loss only. Advantages, and the number of samples that the loss is a mean over,
include all steps (section 2.6). Pure arithmetic: no torch, no I/O.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dart.core.types import Group, Step
from dart.policy.protocols import PointerTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointing:
    """How to find the patches in the answers of a policy with a pointer head, and their number."""

    tokens: PointerTokens
    patches: Callable[[Step], int]
    """Function that returns the number of patches of a step's screenshot."""


def step_entropy(step: Step, pointing: Pointing | None = None) -> float | None:
    """Return the mean entropy per token; None without recorded entropies (demonstrations, empty answers).

    The entropy of a word token is in nats. The entropy of a patch is divided by the largest possible one.
    """
    if not step.entropies:
        return None
    if pointing is None:
        return math.fsum(step.entropies) / len(step.entropies)
    largest = math.log(max(2, pointing.patches(step)))
    found = [
        entropy / largest if before == pointing.tokens.token_id else entropy
        for before, entropy in zip((None, *step.token_ids), step.entropies, strict=False)
    ]
    return math.fsum(found) / len(found)


def entropy_threshold(group: Group, share: float, pointing: Pointing | None = None) -> float:
    """Return the `share` quantile of the entropies of the group's own steps, without demonstrations.

    -inf when no step has an entropy, so that no step is left out.
    """
    found = [step_entropy(step, pointing) for trajectory in group.trajectories for step in trajectory.steps]
    return quantile([entropy for entropy in found if entropy is not None], share)


def is_kept(step: Step, threshold: float, pointing: Pointing | None = None) -> bool:
    """Whether the step is in the loss: its entropy is at or above the threshold, or unknown."""
    entropy = step_entropy(step, pointing)
    return entropy is None or entropy >= threshold


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, interpolated linearly around position share * (n - 1); -inf without values."""
    if not values:
        return -math.inf
    ordered = sorted(values)
    position = round(share * (len(ordered) - 1), 9)  # 0.1 * 30 must be exactly 3, or a tie would be dropped
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
