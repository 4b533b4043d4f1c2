"""Screens match by structure and image."""

from dataclasses import replace

import pytest
from PIL import Image

from dart.core.exploration import PageScreen
from dart.exploration.graph import Graph
from dart.exploration.matching import (
    GRID_COLUMNS,
    GRID_ROWS,
    d_dom,
    d_img,
    grid_of,
    shape_of,
    structure_of,
    volatile_cells,
)
from tests.pictures import png_of
from tests.unit.exploration.screens import node, screen

CELLS = GRID_COLUMNS * GRID_ROWS


def png(*, dark_rows: int = 0) -> bytes:
    picture = Image.new("RGB", (160, 208), "white")
    picture.paste("black", (0, 0, 160, dark_rows))
    return png_of(picture)


def test_a_grid_has_the_mean_grey_of_each_cell_row_by_row() -> None:
    assert grid_of(png(dark_rows=4)) == bytes(GRID_COLUMNS) + b"\xff" * (CELLS - GRID_COLUMNS)
    half = grid_of(png(dark_rows=2))
    assert set(half[:GRID_COLUMNS]) <= {127, 128}


def test_structures_are_multisets() -> None:
    one = replace(screen("a"), structure=structure_of(["li", "li", "p"]))
    other = replace(screen("a"), structure=structure_of(["li", "p", "h1"]))
    assert d_dom(one, other) == pytest.approx(1 - 2 / 4)
    assert d_dom(one, one) == 0.0
    assert d_dom(replace(one, structure=()), replace(one, structure=())) == 0.0


def test_the_image_distance_counts_cells_that_differ_clearly() -> None:
    one = replace(screen("a"), grid=bytes([100]) * CELLS)
    little = replace(one, grid=bytes([116]) * CELLS)
    ten_cells = replace(one, grid=bytes([117]) * 10 + bytes([100]) * (CELLS - 10))
    assert d_img(one, little) == 0.0
    assert d_img(one, ten_cells) == pytest.approx(10 / CELLS)


def test_cells_that_change_by_themselves_do_not_count() -> None:
    before, after = bytes(CELLS), bytes([255]) * 80 + bytes(CELLS - 80)
    blinking = replace(screen("a"), grid=after, volatile=volatile_cells(before, after))
    still = replace(screen("a"), grid=before)
    assert d_img(still, replace(blinking, volatile=still.volatile)) == pytest.approx(80 / CELLS)
    assert d_img(still, blinking) == d_img(blinking, still) == 0.0


def test_images_of_which_every_cell_changes_by_itself_do_not_differ() -> None:
    dark, bright = bytes(CELLS), bytes([255]) * CELLS
    one = replace(screen("a"), grid=dark, volatile=volatile_cells(dark, bright))
    assert d_img(one, replace(one, grid=bright)) == 0.0


def test_a_screen_of_which_a_half_blinks_matches_its_node_whichever_of_the_two_was_seen_blinking() -> None:
    before, after = bytes(CELLS), bytes([255]) * (CELLS // 2) + bytes(CELLS // 2)
    blinking = replace(screen("a"), grid=after, volatile=volatile_cells(before, after))
    still = replace(screen("a"), grid=before)
    for known, shown in ((blinking, still), (still, blinking)):
        graph = Graph()
        graph.add_node(node(1, known))
        assert graph.match(shown) == 1


def test_two_screens_are_the_same_only_if_both_distances_are_small() -> None:
    graph = Graph()
    graph.add_node(node(1, screen("a", grey=50)))
    assert graph.match(screen("a", grey=60)) == 1
    assert graph.match(screen("a", grey=90)) is None
    assert graph.match(screen("b", grey=50)) is None


def test_a_shape_does_not_depend_on_how_often_a_kind_of_node_occurs() -> None:
    assert shape_of(["0|ul|", "1|li|"]) == shape_of(["1|li|", "0|ul|", "1|li|", "1|li|"])
    assert shape_of(["0|ul|"]) != shape_of(["0|ol|"])


def with_nodes(shape: str, *changed: int) -> PageScreen:
    """A screen of twenty nodes, of which some are other ones than usual."""
    names = [f"changed {number}" if number in changed else f"node {number}" for number in range(20)]
    return replace(screen("a", shape=shape), structure=structure_of(names))


def test_of_several_screens_that_match_the_nearest_one_of_the_same_shape_is_the_same() -> None:
    graph = Graph()
    for number, known in enumerate((with_nodes("list", 1), with_nodes("list"), with_nodes("form", 1))):
        graph.add_node(node(number, known))
    assert graph.match(with_nodes("list")) == 1
    assert graph.match(with_nodes("form")) == 2
    assert graph.match(with_nodes("table", 1)) == 0
