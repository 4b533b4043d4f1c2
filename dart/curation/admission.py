"""When a new group may be opened, so that nothing is trained too old (invariant fresh).

Words: the trainer is at version c (its next update makes c + 1), trains G groups per update, and a group
with floor v holds no step sampled by a version older than v. The bound K says that a group trained at
version c has c - v <= K; so it must be trained at version v + K at the latest.

The plan that meets every such deadline if any plan does is earliest deadline first: with the live groups
in order of their floors, number j (from 0) is trained at version c + j // G.

* A new group may be opened when, trained last of all live groups, it is still in time. That is AReaL's
  capacity rule (arXiv 2505.24298, eq. 3), counted in groups instead of trajectories.
* A batch may be leased when the groups that it leaves behind can still all be in time. So the trainer waits
  for a slow group instead of passing it over until it is too old.

What an idle environment waits for besides is the scheduling (DART, arXiv 2509.23866, figure 3):

rollout   nothing: it gets the next rollout of whatever group needs one
task      the other rollouts of its group; then it joins another one
batch     the whole batch: groups are opened only for the version every engine and the trainer are at, as
          many as an update takes, and each that is dropped is replaced

The last two are the coupled ways, kept for comparison.
"""

import math
from collections.abc import Mapping
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


def groups_admissible(
    *,
    serving_version: int,
    trainer_version: int,
    live_groups: int,
    groups_per_update: int,
    staleness_bound: int,
) -> int:
    """How many groups may be opened now; 0 or less when none.

    serving_version  the oldest version any engine serves: the floor of a group opened now. While engines lag
                     behind the trainer it, not the trainer's version, decides.
    live_groups      groups neither trained nor dropped; a batch at the trainer counts until its commit

    AReaL admits while submitted <= (version + K + 1) * B, counted since the beginning. Of those submitted,
    trainer_version * G groups were consumed, dropped ones are replaced, the others live.
    """
    until_too_old = serving_version + staleness_bound + 1 - trainer_version
    return until_too_old * groups_per_update - live_groups


def most_groups(over_provision: float, groups_per_update: int) -> float:
    """How many groups may be in flight or ready; what the trainer has is neither.

    APRIL (arXiv 2509.18521) starts alpha times as many groups as an update takes, so that the trainer need
    not wait for slow ones. Fewer than an update takes would never make a batch. An alpha of 0 is no bound.
    """
    if over_provision == 0:
        return math.inf
    return max(groups_per_update, math.ceil(over_provision * groups_per_update))


def can_all_be_fresh(
    floors: Mapping[int, int], *, trainer_version: int, groups_per_update: int, staleness_bound: int
) -> bool:
    """Whether groups can all be trained in time, the first ones at `trainer_version`.

    floors   how many groups there are of each floor; of equal ones only the last to be trained matters
    """
    before = 0
    for floor in sorted(floors):
        before += floors[floor]
        last_trained_at = trainer_version + (before - 1) // groups_per_update
        if floors[floor] and last_trained_at > floor + staleness_bound:
            return False
    return True


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
