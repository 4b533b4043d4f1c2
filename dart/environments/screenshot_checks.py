"""Whether a screenshot is whole, and whether those of an episode may have stopped following the screen. Pure.

A frozen picture raises no error: it shows by being the same after an action. Many actions change nothing on
the screen, so this is only a suspicion, and cheap; who has it looks closer once, before the score counts.
"""

from dart.core.png import whole_png_size
from dart.environments.faults import CorruptFrame


def frame_size(png: bytes, expected: tuple[int, int] | None = None) -> tuple[int, int]:
    """Width and height in pixels. Raises CorruptFrame: no picture, cut off, or of another size."""
    try:
        size = whole_png_size(png)
    except ValueError as error:
        raise CorruptFrame(str(error)) from error
    if expected is not None and size != expected:
        raise CorruptFrame(f"expected {expected[0]}x{expected[1]} pixels, got {size[0]}x{size[1]}")
    return size


class FrameWatch:
    """Follows the screenshots and actions of one episode."""

    def __init__(self) -> None:
        self.is_suspicious = False
        """A screenshot was the same as the one before the action."""
        self._last: bytes | None = None
        self._has_acted = False

    def acted(self) -> None:
        """An action was sent to the screen."""
        self._has_acted = True

    def saw(self, png: bytes) -> None:
        """This is the screen now."""
        if self._has_acted and png == self._last:
            self.is_suspicious = True
        self._last, self._has_acted = png, False
