"""High-entropy steps: train where the policy was least certain (DART, arXiv 2509.23866, section 3.3).

The entropy of a step is the mean over the tokens of its whole answer, thought and action, of the entropy of
the sampling distribution, as the engine recorded it::

    H_t = 1 / (|r_t| + |a_t|) * sum_i H_ti              keep the step where H_t >= the q-quantile of its group

A grounding head has no entropy of its own here: coordinates are tokens of the answer whose logits are the
pointer's scores of the screen's cells (`dart.policy.modeling`), so that of an x token is over columns, that
of a y token over the cells of its column, and their sum that of pointing at a cell. Both are in the list.

The mask acts on the loss only. Advantages and the number of samples the loss is a mean over are those of all
steps (section 2.6). Pure arithmetic: no torch, no I/O.
"""

import math
from collections.abc import Sequence

from dart.core.types import Group, Step


def step_entropy(step: Step) -> float | None:
    """In nats per token; None where no entropies were recorded (demonstrations, empty answers)."""
    if not step.entropies:
        return None
    return math.fsum(step.entropies) / len(step.entropies)


def entropy_threshold(group: Group, share: float) -> float:
    """The `share` quantile of the entropies of the group's own steps, demonstrations apart.

    -inf where no step has one: nothing is left out then.
    """
    found = [step_entropy(step) for trajectory in group.trajectories for step in trajectory.steps]
    return quantile([entropy for entropy in found if entropy is not None], share)


def is_kept(step: Step, threshold: float) -> bool:
    """Whether the step is in the loss: at or above the threshold, or of unknown entropy."""
    entropy = step_entropy(step)
    return entropy is None or entropy >= threshold


def quantile(values: Sequence[float], share: float) -> float:
    """Interpolated linearly between the two values around position share * (n - 1); -inf of no values."""
    if not values:
        return -math.inf
    ordered = sorted(values)
    position = round(share * (len(ordered) - 1), 9)  # 0.1 * 30 is 3, not a hair more: that would drop a tie
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
