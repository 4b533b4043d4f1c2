"""Rules for when a new group may be opened, so that no step is too old when it is trained (invariant fresh).

The trainer is at version c, so its next update makes version c + 1. It trains G groups per update. A group
has the floor v if none of its steps was sampled by a version older than v. The staleness bound K allows a
group to be trained at version c only if c - v <= K, so the deadline of the group is version v + K.

If any order of training meets all these deadlines, "earliest deadline first" meets them, too: the live groups
are sorted by their floors, and group number j (from 0) is trained at version c + j // G.

* A new group may be opened if it meets its deadline when it is trained after all live groups. That is AReaL's
  capacity rule (arXiv 2505.24298, eq. 3), counted in groups instead of trajectories.
* A batch may be leased if the groups that it leaves behind can all still meet their deadlines. So the trainer
  waits for a slow group instead of passing it over until it is too old.

The scheduling (DART, arXiv 2509.23866, figure 3) says what else an idle environment waits for:

rollout   nothing: it gets the next rollout of any group that has one to lease
task      the other rollouts of its group; then it gets a rollout of another group
batch     the whole batch: groups are opened only while every engine and the trainer are at the same version,
          as many as an update takes, and each dropped group is replaced

`batch` together with `rollout.sync = "all_at_once"` is the coupled loop; `task` lies between. Both
are kept for comparison.
"""

import math
from collections.abc import Mapping
from enum import StrEnum

from dart.curation.quota import ROUNDING


class Scheduling(StrEnum):
    """What an idle environment waits for: nothing, its group or the whole batch (see the module
    docstring)."""

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
    """Return how many groups may be opened now; 0 or a negative number if none may.

    serving_version  the oldest version that any engine serves: the floor of a group opened now, also while
                     engines lag behind the trainer
    live_groups      groups neither trained nor dropped; a batch at the trainer counts until its commit

    AReaL admits a trajectory while submitted <= (version + K + 1) * B, where B is the batch size and both
    count from the beginning of the run. Here groups are counted, so B is G. Of the submitted groups,
    trainer_version * G were consumed, dropped groups are replaced, and the others are live.
    """
    until_too_old = serving_version + staleness_bound + 1 - trainer_version
    return until_too_old * groups_per_update - live_groups


def most_groups(over_provision: float, groups_per_update: int) -> float:
    """Return the largest number of live groups without those that the trainer has; infinity for no limit.

    APRIL (arXiv 2509.18521) starts alpha times as many groups as an update takes, so that the trainer need
    not wait for slow ones. `over_provision` is alpha; 0 means no limit. The result is at least
    `groups_per_update`, because fewer groups never make a batch.
    """
    if over_provision == 0:
        return math.inf
    return max(groups_per_update, math.ceil(over_provision * groups_per_update - ROUNDING))


def can_all_be_fresh(
    floors: Mapping[int, int], *, trainer_version: int, groups_per_update: int, staleness_bound: int
) -> bool:
    """Whether all groups can be trained within the staleness bound, if the next update trains the first of
    them at `trainer_version`.

    floors   number of groups by floor: the oldest version that can have sampled a step of the group
    """
    before = 0
    for floor in sorted(floors):
        before += floors[floor]
        last_trained_at = trainer_version + (before - 1) // groups_per_update
        if last_trained_at > floor + staleness_bound:
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
    """Return why the scheduling allows no new group now; empty if it allows one.

    This function does not check staleness; `groups_admissible` does.
    """
    if scheduling is not Scheduling.BATCH:
        return ""
    if serving_version != trainer_version:
        return f"the next batch starts when every engine serves version {trainer_version}"
    if live_groups >= groups_per_update:
        return f"the {live_groups} groups of this batch have to be trained before new ones are opened"
    return ""
