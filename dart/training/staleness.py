"""The staleness of the steps of a batch, in policy versions. Pure.

Steps of demonstrations have no staleness, because no version of this run sampled them.
"""

from collections.abc import Iterable, Mapping, Sequence

from dart.core.statistics import nearest_rank
from dart.core.types import Group


def staleness_of(groups: Iterable[Group], trainer_version: int) -> list[int]:
    """Return, for every step but those of demonstrations, the trainer's version minus the step's version."""
    return [
        trainer_version - step.policy_version
        for group in groups
        for trajectory in group.trajectories
        for step in trajectory.steps
    ]


def staleness_figures(staleness: Sequence[int]) -> Mapping[str, float]:
    """Return mean, median, 95th percentile and maximum over steps, in versions. Needs at least one step."""
    ordered = sorted(staleness)
    return {
        "staleness_mean": sum(ordered) / len(ordered),
        "staleness_p50": nearest_rank(ordered, 0.50),
        "staleness_p95": nearest_rank(ordered, 0.95),
        "staleness_max": float(ordered[-1]),
    }
