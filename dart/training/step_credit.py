"""Credit for single steps by anchor states (GiGPO, Feng et al. 2025, arXiv 2505.10978, section 4).

Trajectories of a group that come to the same screen are compared from there on. The anchor of a step is its
screenshot, by hash; the steps of a group with the same anchor are its anchor group::

    R_t = sum_{k >= t} discount^(k - t) * r_k    here the reward comes with the last step
    A_S = (R_t - mean R) / (std R + eps)         over the anchor group; 0 for a step that is alone in it
    A   = A_E + weight * A_S                     A_E: the advantage of the trajectory

The same task and seed have the same first screen, so the first steps of a group are always compared. A group
of successes with equal rewards, whose A_E is 0, teaches the shorter way if they differ in length.
Pure arithmetic: no torch, no I/O.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dart.core.types import SUCCESS_ABOVE, Group
from dart.training.advantage import MIN_SPREAD, group_members, step_advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCredit:
    """The constants of GiGPO; the paper's are the defaults."""

    discount: float = 0.95
    weight: float = 1.0
    """omega, the weight of A_S."""
    success_above: float = SUCCESS_ABOVE
    """Equal rewards above this value are successes. Equal failures teach nothing: the shorter one is no
    better."""


def credited_advantages(group: Group, credit: StepCredit | None) -> tuple[tuple[float, ...], ...] | None:
    """Return the advantage of every step, by member of the group; None when the group has no gradient.

    credit   None: every step has the advantage of its trajectory
    """
    members, of_members = group_members(group), step_advantages(group)
    if of_members is None and credit is not None and all(m.reward > credit.success_above for m in members):
        of_members = (0.0,) * len(members)
    if of_members is None:
        return None
    shared = [[advantage] * len(member.steps) for member, advantage in zip(members, of_members, strict=True)]
    if credit is None:
        return tuple(map(tuple, shared))
    of_steps = anchor_advantages(
        [[step.screenshot_sha256 for step in member.steps] for member in members],
        [member.reward for member in members],
        credit.discount,
    )
    credited = tuple(
        tuple(a_e + credit.weight * a_s for a_e, a_s in zip(one, other, strict=True))
        for one, other in zip(shared, of_steps, strict=True)
    )
    return credited if any(map(any, credited)) else None


def anchor_advantages(
    anchors: Sequence[Sequence[str]], rewards: Sequence[float], discount: float, *, eps: float = 1e-6
) -> list[list[float]]:
    """Return A_S of every step, by trajectory.

    anchors    the anchor of each step, by trajectory
    rewards    the reward of each trajectory
    discount   factor by which a step's return falls for each step before the last
    """
    returns = [
        [reward * discount ** (len(row) - 1 - number) for number in range(len(row))]
        for row, reward in zip(anchors, rewards, strict=True)
    ]
    of_anchor: defaultdict[str, list[float]] = defaultdict(list)
    for row, values in zip(anchors, returns, strict=True):
        for anchor, value in zip(row, values, strict=True):
            of_anchor[anchor].append(value)
    return [
        [_relative(value, of_anchor[anchor], eps) for anchor, value in zip(row, values, strict=True)]
        for row, values in zip(anchors, returns, strict=True)
    ]


def _relative(value: float, compared: Sequence[float], eps: float) -> float:
    mean = math.fsum(compared) / len(compared)
    deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in compared) / len(compared))
    return 0.0 if deviation < MIN_SPREAD else (value - mean) / (deviation + eps)
