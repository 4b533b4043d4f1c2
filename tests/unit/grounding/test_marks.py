"""Marked crops."""

import numpy as np
import pytest

from dart.grounding.marks import FULL_MARK, SMALLEST_MARK, CandidateMark, mark_for, marked_crop


def test_large_screens_have_the_published_sizes() -> None:
    assert mark_for(1920, 1080) == mark_for(3840, 2160) == FULL_MARK
    assert CandidateMark(radius_px=7, width_px=3, half_crop_px=500) == FULL_MARK


def test_small_screens_have_small_marks() -> None:
    small = mark_for(160, 210)

    assert small.half_crop_px == 55
    assert (small.radius_px, small.width_px) == (SMALLEST_MARK.radius_px, SMALLEST_MARK.width_px)


def test_the_crop_has_a_hollow_red_circle_around_the_candidate() -> None:
    crop = marked_crop(np.full((1080, 1920, 3), 255, dtype=np.uint8), (0.5, 0.5))

    assert crop.shape == (1001, 1001, 3)
    assert crop[500, 500].tolist() == [255, 255, 255]
    assert crop[500, 507].tolist() == crop[493, 500].tolist() == [255, 0, 0]


@pytest.mark.parametrize("point", [(0.0, 0.0), (1.0, 1.0), (1.0, 0.0)])
def test_at_the_corner_of_the_screen_the_crop_ends_there(point: tuple[float, float]) -> None:
    crop = marked_crop(np.zeros((210, 160, 3), dtype=np.uint8), point)

    assert crop.shape == (56, 56, 3)
    assert (crop[..., 0] == 255).any()


def test_the_screenshot_itself_is_not_changed() -> None:
    image = np.zeros((210, 160, 3), dtype=np.uint8)
    marked_crop(image, (0.5, 0.5))

    assert not image.any()
