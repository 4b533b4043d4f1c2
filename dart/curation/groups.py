"""Questions about one group, answered from its record: can it be trained, and what is still to be played?"""

from enum import StrEnum

from dart.core.records import GroupRecord, RolloutRecord
from dart.core.types import RolloutState

SPREAD = 1e-6
"""Largest difference between rewards that count as equal. All advantages of such a group would be 0."""


class DropReason(StrEnum):
    """Why a group is dropped instead of trained. Dropped groups are counted by reason."""

    NO_SPREAD = "no_spread"
    """All rewards are equal, so no rollout is better than another."""
    TOO_FEW = "too_few"
    """Fewer than two rollouts were played to their end, so there is nothing to compare."""
    TASK_QUARANTINED = "task_quarantined"
    """The task was quarantined because of faults, so the unfinished rollouts of its groups are not played."""
    STALE = "stale"
    """A step is older than the staleness bound allows. Admission prevents this, unless the bound was lowered
    since."""


def unissued(group: GroupRecord) -> int:
    """Return the number of rollouts of a group that were never leased."""
    return group.rollouts_wanted - len(group.rollouts)


def awaiting(group: GroupRecord) -> RolloutRecord | None:
    """Return the first rollout of a group that awaits a new lease, because its last attempt failed or its
    episode was parked; None if there is none."""
    idle = (r for r in group.rollouts if r.state == RolloutState.LEASED and r.environment is None)
    return next(idle, None)


def is_complete(group: GroupRecord) -> bool:
    """Whether all rollouts of a group were leased and have ended."""
    return not unissued(group) and all(r.state != RolloutState.LEASED for r in group.rollouts)


def rewards(group: GroupRecord) -> tuple[float, ...]:
    """Return the rewards of those rollouts of a group that were played to their end."""
    return tuple(r.reward for r in group.rollouts if r.state == RolloutState.STORED and r.reward is not None)


def has_success(group: GroupRecord, success_above: float) -> bool:
    """Whether a finished rollout of a group succeeded: its reward is above the threshold."""
    return any(reward > success_above for reward in rewards(group))


def has_only_failed(group: GroupRecord, success_above: float) -> bool:
    """Whether a group is complete, has at least one reward and has no success."""
    return is_complete(group) and bool(rewards(group)) and not has_success(group, success_above)


def failed_at_once(group: GroupRecord, success_above: float) -> bool:
    """Whether every rollout of a group that was played to its end failed, one of them at least with its only
    step."""
    played = [r for r in group.rollouts if r.state == RolloutState.STORED]
    return not has_success(group, success_above) and any(r.num_steps == 1 for r in played)


def differ_in_length(group: GroupRecord) -> bool:
    """Whether the rollouts of a group that were played to their end have different numbers of steps."""
    return len({r.num_steps for r in group.rollouts if r.state == RolloutState.STORED}) > 1


def why_untrainable(
    group: GroupRecord, penalised_up_to: float | None = None, compared_above: float | None = None
) -> DropReason | None:
    """Return why a complete group cannot be trained; None if it can, or if it is not complete yet.

    penalised_up_to   largest reward of a failure, if a group is trained in which every rollout failed, one of
                      them with its only step; None: it is not
    compared_above    rewards above this are successes, if a group of equal successes of different lengths is
                      trained, because its steps are compared (GiGPO); None: it is not

    A group in which every rollout failed can be trained if a demonstration, which is a success, was added.
    """
    if not is_complete(group):
        return None
    found = rewards(group)
    if group.demonstrations and found:
        return None
    if len(found) < 2:
        return DropReason.TOO_FEW
    if max(found) - min(found) > SPREAD:
        return None
    is_penalised = penalised_up_to is not None and failed_at_once(group, penalised_up_to)
    is_compared = compared_above is not None and min(found) > compared_above and differ_in_length(group)
    return None if is_penalised or is_compared else DropReason.NO_SPREAD


def oldest_step(group: GroupRecord) -> int | None:
    """Return the oldest policy version that sampled a step of the group, also of a parked episode; None if
    the group has no steps yet."""
    kept = (r.oldest_version for r in group.rollouts if r.state != RolloutState.DROPPED)
    return min((version for version in kept if version is not None), default=None)


def version_floor(group: GroupRecord) -> int:
    """Return the version floor of a group: the oldest version that sampled one of its steps, or may sample
    one while the group is still played."""
    oldest = oldest_step(group)
    if oldest is None:
        return group.policy_version
    return oldest if is_complete(group) else min(oldest, group.policy_version)
