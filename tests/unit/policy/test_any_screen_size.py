"""The small policy on screens of any size: it sees them in its frame and points in pixels of the screen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from dart.core.actions import Click, parse_action
from dart.core.boxes import Box
from dart.policy.codec import FRAME, GRID, PromptCodec, fitted, frame_at_size
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import (
    BIN_PX,
    FRAME_HEIGHT_PX,
    FRAME_WIDTH_PX,
    PATCH_PX,
    Coordinates,
    special_ids,
    special_tokens,
)
from tests.pictures import png_of

TASK = "Open the inbox."
BINS = PromptCodec(train_tokenizer([TASK] * 4), image_tokens=70)
PATCHES = PromptCodec(train_tokenizer([TASK] * 4, "pointer"), image_tokens=70)
CODECS: dict[Coordinates, PromptCodec] = {"bins": BINS, "pointer": PATCHES}
CELL_PX: dict[Coordinates, int] = {"bins": BIN_PX, "pointer": PATCH_PX}
"""Side of what a point stands for, in pixels of the policy's frame."""

SITE = (504, 392)
"""Width and height of a site's page."""

coordinates = st.sampled_from(("bins", "pointer"))
sides = st.integers(60, 4000)


def clicked(codec: PromptCodec, tokens: list[int], size: tuple[int, int]) -> tuple[int, int]:
    click = parse_action(codec.decode_action(tokens, TASK, frame_at_size(*size)))
    assert isinstance(click, Click)
    return click.x, click.y


# ---- a screen of the frame's own size ----


def test_every_pixel_of_the_frame_has_the_bins_it_lies_in_and_they_stand_for_their_middle() -> None:
    names = special_tokens()
    for x, y in [*((x, 7) for x in range(FRAME_WIDTH_PX)), *((7, y) for y in range(FRAME_HEIGHT_PX))]:
        tokens = BINS.encode_action(f"click(start_box='({x},{y})')", TASK, FRAME)
        assert [names[token] for token in tokens[1:3]] == [f"<x_{x // 4}>", f"<y_{y // 4}>"]
        assert clicked(BINS, tokens, (160, 210)) == (x // 4 * 4 + 2, min(y // 4 * 4 + 2, 209))


def test_every_pixel_of_the_frame_has_the_patch_it_lies_in_and_it_stands_for_its_centre() -> None:
    names = special_tokens("pointer")
    for x, y in [*((x, 9) for x in range(FRAME_WIDTH_PX)), *((9, y) for y in range(FRAME_HEIGHT_PX))]:
        tokens = PATCHES.encode_action(f"click(start_box='({x},{y})')", TASK, FRAME)
        assert names[tokens[2]] == f"<patch_{y // 8 * 20 + x // 8}>"
        assert clicked(PATCHES, tokens, (160, 210)) == (x // 8 * 8 + 4, min(y // 8 * 8 + 4, 209))


def test_a_screenshot_of_the_frames_size_is_not_changed() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (210, 160, 3), dtype=np.uint8)
    screen = BINS.screen("cafe", png_of(Image.fromarray(noise)))
    assert (screen.pixels == noise).all()
    assert screen.frame == FRAME


# ---- a screen of another size ----


def test_a_larger_screenshot_is_shown_in_the_frame_and_remembers_its_size() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (SITE[1], SITE[0], 3), dtype=np.uint8)
    screen = BINS.screen("cafe", png_of(Image.fromarray(noise)))
    assert screen.pixels.shape == (210, 160, 3)
    assert (screen.pixels == fitted(noise)).all()
    assert (screen.frame.width_px, screen.frame.height_px) == SITE
    assert (screen.frame.shown_width_px, screen.frame.shown_height_px) == (160, 210)


