"""The stages of an alignment in their order, and which of them remain. Pure."""

from collections.abc import Collection
from enum import StrEnum


class AlignmentStage(StrEnum):
    """A stage; its value is the name of its folder and of its result."""

    EXPLORE = "explore"
    """Find the screens of the site."""
    DATA = "data"
    """Write grounding data of them, split by shape."""
    MEASURE_BASE = "measure-base"
    """Measure the base policy on the test split, and on held-out generic data."""
    ALIGN = "align"
    """Train the base policy on the train split, mixed with generic data."""
    MEASURE_ALIGNED = "measure-aligned"
    """Measure the aligned policy on the same data."""
    TRAIN = "train"
    """Train the aligned policy on the tasks of the site by reinforcement learning."""


def remaining(finished: Collection[AlignmentStage]) -> tuple[AlignmentStage, ...]:
    """The first stage that is not finished and all after it, which build on it."""
    stages = tuple(AlignmentStage)
    first = next((number for number, stage in enumerate(stages) if stage not in finished), len(stages))
    return stages[first:]


def numbered(stage: AlignmentStage) -> str:
    """The stage with its place among all, as people are shown it."""
    stages = list(AlignmentStage)
    return f"{stages.index(stage) + 1} of {len(stages)}, {stage.value}"
