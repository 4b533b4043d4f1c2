"""Candidates as a verifier sees them: a red circle on the screenshot, and the part of the screen around it.

GUI-Actor trains its verifier on whole screenshots and then asks it about crops; here both use the same crops.
"""

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from dart.policy.pointer.model import Point
from dart.policy.protocols import Pixels

COLOUR = "red"

FULL_SIDE_PX = 1920
"""Longer side of a screen on which a mark has its full size; on smaller screens all its sizes shrink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateMark:
    """Sizes of the circle and the crop around a candidate, in pixels of the screenshot."""

    radius_px: int
    width_px: int
    half_crop_px: int
    """The crop reaches this far from the candidate to each side, or to the screen's border."""


FULL_MARK = CandidateMark(radius_px=7, width_px=3, half_crop_px=500)
"""GUI-Actor's sizes."""

SMALLEST_MARK = CandidateMark(radius_px=3, width_px=1, half_crop_px=48)


def mark_for(width_px: int, height_px: int) -> CandidateMark:
    """Return the sizes of a mark on a screen: GUI-Actor's, smaller on small screens."""
    scale = min(1.0, max(width_px, height_px) / FULL_SIDE_PX)
    return CandidateMark(
        radius_px=max(SMALLEST_MARK.radius_px, math.ceil(FULL_MARK.radius_px * scale)),
        width_px=max(SMALLEST_MARK.width_px, math.ceil(FULL_MARK.width_px * scale)),
        half_crop_px=max(SMALLEST_MARK.half_crop_px, math.ceil(FULL_MARK.half_crop_px * scale)),
    )


def marked_crop(image: Pixels, point: Point) -> Pixels:
    """Return the part of a screenshot around a candidate, with a hollow circle on it.

    image   uint8 [H, W, 3]; it is not changed
    point   the candidate, in fractions of the screen
    """
    height, width, _ = image.shape
    mark = mark_for(width, height)
    x, y = (min(int(share * side), side - 1) for share, side in zip(point, (width, height), strict=True))
    left, top = max(0, x - mark.half_crop_px), max(0, y - mark.half_crop_px)
    crop = Image.fromarray(image[top : y + mark.half_crop_px + 1, left : x + mark.half_crop_px + 1])
    around = (
        x - left - mark.radius_px,
        y - top - mark.radius_px,
        x - left + mark.radius_px,
        y - top + mark.radius_px,
    )
    ImageDraw.Draw(crop).ellipse(around, outline=COLOUR, width=mark.width_px)
    return np.array(crop)
