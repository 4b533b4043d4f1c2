"""The coordinates that a vision-language policy writes, and their conversion to pixels of the screen.

Qwen2-VL and its successors resize an image so that both sides are multiples of an image token's side and the
area lies between two bounds (Wang et al. 2024, arXiv 2409.12191, section 2.1). Qwen2.5-VL, and UI-TARS-1.5
with it, writes coordinates in whole pixels of the resized image; Qwen2-VL, with the first UI-TARS, Qwen3-VL,
InternVL and GLM-V write thousandths of the image's sides. Environments need pixels of the screen.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from dart.core.boxes import Box

Points = Literal["image", "screen", "thousandths", "patches"]
"""Unit of a point's two numbers: pixels of the resized image, pixels of the screenshot, or thousandths of its
width and height. With `patches` the policy writes a patch of the resized image instead of numbers; where a
text needs numbers, they are pixels of the resized image."""

POINTS_OF: Mapping[str, Points] = MappingProxyType(
    {
        "qwen2_5_vl": "image",
        **dict.fromkeys(("qwen2_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), "thousandths"),
        **dict.fromkeys(("glm4v", "glm4v_moe", "glm46v", "internvl"), "thousandths"),
    }
)
"""Unit of points by model type, as the makers of the checkpoints document it; other types use `screen`."""

THOUSANDTHS = 1000

MAX_RATIO = 200
"""Largest accepted ratio of an image's longer side to its shorter side."""


class FrameError(ValueError):
    """An image has a shape that no policy accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRule:
    """How a model resizes its images: the multiple of their sides in px, and the bounds of their area."""

    factor_px: int
    """Both sides become multiples of this, the side of one image token."""
    min_area_px: int
    max_area_px: int

    def shown(self, width_px: int, height_px: int) -> "CoordinateFrame":
        """Return the coordinate frame of a screenshot of this size, before it is resized by this rule.

        Raises FrameError if one side is more than MAX_RATIO times the other, or not positive.
        """
        if min(width_px, height_px) < 1 or max(width_px, height_px) > MAX_RATIO * min(width_px, height_px):
            raise FrameError(
                f"expected a screenshot with sides in a ratio of at most {MAX_RATIO}, "
                f"got {width_px}x{height_px}"
            )
        width, height = self._nearest(width_px), self._nearest(height_px)
        if width * height > self.max_area_px:
            shrink = math.sqrt(width_px * height_px / self.max_area_px)
            width, height = self._below(width_px / shrink), self._below(height_px / shrink)
        elif width * height < self.min_area_px:
            grow = math.sqrt(self.min_area_px / (width_px * height_px))
            width, height = self._above(width_px * grow), self._above(height_px * grow)
        return CoordinateFrame(
            width_px=width_px, height_px=height_px, shown_width_px=width, shown_height_px=height
        )

    def _nearest(self, side: float) -> int:
        return round(side / self.factor_px) * self.factor_px

    def _below(self, side: float) -> int:
        return max(1, math.floor(side / self.factor_px)) * self.factor_px

    def _above(self, side: float) -> int:
        return math.ceil(side / self.factor_px) * self.factor_px


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinateFrame:
    """A screenshot's size, and the size in whose units the policy writes points."""

    width_px: int
    height_px: int
    shown_width_px: int
    shown_height_px: int

    def clicked(self, x: float, y: float) -> tuple[int, int]:
        """Return the pixel of the screen at a point in fractions of the screen's sides."""
        return pixel_at(x, self.width_px), pixel_at(y, self.height_px)

    def shown_at(self, x: float, y: float) -> tuple[int, int]:
        """Return the pixel of the policy's units at a point in fractions of the screen's sides."""
        return pixel_at(x, self.shown_width_px), pixel_at(y, self.shown_height_px)

    def to_screen(self, x: float, y: float) -> tuple[int, int]:
        """Convert a point of the policy to a pixel of the screen; points outside move to the edge."""
        return (
            _scaled(x, self.shown_width_px, self.width_px),
            _scaled(y, self.shown_height_px, self.height_px),
        )

    def shares_of(self, box: tuple[float, float, float, float]) -> Box:
        """Convert a box in pixels of the screen to fractions of its sides. Raises ValueError without area."""
        return Box(*box).scaled(1 / self.width_px, 1 / self.height_px)

    def to_shown(self, x: float, y: float) -> tuple[int, int]:
        """Convert a pixel of the screen to the policy's units, rounded to the nearest."""
        return (
            _scaled(x, self.width_px, self.shown_width_px),
            _scaled(y, self.height_px, self.shown_height_px),
        )


def frame_of(width_px: int, height_px: int, rule: ResizeRule | None, points: Points) -> CoordinateFrame:
    """Return the coordinate frame for a screenshot of this size.

    rule   how images are resized before the model's processor gets them; None: they are not resized before

    Raises FrameError for a shape that the rule does not accept.
    """
    if rule is not None:
        shown = rule.shown(width_px, height_px)
        if points in ("image", "patches"):
            return shown
    sides = (THOUSANDTHS, THOUSANDTHS) if points == "thousandths" else (width_px, height_px)
    return CoordinateFrame(
        width_px=width_px, height_px=height_px, shown_width_px=sides[0], shown_height_px=sides[1]
    )


def pixel_at(share: float, side_px: int) -> int:
    """Return the pixel at a share of a side that has `side_px` pixels.

    Shares outside of [0, 1] give the first or the last pixel.
    """
    rounding = 1e-6  # (2 + 0.5) / 27 of a side must not become the pixel before it
    return min(max(int(share * side_px + rounding), 0), side_px - 1)


def share_at(pixel: int, side_px: int) -> float:
    """Return the middle of a pixel as a share of a side that has `side_px` pixels; 0 for a negative pixel."""
    return max(0.0, pixel + 0.5) / side_px


def _scaled(value: float, side_px: int, other_side_px: int) -> int:
    return min(max(round(value * other_side_px / side_px), 0), other_side_px - 1)
