"""Whether two screens are the same, by structure and by image. Pure.

Fuzzy matching has two distances:

    d_dom = 1 - |A n B| / |A u B|   over the multisets of hashed nodes
    d_img = share of the cells whose mean grey level differs by more than GREY_LEVELS

Two screens are the same screen if both are at most their thresholds. Nodes carry text and place, so this is
equality of *instances*, which a replay needs. The *shape* of a screen leaves both out and is compared
exactly; it counts what is different in kind. The thresholds were calibrated on labelled pairs
(`calibrate`, docs/exploration.md).
"""

import hashlib
import io
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from dart.core.exploration import PageScreen

GRID_COLUMNS, GRID_ROWS = 40, 52
"""Cells of the grid: 4 pixels each on a screen of 160 x 210."""

GREY_LEVELS = 16
"""Difference of the mean grey level, of 256, above which a cell counts as changed."""

D_IMG_MOST = 0.02
D_DOM_MOST = 0.10


Cells = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""One truth value for each cell of a grid."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The largest distances at which two screens are the same."""

    d_dom: float = D_DOM_MOST
    d_img: float = D_IMG_MOST


DEFAULT = Thresholds()


def grid_of(png: bytes) -> bytes:
    """The mean grey level of each of GRID_ROWS x GRID_COLUMNS cells of a screenshot, row by row."""
    with Image.open(io.BytesIO(png)) as image:
        cells = image.convert("L").resize((GRID_COLUMNS, GRID_ROWS), Image.Resampling.BOX)
    return cells.tobytes()


def volatile_cells(before: bytes, after: bytes) -> bytes:
    """One bit for each cell of two grids taken without an action between them: 1 where they differ."""
    return np.packbits(_differs(before, after)).tobytes()


def no_volatile_cells() -> bytes:
    """The mask of a screen that does not change by itself."""
    return bytes(GRID_COLUMNS * GRID_ROWS // 8)


def structure_of(nodes: Iterable[str]) -> tuple[int, ...]:
    """Sorted hashes of the lines that describe the nodes of a page."""
    return tuple(sorted(zlib.crc32(node.encode()) for node in nodes))


def shape_of(kinds: Iterable[str]) -> str:
    """A hash of the set of the nodes' kinds: depth, tag and class."""
    return hashlib.sha256("\n".join(sorted(set(kinds))).encode()).hexdigest()[:16]


def d_img(one: PageScreen, other: PageScreen) -> float:
    """Share of the cells that differ, without those that change by themselves on either screen."""
    counts = ~(_mask(one) | _mask(other))
    total = int(counts.sum())
    return float((_differs(one.grid, other.grid) & counts).sum() / total) if total else 0.0


def d_dom(one: PageScreen, other: PageScreen) -> float:
    """Distance of the structures, in [0, 1]: 0 for equal ones."""
    common = _common(one.structure, other.structure)
    union = len(one.structure) + len(other.structure) - common
    return 1.0 - common / union if union else 0.0


def is_same(one: PageScreen, other: PageScreen, most: Thresholds = DEFAULT) -> bool:
    """Whether two screens of one task are the same instance."""
    return d_img(one, other) <= most.d_img and d_dom(one, other) <= most.d_dom


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of items that two sorted lists share, each as often as both have it."""
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


# ---- calibration ----


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two screens, and whether they are the same state of the page."""

    d_dom: float
    d_img: float
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """A pair of thresholds with the rates that they have on labelled pairs."""

    thresholds: Thresholds
    true_positive_rate: float
    """Share of the pairs of one state that count as the same screen."""
    false_positive_rate: float
    """Share of the pairs of two states that count as the same screen."""

    @property
    def youden(self) -> float:
        """Youden's J: true positive rate minus false positive rate."""
        return self.true_positive_rate - self.false_positive_rate


def operating_point(pairs: Sequence[LabelledPair], thresholds: Thresholds) -> OperatingPoint:
    """The rates of one pair of thresholds. Raises ValueError unless pairs of both labels are given."""

    def rate(label: bool) -> float:
        own = [pair for pair in pairs if pair.is_same is label]
        if not own:
            raise ValueError(f"expected pairs of one state and of two, got none labelled is_same={label}")
        hits = sum(pair.d_dom <= thresholds.d_dom and pair.d_img <= thresholds.d_img for pair in own)
        return hits / len(own)

    return OperatingPoint(
        thresholds=thresholds, true_positive_rate=rate(True), false_positive_rate=rate(False)
    )


def roc(
    pairs: Sequence[LabelledPair], d_doms: Sequence[float], d_imgs: Sequence[float]
) -> list[OperatingPoint]:
    """The rates of every combination of these thresholds."""
    return [operating_point(pairs, Thresholds(dom, img)) for dom in d_doms for img in d_imgs]


def calibrate(
    pairs: Sequence[LabelledPair], d_doms: Sequence[float], d_imgs: Sequence[float]
) -> OperatingPoint:
    """The thresholds with the largest Youden's J; of equal ones the smallest."""
    points = roc(pairs, d_doms, d_imgs)
    return max(points, key=lambda one: (one.youden, -one.thresholds.d_dom, -one.thresholds.d_img))
