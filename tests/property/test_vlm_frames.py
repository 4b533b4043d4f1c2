"""The frame a vision-language policy sees, and the way back to the screen, for any screen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.policy.coordinates import FrameError, ResizeRule

QWEN = ResizeRule(factor_px=28, min_area_px=56 * 56, max_area_px=1280 * 28 * 28)
UI_TARS = ResizeRule(factor_px=28, min_area_px=100 * 28 * 28, max_area_px=16384 * 28 * 28)

sides = st.integers(30, 4000)
rules = st.sampled_from((QWEN, UI_TARS))


@given(sides, sides, rules)
def test_a_frame_is_whole_tokens_and_within_its_areas(width: int, height: int, rule: ResizeRule) -> None:
    frame = rule.shown(width, height)
    area = frame.shown_width_px * frame.shown_height_px
    assert frame.shown_width_px % rule.factor_px == frame.shown_height_px % rule.factor_px == 0
    assert rule.min_area_px <= area <= rule.max_area_px or min(width, height) * 40 < max(width, height)


@given(sides, sides, rules)
def test_it_is_the_frame_of_the_models_own_processor(width: int, height: int, rule: ResizeRule) -> None:
    processing = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    wanted = processing.smart_resize(
        height, width, factor=rule.factor_px, min_pixels=rule.min_area_px, max_pixels=rule.max_area_px
    )
    frame = rule.shown(width, height)
    assert (frame.shown_height_px, frame.shown_width_px) == wanted
    again = rule.shown(frame.shown_width_px, frame.shown_height_px)
    assert (again.shown_height_px, again.shown_width_px) == wanted


@given(sides, sides, rules, st.data())
def test_a_point_of_the_screen_is_said_within_half_a_shown_pixel(
    width: int, height: int, rule: ResizeRule, data: st.DataObject
) -> None:
    frame = rule.shown(width, height)
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    said_x, said_y = frame.to_shown(x, y)
    true_x, true_y = x * frame.shown_width_px / width, y * frame.shown_height_px / height
    at_edge_x, at_edge_y = said_x == frame.shown_width_px - 1, said_y == frame.shown_height_px - 1
    assert abs(said_x - true_x) <= 0.5 or (at_edge_x and true_x > said_x)
    assert abs(said_y - true_y) <= 0.5 or (at_edge_y and true_y > said_y)
    back_x, back_y = frame.to_screen(said_x, said_y)
    assert abs(back_x - x) <= 0.5 + width / frame.shown_width_px
    assert abs(back_y - y) <= 0.5 + height / frame.shown_height_px


@given(st.integers(-500, 9000), st.integers(-500, 9000))
def test_whatever_point_is_said_is_on_the_screen(x: int, y: int) -> None:
    screen_x, screen_y = UI_TARS.shown(1920, 1080).to_screen(x, y)
    assert 0 <= screen_x < 1920
    assert 0 <= screen_y < 1080


def test_the_frame_of_a_full_hd_screen_is_the_published_one() -> None:
    frame = UI_TARS.shown(1920, 1080)
    assert (frame.shown_width_px, frame.shown_height_px) == (1932, 1092)


def test_a_screen_that_is_a_line_has_no_frame() -> None:
    with pytest.raises(FrameError, match="3000x10"):
        QWEN.shown(3000, 10)
