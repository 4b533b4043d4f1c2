"""Regions of an attention map: where it points, in which order, and what a verifier should look at.

The decoding of GUI-Actor (arXiv 2506.03143, section 3.3): the patches above a share of the maximum, split
into components of neighbours, each with its weighted centre and its mean attention. Imports no torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dart.policy.pointer.patches import PatchGrid

KEPT_SHARE = 0.3
"""Share of the largest attention that a patch must exceed to belong to a region."""

CANDIDATE_SHARE, CANDIDATE_PATCHES = 0.2, 20
"""For the candidates of a verifier: share of the largest attention that a patch must exceed, and the largest
number of patches."""

Attention = npt.NDArray[np.floating]
"""A distribution over the patches of a grid [rows * columns]."""


@dataclass(frozen=True, slots=True)
class Region:
    """One place that an attention map points to: neighbouring patches with much attention."""

    centre: tuple[float, float]
    """Mean of the patches' centres weighted by their attention, as fractions (x, y) of the screen."""
    score: float
    """Mean attention of the patches."""
    patches: tuple[int, ...]
    """Indices of the patches, ascending."""


def decode_regions(attention: Attention, grid: PatchGrid, k: int | None = None) -> list[Region]:
    """Return the regions of an attention map, the one with the highest score first.

    attention    [rows * columns], not negative, at least one entry positive
    k            largest number of regions; None: all

    Raises ValueError for a map that does not fit the grid, or has wrong values.
    """
    values = _checked(attention, grid)
    return _regions(values, grid, np.flatnonzero(values > KEPT_SHARE * values.max()).tolist())[:k]


def verifier_candidates(attention: Attention, grid: PatchGrid) -> list[tuple[float, float]]:
    """Return the points that a verifier scores: the centres of regions by their score, then single patches.

    At most CANDIDATE_PATCHES patches above CANDIDATE_SHARE of the maximum take part, so there are never more
    than twice as many points. Points are fractions (x, y) of the screen; none occurs twice.
    """
    values = _checked(attention, grid)
    kept = np.flatnonzero(values > CANDIDATE_SHARE * values.max())
    kept = kept[np.argsort(-values[kept], kind="stable")][:CANDIDATE_PATCHES]
    found = [int(patch) for patch in kept]
    centres = [region.centre for region in _regions(values, grid, found)]
    return list(dict.fromkeys([*centres, *map(grid.centre, found)]))


def _checked(attention: Attention, grid: PatchGrid) -> npt.NDArray[np.float64]:
    values = np.asarray(attention, dtype=np.float64)
    if values.shape != (grid.patches,):
        raise ValueError(
            f"expected attention over {grid.rows}x{grid.columns} patches, got the shape {values.shape}"
        )
    if not np.isfinite(values).all() or values.min() < 0 or values.max() <= 0:
        raise ValueError(
            "expected finite, non-negative attention with at least one positive value, got values from "
            f"{values.min()} to {values.max()}"
        )
    return values


def _regions(values: npt.NDArray[np.float64], grid: PatchGrid, kept: Sequence[int]) -> list[Region]:
    found = [_region(values, grid, patches) for patches in components(kept, grid)]
    return sorted(found, key=lambda region: (-region.score, region.patches))


def _region(values: npt.NDArray[np.float64], grid: PatchGrid, patches: Sequence[int]) -> Region:
    weights = values[list(patches)]
    centres = np.array([grid.centre(patch) for patch in patches])
    x, y = (weights[:, None] * centres).sum(0) / weights.sum()
    return Region((float(x), float(y)), float(weights.mean()), tuple(patches))


def components(kept: Sequence[int], grid: PatchGrid) -> list[list[int]]:
    """Return the 4-connected components of these patches, each in ascending order."""
    waiting = set(kept)
    found: list[list[int]] = []
    while waiting:
        reached = [waiting.pop()]
        for patch in reached:  # grows while it is read
            near = waiting.intersection(_neighbours(patch, grid))
            waiting -= near
            reached += near
        found.append(sorted(reached))
    return sorted(found)


def _neighbours(patch: int, grid: PatchGrid) -> Iterator[int]:
    row, column = divmod(patch, grid.columns)
    if row > 0:
        yield patch - grid.columns
    if row < grid.rows - 1:
        yield patch + grid.columns
    if column > 0:
        yield patch - 1
    if column < grid.columns - 1:
        yield patch + 1
