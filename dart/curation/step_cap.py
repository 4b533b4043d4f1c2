"""The step cap of a task's episodes (DART, arXiv 2509.23866, section 3.1, dynamic trajectory length).

The cap is the number of steps of the task's longest success so far plus some slack, and at most the global
cap (`curation.step_cap`). Before its first success a task has the global cap. After the first success the cap
never falls, because the longest success never becomes shorter.

With this rule alone the cap could hardly rise, because an episode that needs more steps is cut off and fails.
So a share of the groups is played with the global cap, and a longer success among them raises the cap.
"""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCap:
    """The rule for the step caps of tasks."""

    largest: int
    """The global cap, in environment steps."""
    slack: int
    probe_share: float
    """Share of a task's groups that run at the global cap, in [0, 1]."""

    def after(self, longest_success_steps: int | None) -> int:
        """Return the cap of a task, given the steps of its longest success (None: it has had no success)."""
        if longest_success_steps is None:
            return self.largest
        return min(self.largest, longest_success_steps + self.slack)

    def reason(self, longest_success_steps: int | None) -> str:
        """Say in words why the cap of a task is what it is."""
        if longest_success_steps is None:
            return "no episode counts as a success any more"
        limit = f", at most {self.largest}" if longest_success_steps + self.slack > self.largest else ""
        steps = "1 step" if longest_success_steps == 1 else f"{longest_success_steps} steps"
        return f"longest success {steps} + slack {self.slack}{limit}"

    def probes(self, task_id: str, groups_opened: int, order_seed: int) -> bool:
        """Whether the task's group number `groups_opened` (from 0) runs at the global cap."""
        return Random(f"{order_seed}/{task_id}/{groups_opened}/probe").random() < self.probe_share
