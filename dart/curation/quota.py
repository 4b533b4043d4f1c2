"""How many rollouts a task's next group gets, and how long they may be.

Here the same for every task. DART's dynamic scheme (reference: section 3.1 of arXiv 2509.23866) is another
function of the same statistics.
"""

from dataclasses import dataclass
from typing import Protocol

from dart.store.records import TaskStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """What one group asks for."""

    rollouts: int
    """N: GRPO compares within them, so at least 2."""
    step_cap: int
    """Most environment steps of one episode."""

    def __post_init__(self) -> None:
        if self.rollouts < 2 or self.step_cap < 1:
            raise ValueError(f"a group needs at least 2 rollouts of at least 1 step, got {self}")


class Quota(Protocol):
    """Decides a task's next group from what is known about the task."""

    def plan(self, statistics: TaskStatistics) -> GroupPlan: ...


@dataclass(frozen=True, slots=True)
class FixedQuota:
    """The same plan for every task, whatever its statistics."""

    group: GroupPlan

    def plan(self, statistics: TaskStatistics) -> GroupPlan:
        return self.group
