"""What an action changed on the screen, from the screenshots before and after it."""

import io
from typing import NamedTuple

from dart.core.png import opened_picture


class ChangedArea(NamedTuple):
    """The smallest rectangle that holds every changed pixel, in pixels of the screenshot."""

    left: int
    top: int
    right: int
    bottom: int


def changed_area(before_png: bytes, after_png: bytes) -> ChangedArea | None:
    """Return where two screenshots of one screen differ; None if they are equal.

    raises   OSError, SyntaxError or ValueError if a screenshot is not a picture;
             ValueError if the two sizes differ
    """
    from PIL import ImageChops

    with opened_picture(io.BytesIO(before_png)) as before, opened_picture(io.BytesIO(after_png)) as after:
        if before.size != after.size:
            raise ValueError(f"expected two screenshots of one size, got {before.size} and {after.size}")
        box = ImageChops.difference(before.convert("RGB"), after.convert("RGB")).getbbox()
    return None if box is None else ChangedArea(*box)
