"""What an idle environment waits for (DART, arXiv 2509.23866, figure 3).

rollout   nothing: it gets the next rollout of whatever group needs one
task      the other rollouts of its group; then it joins another one
batch     the whole batch: groups are opened only for the version every engine and the trainer are at, as
          many as an update takes, and each that is dropped is replaced

The last two are the coupled ways, kept for comparison.
"""

from enum import StrEnum


class Scheduling(StrEnum):
    """The unit an environment waits for."""

    ROLLOUT = "rollout"
    TASK = "task"
    BATCH = "batch"

    @property
    def keeps_environments_with_their_group(self) -> bool:
        """Whether an environment that played a rollout of a group waits until the group is complete."""
        return self is Scheduling.TASK


def why_no_new_group(
    scheduling: Scheduling,
    *,
    serving_version: int,
    trainer_version: int,
    live_groups: int,
    groups_per_update: int,
) -> str:
    """Why the scheduling lets a new group wait; empty when it need not. Admission is checked besides."""
    if scheduling is not Scheduling.BATCH:
        return ""
    if serving_version != trainer_version:
        return f"the next batch starts when every engine serves version {trainer_version}"
    if live_groups >= groups_per_update:
        return f"the {live_groups} groups of this batch have to be trained before new ones are opened"
    return ""
