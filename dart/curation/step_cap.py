"""How long an episode of a task may be (DART, arXiv 2509.23866, section 3.1, dynamic trajectory length).

The cap is the task's longest success so far plus some slack, and at most the global cap. Before its first
success a task has the global cap. The longest success never becomes shorter, so after the first
success the cap never falls.

A cap alone could not rise: an episode that needs more steps than every success before it is cut off and
fails. So a share of the groups runs at the global cap, and a longer success among them raises the cap.
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
        """The cap of a task, from the steps of its longest success; None: it has had no success."""
        if longest_success_steps is None:
            return self.largest
        return min(self.largest, longest_success_steps + self.slack)

    def reason(self, longest_success_steps: int | None) -> str:
        """Why the cap of a task is what it is, in words."""
        if longest_success_steps is None:
            return "no episode counts as a success any more"
        limit = f", at most {self.largest}" if longest_success_steps + self.slack > self.largest else ""
        return f"longest success {longest_success_steps} steps + slack {self.slack}{limit}"

    def probes(self, task_id: str, groups_opened: int, order_seed: int) -> bool:
        """Whether the task's group number `groups_opened` (from 0) runs at the global cap."""
        return Random(f"{order_seed}/{task_id}/{groups_opened}/probe").random() < self.probe_share
