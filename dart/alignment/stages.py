"""The stages of an alignment in their order. Pure."""

from collections.abc import Collection
from enum import StrEnum


class AlignmentStage(StrEnum):
    """A stage of an alignment. Its value names its folder and, with `.json`, its result file."""

    EXPLORE = "explore"
    """Find the screens of the site."""
    DATA = "data"
    """Write grounding data of the screens, with all screens of one shape in the same split."""
    MEASURE_BASE = "measure-base"
    """Measure the base policy on the test split, and on held-out generic data."""
    ALIGN = "align"
    """Train the base policy on the train split, mixed with generic data."""
    MEASURE_ALIGNED = "measure-aligned"
    """Measure the aligned policy on the same data as the base policy."""
    TRAIN = "train"
    """Train the aligned policy on the tasks of the site by reinforcement learning."""


def remaining(finished: Collection[AlignmentStage]) -> tuple[AlignmentStage, ...]:
    """Return the first unfinished stage and all stages after it, because they build on its result."""
    stages = tuple(AlignmentStage)
    first = next((number for number, stage in enumerate(stages) if stage not in finished), len(stages))
    return stages[first:]


def numbered(stage: AlignmentStage) -> str:
    """Return number and name of a stage for messages, such as "2 of 6, data"."""
    stages = list(AlignmentStage)
    return f"{stages.index(stage) + 1} of {len(stages)}, {stage.value}"
