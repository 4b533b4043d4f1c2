"""Two-stage grounding: the model grounds the screenshot, then a crop around the first point, where elements
look larger."""

from dart.core.boxes import Box
from dart.policy.pointer.model import GroundingModel
from dart.policy.pointer.regions import Region
from dart.policy.protocols import Pixels

ZOOM_SHARE = 0.5
"""Width and height of the crop as shares of the screen's width and height."""


def crop_around(x: float, y: float, share: float = ZOOM_SHARE) -> Box:
    """Return the crop around a point, moved so that the crop lies inside the screen; all in fractions."""
    left = min(max(x - share / 2, 0.0), 1.0 - share)
    top = min(max(y - share / 2, 0.0), 1.0 - share)
    return Box(left, top, left + share, top + share)


def cut(image: Pixels, part: Box) -> tuple[Pixels, Box]:
    """Return the pixels of a part of the screen, and their box: the part rounded to whole pixels.

    Both boxes are in fractions of the screen.
    """
    height, width, _ = image.shape
    left, top = int(part.left * width), int(part.top * height)
    right, bottom = max(left + 1, round(part.right * width)), max(top + 1, round(part.bottom * height))
    right, bottom = min(right, width), min(bottom, height)
    return image[top:bottom, left:right], Box(left / width, top / height, right / width, bottom / height)


def ground_with_zoom(model: GroundingModel, image: Pixels, instruction: str, k: int) -> list[Region]:
    """Return at most k regions of the second stage, the best first.

    The regions' centres are fractions of the whole screen; their patches are patches of the crop. Of the
    first stage, only the best region is used, as the centre of the crop.
    """
    (first,) = model.ground(image, instruction, 1)
    pixels, part = cut(image, crop_around(*first.centre))
    return [
        Region(
            (part.left + region.centre[0] * part.width, part.top + region.centre[1] * part.height),
            region.score,
            region.patches,
        )
        for region in model.ground(pixels, instruction, k)
    ]
