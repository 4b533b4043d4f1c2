"""Step-wise GRPO advantages (DART, arXiv 2509.23866, section 2.3).

Every environment step of every trajectory of a group is one sample that carries its
trajectory's reward, so long trajectories weigh more in the mean and the deviation::

    A_ij = (R_i - mean_D R) / (std_D R + eps)        D = all step samples of the group

Demonstrations of the experience pool that were added to a group count like its own trajectories.
Pure arithmetic: no torch, no I/O.
"""

import math

from dart.core.types import Demonstration, Group, Trajectory

MIN_SPREAD = 1e-9
"""Smallest standard deviation of rewards that counts as spread."""


def group_members(group: Group) -> tuple[Trajectory | Demonstration, ...]:
    """Return the members whose rewards a group compares: its trajectories, then its demonstrations."""
    return *group.trajectories, *group.demonstrations


def step_advantages(group: Group) -> tuple[float, ...] | None:
    """Return one advantage per member of the group; all steps of the member share it.

    Rewards are weighted by the number of steps of their trajectory; the deviation is the
    population one. None when the group has no spread (all rewards equal, or no steps at
    all): such a group has no gradient.
    """
    rewards = [member.reward for member in group_members(group)]
    lengths = [len(member.steps) for member in group_members(group)]
    return weighted_advantages(rewards, lengths)


def weighted_advantages(
    rewards: list[float], lengths: list[int], *, eps: float = 1e-6
) -> tuple[float, ...] | None:
    """Return (R_i - mean) / (std + eps) with weight `lengths[i]` for trajectory i; None without spread."""
    samples = sum(lengths)
    if samples == 0:
        return None
    mean = math.fsum(n * r for n, r in zip(lengths, rewards, strict=True)) / samples
    variance = math.fsum(n * (r - mean) ** 2 for n, r in zip(lengths, rewards, strict=True)) / samples
    deviation = math.sqrt(variance)
    if deviation < MIN_SPREAD:
        return None
    return tuple((r - mean) / (deviation + eps) for r in rewards)
