"""The grid of image patches, and which patches a box covers. Imports no torch.

GUI-Actor labels every patch that shares positive area with the box (arXiv 2506.03143, section 3.2); GUI-AIMA
weights the covered share of each patch by a Gaussian around the box's centre (arXiv 2511.00810).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dart.core.boxes import Box

Weights = npt.NDArray[np.float32]

PixelOf = Callable[[float, float], tuple[int, int]]
"""Converts a point, in fractions of the screen, to a pixel of the screen."""

LabelKind = Literal["overlap", "gaussian", "centre"]

GAUSSIAN_SPREAD = 0.8
"""Standard deviation of the Gaussian labels, as a share of the box's width and height."""

TOUCH = 1e-9
"""Overlaps of at most this share of a patch's side count as 0: they are rounding errors of a touching box."""


@dataclass(frozen=True, slots=True)
class PatchGrid:
    """The patches of one screenshot, numbered row by row from the top left.

    All patches have the same size. The grid covers the screen exactly, unless a model pads its image. Then
    the grid covers the padding, too; `covered_width` and `covered_height` say how much of the grid is screen.
    """

    rows: int
    columns: int
    covered_width: float = 1.0
    """Share of the grid's width that is screen."""
    covered_height: float = 1.0
    """Share of the grid's height that is screen."""

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise ValueError(f"expected at least one patch, got {self.rows} rows and {self.columns} columns")
        if not (0 < self.covered_width <= 1 and 0 < self.covered_height <= 1):
            raise ValueError(
                "expected covered_width and covered_height to be above 0 and at most 1, got "
                f"{self.covered_width} and {self.covered_height}"
            )

    @property
    def patches(self) -> int:
        """Number of patches."""
        return self.rows * self.columns

    def centre(self, patch: int) -> tuple[float, float]:
        """Return the centre of a patch as fractions (x, y) of the screen; beyond the screen counts as 1."""
        row, column = divmod(patch, self.columns)
        x = (column + 0.5) / self.columns / self.covered_width
        y = (row + 0.5) / self.rows / self.covered_height
        return min(x, 1.0), min(y, 1.0)

    def patch_at(self, x: float, y: float) -> int:
        """Return the number of the patch that contains a point, given as fractions of the screen."""
        column = min(int(x * self.covered_width * self.columns), self.columns - 1)
        row = min(int(y * self.covered_height * self.rows), self.rows - 1)
        return row * self.columns + column


def patch_labels(box: Box, grid: PatchGrid, kind: LabelKind = "overlap") -> Weights:
    """Return the target distribution over patches [rows * columns] for a box, summing to 1.

    box    in fractions of the screen, as `Box.scaled` makes it
    kind   `overlap`: the same weight for all patches that share area with the box; `gaussian`: the weights
           of GUI-AIMA; `centre`: the same weight for all patches whose centre is in the box, or if there is
           none, the patch at the centre of the box. A click on a drawn patch goes to its centre

    Raises ValueError for a box that is not inside the screen.
    """
    if not box.is_inside(1 + TOUCH, 1 + TOUCH):
        raise ValueError(f"expected a box inside the screen, in fractions of its sides, got {box}")
    flat = _weights(box, grid, kind).ravel()
    return np.asarray(flat / flat.sum(), dtype=np.float32)


def patches_that_click(box: Box, grid: PatchGrid, pixel_of: PixelOf) -> list[int]:
    """Return the patches whose clicks hit a box.

    box        in pixels of the screen
    pixel_of   converts a centre, in fractions of the screen, to the pixel that the policy clicks for it
    """
    columns = [pixel_of(*grid.centre(column))[0] for column in range(grid.columns)]
    rows = [pixel_of(*grid.centre(row * grid.columns))[1] for row in range(grid.rows)]
    return [
        row * grid.columns + column
        for row in hits(rows, box.top, box.bottom)
        for column in hits(columns, box.left, box.right)
    ]


def hits(pixels: Sequence[int], first: float, end: float) -> list[int]:
    """Return the indices of the pixels of one side that are in [first, end)."""
    return [index for index, pixel in enumerate(pixels) if first <= pixel < end]


def _weights(box: Box, grid: PatchGrid, kind: LabelKind) -> npt.NDArray[np.float64]:
    """Return the weight of each patch [rows, columns], up to a factor."""
    if kind == "centre":
        return _has_centre_inside(box, grid).astype(np.float64)
    shares = _covered_shares(box, grid)
    return (shares > 0).astype(np.float64) if kind == "overlap" else shares * _gaussian(box, grid)


def _has_centre_inside(box: Box, grid: PatchGrid) -> npt.NDArray[np.bool_]:
    """Return whether the centre of each patch [rows, columns] is in the box.

    If none is, the patch at the centre of the box counts as if it was."""
    x = (np.arange(grid.columns) + 0.5) / grid.columns / grid.covered_width
    y = (np.arange(grid.rows) + 0.5) / grid.rows / grid.covered_height
    across, down = (box.left <= x) & (x <= box.right), (box.top <= y) & (y <= box.bottom)
    inside = down[:, None] & across[None, :]
    if not inside.any():
        inside.flat[grid.patch_at(*box.centre)] = True
    return inside


def _covered_shares(box: Box, grid: PatchGrid) -> npt.NDArray[np.float64]:
    """Return the share [rows, columns] of each patch's area that the box covers; 0 where they only touch."""
    across = _overlaps(box.left * grid.covered_width, box.right * grid.covered_width, grid.columns)
    down = _overlaps(box.top * grid.covered_height, box.bottom * grid.covered_height, grid.rows)
    return down[:, None] * across[None, :]


def _overlaps(low: float, high: float, cells: int) -> npt.NDArray[np.float64]:
    """Return the share of each of `cells` equal parts of [0, 1] that [low, high] covers."""
    edges = np.arange(cells + 1)
    shared = np.minimum(high * cells, edges[1:]) - np.maximum(low * cells, edges[:-1])
    return np.where(shared > TOUCH, shared, 0.0)


def _gaussian(box: Box, grid: PatchGrid) -> npt.NDArray[np.float64]:
    """Return exp(-(dx^2 / sx^2 + dy^2 / sy^2) / 2) [rows, columns] of the patches' centres, up to a factor.

    dx and dy are distances from the box's centre; sx and sy are GAUSSIAN_SPREAD times the box's sides.
    """
    (x, y), spread = box.centre, GAUSSIAN_SPREAD
    dx = (np.arange(grid.columns) + 0.5) / grid.columns / grid.covered_width - x
    dy = (np.arange(grid.rows) + 0.5) / grid.rows / grid.covered_height - y
    across, down = dx / (spread * box.width), dy / (spread * box.height)
    exponent = (across**2)[None, :] + (down**2)[:, None]
    smallest = exponent[
        _covered_shares(box, grid) > 0
    ].min()  # a box much smaller than its patch: no underflow
    return np.asarray(np.exp(-0.5 * (exponent - smallest)))
