"""The frame a vision-language policy sees: a screenshot resized to whole patches, and the way back.

Qwen2-VL and its successors resize an image so that both sides are multiples of a patch pair and its area
lies between two bounds (Wang et al. 2024, arXiv 2409.12191, section 2.1). UI-TARS-1.5 says coordinates in
whole pixels of that resized image; the environment wants pixels of the screen. Pure arithmetic.
"""

import math
from dataclasses import dataclass

MAX_RATIO = 200
"""No image that is this many times longer than wide has a frame."""


class FrameError(ValueError):
    """An image of a shape no policy can look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRule:
    """How a model wants its images; of Qwen2.5-VL: 28 px, and the areas of its checkpoint."""

    factor_px: int
    """Both sides become multiples of this: the side of one image token."""
    min_area_px: int
    max_area_px: int

    def shown(self, width_px: int, height_px: int) -> "Frame":
        """The frame of a screenshot. Raises FrameError."""
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
        return Frame(width_px=width_px, height_px=height_px, shown_width_px=width, shown_height_px=height)

    def tokens(self, frame: "Frame") -> int:
        """Image tokens of a screenshot in a prompt."""
        return (frame.shown_width_px // self.factor_px) * (frame.shown_height_px // self.factor_px)

    def _nearest(self, side: float) -> int:
        return round(side / self.factor_px) * self.factor_px

    def _below(self, side: float) -> int:
        return max(1, math.floor(side / self.factor_px)) * self.factor_px

    def _above(self, side: float) -> int:
        return math.ceil(side / self.factor_px) * self.factor_px


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A screenshot's size, and the size in which the policy sees it."""

    width_px: int
    height_px: int
    shown_width_px: int
    shown_height_px: int

    def to_screen(self, x: float, y: float) -> tuple[int, int]:
        """The pixel of the screen under a point of the shown image; outside of it counts as its edge."""
        return (
            _scaled(x, self.shown_width_px, self.width_px),
            _scaled(y, self.shown_height_px, self.height_px),
        )

    def to_shown(self, x: float, y: float) -> tuple[int, int]:
        """The pixel of the shown image under a point of the screen; off by half of one at most."""
        return (
            _scaled(x, self.width_px, self.shown_width_px),
            _scaled(y, self.height_px, self.shown_height_px),
        )


def _scaled(value: float, side_px: int, other_side_px: int) -> int:
    return min(max(round(value * other_side_px / side_px), 0), other_side_px - 1)
