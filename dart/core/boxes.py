"""Boxes of elements on a screen, in pixels."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on a screen, in pixels. Its right and bottom sides are where the next pixel begins.

    Raises ValueError for a rectangle without area.
    """

    left: float
    top: float
    right: float
    bottom: float

    def __post_init__(self) -> None:
        if not (self.left < self.right and self.top < self.bottom):
            raise ValueError(
                f"expected a box with left < right and top < bottom, got {self}: its area must be positive"
            )

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def area(self) -> float:
        return self.width * self.height

    @property
    def centre(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def contains(self, x: float, y: float) -> bool:
        """Whether a point is inside the box or on its border, as ScreenSpot counts hits."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def is_inside(self, width: float, height: float) -> bool:
        """Whether the box lies on a screen of this size, the screen's border included."""
        return self.left >= 0 and self.top >= 0 and self.right <= width and self.bottom <= height

    def shifted(self, right: float, down: float) -> "Box":
        """Return the box moved by these numbers of pixels."""
        return Box(self.left + right, self.top + down, self.right + right, self.bottom + down)

    def scaled(self, x_factor: float, y_factor: float) -> "Box":
        """Return the box on a screen whose width and height are multiplied by these factors."""
        return Box(self.left * x_factor, self.top * y_factor, self.right * x_factor, self.bottom * y_factor)

    def __str__(self) -> str:
        return f"({self.left:g}, {self.top:g}, {self.right:g}, {self.bottom:g})"
