"""Whether a group can be trained, and what it still needs, from its record. Pure."""

from enum import StrEnum

from dart.core.records import GroupRecord, RolloutRecord
from dart.core.types import RolloutState

SPREAD = 1e-6
"""Rewards that differ by no more than this count as equal: every advantage of the group would be 0."""


class DropReason(StrEnum):
    """Why a group is dropped instead of trained. Dropped groups are counted by reason."""

    NO_SPREAD = "no_spread"
    """All rewards are equal, so no rollout is better than another."""
    TOO_FEW = "too_few"
    """Fewer than two rollouts were finished: nothing to compare."""
    TASK_QUARANTINED = "task_quarantined"
    """Its task is in quarantine because of faults, so its unfinished rollouts are not played on."""
    STALE = "stale"
    """A step is older than the staleness bound. Admission prevents it; a lowered bound may cause it."""


def unissued(group: GroupRecord) -> int:
    """How many rollouts of a group have not been leased yet."""
    return group.rollouts_wanted - len(group.rollouts)


def awaiting(group: GroupRecord) -> RolloutRecord | None:
    """The first rollout of a group that awaits a new lease, because its attempt failed or was parked."""
    idle = (r for r in group.rollouts if r.state == RolloutState.LEASED and r.environment is None)
    return next(idle, None)


def is_complete(group: GroupRecord) -> bool:
    """Whether all rollouts of a group were leased and have ended."""
    return not unissued(group) and all(r.state != RolloutState.LEASED for r in group.rollouts)


def rewards(group: GroupRecord) -> tuple[float, ...]:
    """The rewards of a group's finished rollouts."""
    return tuple(r.reward for r in group.rollouts if r.state == RolloutState.STORED and r.reward is not None)


def has_success(group: GroupRecord, success_above: float) -> bool:
    """Whether a finished rollout of a group succeeded: its reward is above the threshold."""
    return any(reward > success_above for reward in rewards(group))


def has_only_failed(group: GroupRecord, success_above: float) -> bool:
    """Whether a group is complete, some rollouts were finished and none succeeded."""
    return is_complete(group) and bool(rewards(group)) and not has_success(group, success_above)


def why_untrainable(group: GroupRecord) -> DropReason | None:
    """Why a complete group teaches nothing; None if it teaches something or is not complete.

    A group whose rollouts all failed teaches something if a demonstration, which is a success, was added.
    """
    if not is_complete(group):
        return None
    found = rewards(group)
    if group.demonstrations and found:
        return None
    if len(found) < 2:
        return DropReason.TOO_FEW
    return None if max(found) - min(found) > SPREAD else DropReason.NO_SPREAD


def oldest_step(group: GroupRecord) -> int | None:
    """The oldest policy version among a group's steps, parked ones included; None while it has none."""
    kept = (r.oldest_version for r in group.rollouts if r.state != RolloutState.DROPPED)
    return min((version for version in kept if version is not None), default=None)


def version_floor(group: GroupRecord) -> int:
    """The version floor of a group: no step of it is, or can become, older than this version."""
    oldest = oldest_step(group)
    if oldest is None:
        return group.policy_version
    return oldest if is_complete(group) else min(oldest, group.policy_version)
