"""How old the steps of a batch are, in policy versions. Pure."""

from collections.abc import Iterable

from dart.types import Group


def staleness_of(groups: Iterable[Group], trainer_version: int) -> list[int]:
    """Trainer's version minus the version that sampled it, for every step."""
    return [
        trainer_version - step.policy_version
        for group in groups
        for trajectory in group.trajectories
        for step in trajectory.steps
    ]