@given(coordinates, sides, sides, st.data())
def test_a_click_comes_back_within_half_a_cell_of_the_screen(
    kind: Coordinates, width: int, height: int, data: st.DataObject
) -> None:
    codec, cell_px = CODECS[kind], CELL_PX[kind]
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    tokens = codec.encode_action(f"click(start_box='({x},{y})')", TASK, frame_at_size(width, height))
    back_x, back_y = clicked(codec, tokens, (width, height))
    assert abs(back_x - x) <= cell_px * width / FRAME_WIDTH_PX / 2 + 0.5
    assert abs(back_y - y) <= cell_px * height / FRAME_HEIGHT_PX / 2 + 0.5


@given(coordinates, sides, sides, st.data())
def test_the_point_that_tokens_stand_for_is_written_with_the_same_tokens(
    kind: Coordinates, width: int, height: int, data: st.DataObject
) -> None:
    codec, frame = CODECS[kind], frame_at_size(width, height)
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    drag = f"drag(start_box='({x},{y})', end_box='({width - 1 - x},{height - 1 - y})')"
    tokens = codec.encode_action(drag, TASK, frame)
    answer = codec.decode_action(tokens, TASK, frame)
    assert codec.encode_action(answer, TASK, frame) == tokens


@given(coordinates, st.integers(1, 12), st.integers(0, 159), st.integers(0, 209))
def test_past_answers_are_those_of_the_small_screen_whatever_the_size(
    kind: Coordinates, factor: int, x: int, y: int
) -> None:
    codec = CODECS[kind]
    small = codec.encode_prompt(TASK, [f"click(start_box='({x},{y})')"])
    middle = (factor * x + factor // 2, factor * y + factor // 2)
    large = codec.encode_prompt(
        TASK,
        [f"click(start_box='({middle[0]},{middle[1]})')"],
        frame_at_size(factor * FRAME_WIDTH_PX, factor * FRAME_HEIGHT_PX),
    )
    assert large == small


@pytest.mark.parametrize("kind", ["bins", "pointer"])
def test_a_point_beyond_the_edge_counts_as_the_edge(kind: Coordinates) -> None:
    frame = frame_at_size(*SITE)
    beyond, edge = (
        CODECS[kind].encode_action(f"click(start_box='{point}')", TASK, frame)
        for point in ("(9000,9000)", "(503,391)")
    )
    assert beyond == edge


ELEMENTS = (Box(16, 12, 116, 40), Box(300, 12, 380, 40), Box(40, 200, 70, 220), Box(420, 350, 500, 388))


@pytest.mark.parametrize("kind", ["bins", "pointer"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_click_at_the_middle_of_an_element_hits_it(kind: Coordinates, element: Box) -> None:
    x, y = (int(part) for part in element.centre)
    tokens = CODECS[kind].encode_action(f"click(start_box='({x},{y})')", TASK, frame_at_size(*SITE))
    back_x, back_y = clicked(CODECS[kind], tokens, SITE)
    assert element.left <= back_x < element.right
    assert element.top <= back_y < element.bottom


@pytest.mark.parametrize("element", ELEMENTS)
def test_a_click_at_the_patch_that_shows_an_element_hits_it(element: Box) -> None:
    page = Image.new("RGB", SITE, "white")
    ImageDraw.Draw(page).rectangle(
        (element.left, element.top, element.right - 1, element.bottom - 1), fill="black"
    )
    seen = PATCHES.screen("cafe", png_of(page)).pixels
    rows = np.pad(seen[:, :, 0], ((0, GRID.rows * PATCH_PX - FRAME_HEIGHT_PX), (0, 0)), constant_values=255)
    patches = rows.reshape(GRID.rows, PATCH_PX, GRID.columns, PATCH_PX).mean((1, 3))
    first = special_ids("pointer")["<patch_0>"]
    tokens = PATCHES.encode_answer("click(start_box='(4,4)')", TASK)
    tokens[2] = first + int(patches.argmin())  # the darkest one
    x, y = clicked(PATCHES, tokens, SITE)
    assert element.left <= x < element.right
    assert element.top <= y < element.bottom
