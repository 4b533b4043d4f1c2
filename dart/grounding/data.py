"""Grounding samples with their decoded screenshots, in the form that grounding models take."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dart.core.boxes import Box
from dart.core.png import opened_picture
from dart.core.screenspot import GroundingDataError, GroundingSample
from dart.policy.protocols import Pixels

IMAGES_HELD = 64
"""Number of decoded screenshots that are kept in memory for later batches."""


@dataclass(frozen=True, slots=True)
class GroundingBatch:
    """The samples of one update; the fields have one entry for each sample."""

    images: tuple[Pixels, ...]
    instructions: tuple[str, ...]
    boxes: tuple[Box, ...]
    """Boxes of the elements, in fractions of each screen's width and height."""


@lru_cache(maxsize=IMAGES_HELD)
def pixels_of(image: Path) -> Pixels:
    """Decode a screenshot to uint8 [H, W, 3]. Raises GroundingDataError."""
    try:
        with opened_picture(image) as opened:
            return np.array(opened.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise GroundingDataError(
            f"the screenshot {image} cannot be decoded: {error}; fetch it again"
        ) from error


def fraction_box(sample: GroundingSample) -> Box:
    """Return the box of a sample in fractions of its screen."""
    return sample.box.scaled(1 / sample.width_px, 1 / sample.height_px)


def batch_of(samples: Iterable[GroundingSample]) -> GroundingBatch:
    """Return samples as a batch. Raises GroundingDataError for a screenshot that cannot be decoded."""
    held = list(samples)
    return GroundingBatch(
        tuple(pixels_of(sample.image) for sample in held),
        tuple(sample.instruction for sample in held),
        tuple(fraction_box(sample) for sample in held),
    )
