"""N, the number of rollouts of a task's next group (DART, arXiv 2509.23866, section 3.1).

Tasks that the policy mostly solves get fewer rollouts: a group of equal rewards teaches nothing, and the same
rollouts teach more about tasks that are still hard. Let s be the mean reward of the task's latest N rollouts,
where N is the present number of the task. The next N is:

    N_max                               while s < threshold
    max(N_min, floor(a / s - b))        while s >= threshold

The paper gives 9 / s - 7 for N_max = 8 and threshold = 0.6. This curve passes through the points
(threshold, N_max) and (1, 2). For other settings, a and b are chosen so that the curve passes through the
same two points: the number falls without a jump at the threshold, and a task that always succeeds gets 2
rollouts (or N_min, if that is more), the fewest that GRPO can compare.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 2
"""The fewest rollouts of a group, because GRPO compares the rollouts of a group with each other."""

ROUNDING = 1e-9
"""Tolerance for rounding errors: a value that is at most this far from a whole number counts as the whole
number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The rule that gives fewer rollouts to tasks that mostly succeed."""

    most: int
    """N_max, at least 2."""
    minimum: int
    """N_min. If it equals N_max, every task has the same number of rollouts, whatever its rewards."""
    threshold: float

    def at_first(self, decided: int | None) -> int:
        """Return N of a task when the curator starts.

        decided   N that an earlier curator decided, perhaps with other settings; None if there is none
        """
        return self.most if decided is None else min(self.most, max(self.minimum, decided))

    def rollouts(self, current: int, recent_rewards: Sequence[float]) -> int:
        """Return N of a task's next groups.

        current          the present N of the task; N does not change while fewer rewards than this are known
        recent_rewards   the latest rewards of the task, newest last
        """
        if len(recent_rewards) < current:
            return current
        return self.for_success(success(recent_rewards, current))

    def for_success(self, s: float) -> int:
        """Return N of a task whose mean reward is `s`, in [0, 1]."""
        if s < self.threshold:
            return self.most
        if self.threshold == 1:
            return self.minimum
        a = (self.most - FEWEST) * self.threshold / (1 - self.threshold)
        wanted = math.floor(a / s - (a - FEWEST) + ROUNDING)
        return min(self.most, max(self.minimum, wanted))


def fixed_quota(rollouts: int) -> Quota:
    """Return a rule that gives every task the same number of rollouts."""
    return Quota(most=rollouts, minimum=rollouts, threshold=1.0)


def success(recent_rewards: Sequence[float], last: int) -> float:
    """Return the mean of the last `last` rewards. At least that many rewards must be given."""
    return math.fsum(list(recent_rewards)[-last:]) / last
