"""Pages whose elements move apart and together, and stay what they are."""

import random

import numpy as np

from dart.core.boxes import Box
from dart.environments.miniwob.pages import HEIGHT, INSTRUCTION_HEIGHT, WIDTH
from dart.imitation.page_layouts import KEPT, MOST_COLUMNS, MOST_ROWS, PageLayout
from dart.policy.protocols import Pixels

WHITE, YELLOW = 255, (255, 255, 0)
BOXES = (
    Box(10.2, 60.4, 50.7, 75.1),
    Box(80, 62, 120, 76),
    Box(14, 100, 48, 112.5),
    Box(14, 150, 46, 170),
)
DRAWS = 300


def page(boxes: tuple[Box, ...] = BOXES) -> Pixels:
    """A page with an instruction, and elements of one colour each, whose first pixel is black."""
    pixels = np.full((HEIGHT, WIDTH, 3), WHITE, np.uint8)
    pixels[:INSTRUCTION_HEIGHT] = YELLOW
    pixels[5:9, 20:70] = np.random.default_rng(0).integers(0, 255, (4, 50, 1))
    for number, box in enumerate(boxes, 1):
        rows, columns = _inner(box)
        pixels[rows, columns] = (40 * number, 0, 0)
        pixels[rows.start, columns.start] = 0
    return pixels


def _inner(box: Box) -> tuple[slice, slice]:
    return slice(int(box.top), int(box.bottom) + 1), slice(int(box.left), int(box.right) + 1)


def moved(number: int, boxes: tuple[Box, ...], seed: int) -> tuple[Pixels, int, int]:
    x, y = map(int, boxes[number].centre)
    return PageLayout(page(boxes), boxes).moved(x, y, random.Random(seed))


def places(boxes: tuple[Box, ...], seed: int) -> list[tuple[int, int]]:
    return [moved(number, boxes, seed)[1:] for number in range(len(boxes))]


def test_every_element_stays_whole_and_the_point_stays_at_its_place_in_the_element() -> None:
    before = page()
    for seed in range(DRAWS):
        for number, box in enumerate(BOXES):
            pixels, x, y = moved(number, BOXES, seed)
            rows, columns = _inner(box)
            down, right = y - int(box.centre[1]), x - int(box.centre[0])
            there = pixels[rows.start + down : rows.stop + down, columns.start + right : columns.stop + right]
            np.testing.assert_array_equal(there, before[rows, columns])


def test_elements_keep_their_order_and_some_rows_and_columns_between_them() -> None:
    for seed in range(DRAWS):
        first, second, third, fourth = places(BOXES, seed)
        assert first[1] - second[1] == int(BOXES[0].centre[1]) - int(BOXES[1].centre[1]), "one line"
        heights = (76 - 69, third[1] - 100, 0)
        assert second[1] + heights[0] + KEPT < third[1] - 6
        assert third[1] + 6 + KEPT < fourth[1] - 10
        assert first[0] + 20 + KEPT < second[0] - 20


def test_elements_move_apart_and_together_along_both_axes() -> None:
    start = [tuple(map(int, box.centre)) for box in BOXES]
    found = [places(BOXES, seed) for seed in range(DRAWS)]
    for axis, low, high in ((0, 0, 1), (1, 1, 2), (1, 2, 3)):
        usual = start[high][axis] - start[low][axis]
        distances = {place[high][axis] - place[low][axis] for place in found}
        assert min(distances) < usual - 5
        assert max(distances) > usual + 5
        assert len(distances) > 15
    assert len({place[0] for place in found}) > 50, "the first element is not always at one place"


def test_the_instruction_stays_as_it_is_and_so_does_a_page_whose_point_is_there() -> None:
    before = page()
    layout = PageLayout(before, BOXES)
    for seed in range(50):
        pixels, *_ = layout.moved(20, 70, random.Random(seed))
        np.testing.assert_array_equal(pixels[:INSTRUCTION_HEIGHT], before[:INSTRUCTION_HEIGHT])
        pixels, x, y = layout.moved(30, INSTRUCTION_HEIGHT - 1, random.Random(seed))
        np.testing.assert_array_equal(pixels, before)
        assert (x, y) == (30, INSTRUCTION_HEIGHT - 1)
    np.testing.assert_array_equal(before, page(), "the page itself is not changed")


def test_no_element_leaves_a_page_that_has_no_room_behind_its_elements() -> None:
    full = (Box(0, 60, 40, 80), Box(100, 60, 160, 90), Box(0, 180, 160, 210))
    for seed in range(DRAWS):
        for number in range(len(full)):
            pixels, x, y = moved(number, full, seed)
            assert pixels.shape == (HEIGHT, WIDTH, 3)
            np.testing.assert_array_equal(
                pixels[y, x], page(full)[tuple(map(int, full[number].centre))[::-1]]
            )


def test_an_element_that_looks_like_the_page_around_it_is_neither_stretched_nor_cut() -> None:
    box = Box(60, 120, 80, 140)
    layout = PageLayout(np.full((HEIGHT, WIDTH, 3), WHITE, np.uint8), [box])
    for seed in range(DRAWS):
        _, left, top = layout.moved(60, 120, random.Random(seed))
        _, right, bottom = layout.moved(80, 140, random.Random(seed))
        assert (right - left, bottom - top) == (box.width, box.height)


def test_a_page_without_an_empty_line_stays_as_it_is() -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    shown, x, y = PageLayout(pixels, [Box(10, 60, 20, 80)]).moved(15, 70, random.Random(0))
    np.testing.assert_array_equal(shown, pixels)
    assert (x, y) == (15, 70)


def test_a_change_is_at_most_so_many_lines() -> None:
    one = (Box(60, 120, 80, 140),)
    found = [places(one, seed)[0] for seed in range(DRAWS)]
    across, down = {x for x, _ in found}, {y for _, y in found}
    assert max(abs(x - 70) for x in across) <= 3 * MOST_COLUMNS
    assert max(abs(y - 130) for y in down) <= 3 * MOST_ROWS
    assert max(abs(y - 130) for y in down) > MOST_ROWS, "several changes add up"
