"""Labels of boxes on a grid of patches, against a count of fine points."""

import random
from fractions import Fraction

import numpy as np
import pytest

from dart.core.boxes import Box
from dart.policy.pointer.patches import PatchGrid, patch_labels


def brute_force(box: tuple[Fraction, ...], rows: int, columns: int) -> np.ndarray:
    """Which patches share positive area with a box, by exact comparison of every patch with it."""
    left, top, right, bottom = box
    found = np.zeros(rows * columns, dtype=bool)
    for patch in range(rows * columns):
        row, column = divmod(patch, columns)
        across = left < Fraction(column + 1, columns) and right > Fraction(column, columns)
        down = top < Fraction(row + 1, rows) and bottom > Fraction(row, rows)
        found[patch] = across and down
    return found


def random_box(draw: random.Random, width: int, height: int) -> tuple[Fraction, ...]:
    left, right = sorted(draw.sample(range(width + 1), 2))
    top, bottom = sorted(draw.sample(range(height + 1), 2))
    return Fraction(left, width), Fraction(top, height), Fraction(right, width), Fraction(bottom, height)


def test_overlap_labels_are_those_of_brute_force_for_boxes_on_pixels_of_which_many_touch_edges() -> None:
    draw = random.Random(0)
    for _ in range(500):
        rows, columns = draw.randint(1, 12), draw.randint(1, 12)
        box = random_box(draw, columns * draw.choice((1, 2, 7)), rows * draw.choice((1, 3, 28)))
        labels = patch_labels(Box(*map(float, box)), PatchGrid(rows, columns))
        expected = brute_force(box, rows, columns)
        assert ((labels > 0) == expected).all()
        assert labels[expected] == pytest.approx(1 / expected.sum())


@pytest.mark.parametrize(("rows", "columns", "share"), [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0), (1, 1, 1.1)])
def test_a_grid_without_a_patch_or_without_a_screen_is_refused(rows: int, columns: int, share: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        PatchGrid(rows, columns, covered_width=share)
    with pytest.raises(ValueError, match="expected"):
        PatchGrid(rows, columns, covered_height=share)


def test_a_patch_that_the_box_only_touches_is_not_labelled() -> None:
    labels = patch_labels(Box(0.25, 0.25, 0.5, 0.5), PatchGrid(4, 4))

    assert np.flatnonzero(labels).tolist() == [5]


def test_labels_are_numbered_row_by_row() -> None:
    labels = patch_labels(Box(0.0, 0.5, 1.0, 1.0), PatchGrid(2, 3))

    assert np.flatnonzero(labels).tolist() == [3, 4, 5]


def test_gaussian_labels_are_the_covered_share_times_a_gaussian_around_the_centre() -> None:
    grid, box = PatchGrid(8, 8), Box(0.1, 0.2, 0.7, 0.65)
    expected = np.zeros(64)
    for patch in range(64):
        x, y = grid.centre(patch)
        width = min(x + 1 / 16, box.right) - max(x - 1 / 16, box.left)
        height = min(y + 1 / 16, box.bottom) - max(y - 1 / 16, box.top)
        covered = max(0.0, width) * max(0.0, height) * 64
        dx, dy = (x - 0.4) / (0.8 * 0.6), (y - 0.425) / (0.8 * 0.45)
        expected[patch] = covered * np.exp(-0.5 * (dx**2 + dy**2))

    assert patch_labels(box, grid, "gaussian") == pytest.approx(expected / expected.sum(), abs=1e-6)


def test_gaussian_labels_of_a_box_much_smaller_than_its_patch_are_that_patch() -> None:
    labels = patch_labels(Box(0.001, 0.001, 0.002, 0.002), PatchGrid(2, 2), "gaussian")

    assert labels.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_centre_labels_are_the_patches_whose_centre_is_in_the_box_or_the_one_at_its_centre() -> None:
    draw = random.Random(1)
    for _ in range(300):
        grid = PatchGrid(draw.randint(1, 12), draw.randint(1, 12))
        box = Box(*map(float, random_box(draw, 97, 101)))
        centres = [grid.centre(patch) for patch in range(grid.patches)]
        inside = [patch for patch, (x, y) in enumerate(centres) if box.contains(x, y)]
        labels = patch_labels(box, grid, "centre")

        assert np.flatnonzero(labels).tolist() == (inside or [grid.patch_at(*box.centre)])
        assert labels.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["overlap", "gaussian", "centre"])
def test_on_a_padded_grid_only_patches_of_the_screen_are_labelled(kind: str) -> None:
    grid = PatchGrid(2, 4, covered_width=0.75)

    labels = patch_labels(Box(0.0, 0.0, 1.0, 1.0), grid, kind)  # type: ignore[arg-type]

    assert np.flatnonzero(labels).tolist() == [0, 1, 2, 4, 5, 6]


def test_a_box_outside_of_the_screen_is_refused_with_its_numbers() -> None:
    with pytest.raises(ValueError, match=r"inside the screen.*\(0.5, 0.5, 1.2, 0.9\)"):
        patch_labels(Box(0.5, 0.5, 1.2, 0.9), PatchGrid(2, 2))


def test_a_box_without_area_is_refused() -> None:
    with pytest.raises(ValueError, match="area must be positive"):
        Box(0.5, 0.5, 0.5, 0.9)


def test_the_patch_at_a_patchs_centre_is_that_patch() -> None:
    grid = PatchGrid(27, 20, covered_height=0.97)

    assert [grid.patch_at(*grid.centre(patch)) for patch in range(520)] == list(range(520))
