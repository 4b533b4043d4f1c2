"""Decides whether two screens are the same, by the structure of the page and by the image. Pure.

The comparison has two distances:

    d_dom = 1 - |A n B| / |A u B|   over the multisets A and B of the hashes of the pages' nodes
    d_img = share of the image's cells whose mean grey level differs by more than GREY_LEVELS

Two screens are the same if both distances are at most their thresholds. The hash of a node includes its text
and place, so such screens are the same *instance*; the replay of a path relies on this. The *shape* of a
screen leaves out texts and places and is compared exactly; the number of shapes says how many kinds of
screens there are. The thresholds were calibrated on labelled pairs (`benchmarks.exploration --pairs`,
docs/exploration.md).
"""

import hashlib
import io
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image

from dart.core.exploration import PageScreen

GRID_COLUMNS, GRID_ROWS = 40, 52
"""Numbers of columns and rows of cells into which an image is divided. A cell has 4 x 4 pixels, about, on a
screen of 160 x 210."""

GREY_LEVELS = 16
"""Difference of the mean grey level (0 to 255) above which a cell counts as changed."""

D_DOM_MOST, D_IMG_MOST = 0.10, 0.02
"""Largest distances at which two screens still count as the same."""

Cells = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""One truth value for each cell of a grid."""


def grid_of(png: bytes) -> bytes:
    """Return the mean grey level of each cell of a screenshot (PNG): one byte for each, row by row."""
    with Image.open(io.BytesIO(png)) as image:
        cells = image.convert("L").resize((GRID_COLUMNS, GRID_ROWS), Image.Resampling.BOX)
    return cells.tobytes()


def volatile_cells(before: bytes, after: bytes) -> bytes:
    """Return the mask of the cells that change without an action: one bit for each cell, 1 where they differ.

    before, after   two grids of one screen, taken without an action between them
    """
    return np.packbits(_differs(before, after)).tobytes()


def no_volatile_cells() -> bytes:
    """Return the mask of a screen of which no cell changes without an action."""
    return bytes(GRID_COLUMNS * GRID_ROWS // 8)


def structure_of(nodes: Iterable[str]) -> tuple[int, ...]:
    """Return the sorted hashes of the nodes of a page.

    nodes   one line of text for each node; it may hold half of a character of two UTF-16 units
    """
    return tuple(sorted(zlib.crc32(node.encode(errors="replace")) for node in nodes))


def shape_of(kinds: Iterable[str]) -> str:
    """Return the shape of a page: a hash of the set of the kinds of its nodes.

    kinds   depth, tag and class of each node as one text, as in `structure_of`
    """
    return hashlib.sha256("\n".join(sorted(set(kinds))).encode(errors="replace")).hexdigest()[:16]


def d_img(one: PageScreen, other: PageScreen) -> float:
    """Return the share of the cells that differ, in [0, 1].

    Cells that change without an action on either screen are left out; 0 if none is left.
    """
    counts = ~(_mask(one) | _mask(other))
    total = int(counts.sum())
    return float((_differs(one.grid, other.grid) & counts).sum() / total) if total else 0.0


def d_dom(one: PageScreen, other: PageScreen) -> float:
    """Return the distance of the structures, in [0, 1]; 0 for equal structures."""
    common = _common(one.structure, other.structure)
    union = len(one.structure) + len(other.structure) - common
    return 1.0 - common / union if union else 0.0


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the size of the intersection of two sorted lists as multisets."""
    shared, there = 0, 0
    for item in one:
        while there < len(other) and other[there] < item:
            there += 1
        if there < len(other) and other[there] == item:
            shared, there = shared + 1, there + 1
    return shared


def _differs(one: bytes, other: bytes) -> Cells:
    levels = [np.frombuffer(grid, np.uint8).astype(np.int16) for grid in (one, other)]
    differs: Cells = np.abs(levels[0] - levels[1]) > GREY_LEVELS
    return differs


def _mask(screen: PageScreen) -> Cells:
    return np.unpackbits(np.frombuffer(screen.volatile, np.uint8)).astype(np.bool_)
