"""Checks of screenshots: that each one is whole, and that those of an episode still show the screen.

A frozen picture raises no error: it is the same after an action as before. Many actions change nothing on
the screen, so a repeated picture is only suspicious. After such a picture, an environment draws a mark on the
screen before it returns a score, and looks for the mark on a new screenshot (`refuse_frozen`).
"""

from collections.abc import Awaitable, Callable

from dart.core.png import whole_png_size
from dart.environments.faults import CorruptFrame, FrozenFrame
from dart.environments.protocol import Observation


class FrameWatch:
    """Notes whether a screenshot of an episode was the same before and after an action."""

    def __init__(self) -> None:
        self.is_suspicious = False
        """Whether any screenshot after an action was the same as the screenshot before the action."""
        self._last: bytes | None = None
        self._has_acted = False

    def acted(self) -> None:
        """Note that an action was sent to the screen."""
        self._has_acted = True

    def saw(self, png: bytes) -> None:
        """Note the newest screenshot."""
        if self._has_acted and png == self._last:
            self.is_suspicious = True
        self._last, self._has_acted = png, False


def frame_size(png: bytes, expected: tuple[int, int] | None = None) -> tuple[int, int]:
    """Return the width and height of a screenshot in pixels.

    Raises CorruptFrame when it is no PNG, is cut off, or does not have the ``expected`` size.
    """
    try:
        size = whole_png_size(png)
    except ValueError as error:
        raise CorruptFrame(str(error)) from error
    if expected is not None and size != expected:
        raise CorruptFrame(f"expected {expected[0]}x{expected[1]} pixels, got {size[0]}x{size[1]}")
    return size


def observation_of(png: bytes, instruction: str, frames: FrameWatch) -> Observation:
    """Note a screenshot, which `frame_size` has checked, in ``frames`` and return it as an observation."""
    frames.saw(png)
    return Observation(screenshot=png, instruction=instruction)


async def refuse_frozen(
    task_id: str,
    frames: FrameWatch,
    capture: Callable[[], Awaitable[bytes]],
    mark: Callable[[bool], Awaitable[object]],
) -> None:
    """Raise FrozenFrame when the screenshots of a suspicious episode do not show the screen.

    capture   takes a screenshot
    mark      shows a mark on the screen (True) or removes it (False)
    """
    if not frames.is_suspicious:
        return
    plain = await capture()
    await mark(True)
    marked = await capture()
    await mark(False)
    if marked == plain:
        raise FrozenFrame(task_id)
