"""Regions of made attention maps."""

import numpy as np
import pytest

from dart.policy.pointer.patches import PatchGrid
from dart.policy.pointer.regions import components, decode_regions, verifier_candidates

GRID = PatchGrid(4, 5)


def attention(**values: float) -> np.ndarray:
    """A map with these values at `r<row>c<column>`, a little everywhere else."""
    made = np.full(GRID.patches, 1e-6)
    for place, value in values.items():
        made[int(place[1]) * GRID.columns + int(place[3])] = value
    return made / made.sum()


def test_one_bright_patch_is_one_region_at_its_centre() -> None:
    (region,) = decode_regions(attention(r1c2=1.0), GRID)

    assert region.centre == pytest.approx((2.5 / 5, 1.5 / 4))
    assert region.patches == (7,)


def test_the_centre_of_a_region_is_weighted_by_attention() -> None:
    (region,) = decode_regions(attention(r0c0=3.0, r0c1=1.0), GRID)

    assert region.centre == pytest.approx((0.1 + 0.25 * 0.2, 0.125))


def test_patches_that_meet_at_a_corner_are_two_regions_and_the_brighter_one_is_first() -> None:
    regions = decode_regions(attention(r0c0=1.0, r1c1=2.0), GRID)

    assert [region.patches for region in regions] == [(6,), (0,)]
    assert regions[0].score == pytest.approx(2 * regions[1].score)


def test_the_last_patch_of_a_row_is_no_neighbour_of_the_first_of_the_next() -> None:
    assert components([4, 5], GRID) == [[4], [5]]


def test_the_score_is_the_mean_so_one_bright_patch_beats_many_dim_ones() -> None:
    regions = decode_regions(attention(r0c0=1.0, r2c0=0.5, r2c1=0.5, r2c2=0.5), GRID)

    assert regions[0].patches == (0,)


def test_patches_at_the_threshold_are_left_out() -> None:
    found = decode_regions(np.array([10.0, 0.0, 3.0, 0.0, 3.1]), PatchGrid(1, 5))

    assert [region.patches for region in found] == [(0,), (4,)]


def test_only_the_first_k_regions_are_returned() -> None:
    spots = attention(r0c0=1.0, r0c2=0.9, r0c4=0.8, r2c2=0.7)

    assert [region.patches for region in decode_regions(spots, GRID, k=2)] == [(0,), (2,)]


def test_a_shape_like_a_u_is_one_region() -> None:
    u = attention(r0c0=1.0, r1c0=1.0, r2c0=1.0, r2c1=1.0, r2c2=1.0, r1c2=1.0, r0c2=1.0)

    assert len(decode_regions(u, GRID)) == 1


def test_candidates_are_centres_first_and_then_patches_without_repeats() -> None:
    points = verifier_candidates(attention(r0c0=1.0, r0c1=0.5, r3c4=0.7), GRID)

    assert points[0] == pytest.approx(GRID.centre(0), abs=0.1)
    assert points == list(dict.fromkeys(points))
    assert {GRID.centre(0), GRID.centre(1)} <= set(points)
    assert points.count(GRID.centre(19)) == 1


def test_a_flat_map_has_at_most_twenty_patches_as_candidates() -> None:
    grid = PatchGrid(10, 10)

    assert len(verifier_candidates(np.full(100, 0.01), grid)) <= 40


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (np.zeros(20), "at least one positive value"),
        (np.ones(19), "shape"),
        (np.array([np.nan] * 20), "finite"),
        (-np.ones(20), "non-negative"),
    ],
)
def test_a_map_that_points_nowhere_is_refused(values: np.ndarray, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_regions(values, GRID)
