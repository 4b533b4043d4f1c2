"""Pages with other distances between their elements.

On a page of MiniWoB++ the elements of a kind are mostly at the same places, whatever the seed. A policy that
imitates clicks on such pages learns that "the third text field" is 50 px from the bottom, and not to count.
Here empty rows and columns of a screenshot are repeated or taken out, so that its elements move apart or
together and stay what they are, in the same order. Images are often shifted for the same purpose (random
shifts, Yarats et al. 2021, arXiv 2004.13649, section 4.1); shifts alone keep the distances.
"""

import random
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from dart.core.boxes import Box
from dart.environments.miniwob.pages import INSTRUCTION_HEIGHT
from dart.policy.protocols import Pixels

CHANGES = 3
"""Number of changes along each axis."""

MOST_ROWS, MOST_COLUMNS = 24, 20
"""Largest number of rows and of columns that a change repeats or takes out."""

KEPT = 2
"""Number of empty lines that stay between elements."""

Spans = Sequence[tuple[float, float]]
"""Begin and end of elements on an axis, in pixels."""


class PageLayout:
    """A screenshot of a page, and the rows and columns that may be repeated or taken out.

    pixels   uint8 [H, W, 3]
    boxes    the page's elements, at least one, all inside the page
    """

    def __init__(self, pixels: Pixels, boxes: Sequence[Box]) -> None:
        self._pixels = pixels
        self._rows = _Axis(pixels, [(box.top, box.bottom) for box in boxes], INSTRUCTION_HEIGHT)
        across = pixels[INSTRUCTION_HEIGHT:].swapaxes(0, 1)
        self._columns = _Axis(across, [(box.left, box.right) for box in boxes], 0)

    def moved(self, x: int, y: int, draw: random.Random) -> tuple[Pixels, int, int]:
        """Return the page with other distances between its elements, and where the point (x, y) is on it.

        The point has to be in an element. The instruction at the top stays as it is, and so does the whole
        page if the point is there.
        """
        rows, columns = self._rows.changed(MOST_ROWS, draw), self._columns.changed(MOST_COLUMNS, draw)
        if y < INSTRUCTION_HEIGHT:
            return self._pixels, x, y
        pixels = self._pixels[rows]
        pixels[INSTRUCTION_HEIGHT:] = pixels[INSTRUCTION_HEIGHT:, columns]
        return pixels, columns.index(x), rows.index(y)


class _Axis:
    """The lines of a screenshot along one axis: which are empty, and how much room is behind the elements.

    lines   uint8 [N, M, 3]; its lines are the rows, or the columns, of the screenshot
    spans   where the elements are
    start   the lines before it stay as they are
    """

    def __init__(self, lines: Pixels, spans: Spans, start: int) -> None:
        self._count = len(lines)
        last = max(end for _, end in spans)
        self._room = self._count - 1 - int(last)
        is_empty = _empty(lines, spans)
        is_empty[:start] = False
        numbers = range(min(int(last), self._count))
        runs = groupby(numbers, key=lambda number: bool(is_empty[number]))
        self._gaps = [list(run) for empty, run in runs if empty]

    def changed(self, most: int, draw: random.Random) -> list[int]:
        """Return the numbers of the lines of a changed screenshot, as many as before; no element is lost.

        most   the largest number of lines that a change repeats or takes out
        """
        lines, room = list(range(self._count)), self._room
        for _ in range(CHANGES if self._gaps else 0):
            gap, count = draw.choice(self._gaps), draw.randint(0, most)
            left = [place for place, line in enumerate(lines) if gap[0] <= line <= gap[-1]]
            if draw.random() < 0.5:
                count = min(count, room)
                if count > 0:
                    place = draw.choice(left)
                    lines[place:place] = [lines[place]] * count
                    room -= count
            else:
                count = max(0, min(count, len(left) - KEPT))
                del lines[left[0] : left[0] + count]
                room += count
        lines = lines[: self._count]
        return lines + [lines[-1]] * (self._count - len(lines))


def _empty(lines: Pixels, spans: Spans) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which lines look like the next one and touch no element, bool [N]."""
    is_empty = np.zeros(len(lines), bool)
    is_empty[:-1] = (lines[:-1] == lines[1:]).all((1, 2))
    for begin, end in spans:
        is_empty[max(0, int(begin) - 1) : int(end) + 2] = False
    return is_empty
