"""How much may be in flight so that nothing is trained too old (invariant fresh).

Words: the trainer is at version c (its next update makes c + 1), trains G groups per update, and a group
with floor v holds no step sampled by a version older than v. The bound K says that a group trained at
version c has c - v <= K; so it must be trained at version v + K at the latest.

The plan that meets every such deadline if any plan does is earliest deadline first: with the live groups
in order of their floors, number j (from 0) is trained at version c + j // G.

* A new group may be opened when, trained last of all live groups, it is still in time. That is AReaL's
  capacity rule (arXiv 2505.24298, eq. 3), counted in groups instead of trajectories.
* A batch may go when the groups it leaves behind can still all be in time. So a slow group is waited for
  rather than overtaken until it is too old.
"""

from collections.abc import Sequence


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
    live_groups      opened, and neither consumed nor dropped; a batch at the trainer counts until its commit

    AReaL admits while submitted <= (version + K + 1) * B, counted since the beginning. Of those submitted,
    trainer_version * G groups were consumed, dropped ones are replaced, the others live.
    """
    until_too_old = serving_version + staleness_bound + 1 - trainer_version
    return until_too_old * groups_per_update - live_groups


def can_all_be_fresh(
    floors: Sequence[int], *, trainer_version: int, groups_per_update: int, staleness_bound: int
) -> bool:
    """Whether groups with these floors can all be trained in time, the first ones at `trainer_version`."""
    return all(
        trainer_version + position // groups_per_update <= floor + staleness_bound
        for position, floor in enumerate(sorted(floors))
    )


def is_stale(oldest_version: int, *, trainer_version: int, staleness_bound: int) -> bool:
    """Whether a step of this version is too old to be trained now."""
    return trainer_version - oldest_version > staleness_bound
