"""Advantages in a group in which every episode failed, of those that failed with their only step (after LENS,
arXiv 2510.08696).

Equal rewards do not say which answer of the group was better, but they do say that each was wrong. The
gradient of log(1 - p), the log-likelihood that an answer of probability p is wrong, is -p / (1 - p) times
that of log p. So the penalty is small for an answer that was a guess, and large for one that the policy is
sure of. LENS takes p from the policy. Here the group itself estimates it: if k of its N episodes consist of
the same answer, p is k / (N + 1) ::

    A = -weight * k / (N + 1 - k)

Two clicks on the same element are the same answer. Steps of longer episodes are left out, because any of them
may have been right. Pure arithmetic: no torch, no I/O.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from dart.core.types import SUCCESS_ABOVE, Group, Step, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePenalty:
    """Which steps get the penalty, and how large it is."""

    weight: float
    success_above: float = SUCCESS_ABOVE
    """An episode with a reward above this value is a success."""

    def penalised(self, group: Group) -> tuple[tuple[Trajectory, ...], tuple[tuple[float], ...]]:
        """Return the trajectories that get the penalty, with the advantage of the step of each; no trajectory
        if the group has a success or a demonstration."""
        if group.demonstrations or any(one.reward > self.success_above for one in group.trajectories):
            return (), ()
        at_once = tuple(one for one in group.trajectories if len(one.steps) == 1)
        answers = [_answer(one.steps[0]) for one in at_once]
        count, beyond = Counter(answers), len(group.trajectories) + 1
        return at_once, tuple((-self.weight * count[one] / (beyond - count[one]),) for one in answers)


def _answer(step: Step) -> Hashable:
    return step.answer if step.box is None else step.box
