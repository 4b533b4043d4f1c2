"""Accuracy reports, controls and the second stage, with models that are made up."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from benchmarks import grounding_controls as controls
from dart.core.boxes import Box
from dart.core.screenspot import GroundingDataError, read_screenspot
from dart.grounding.data import pixels_of
from dart.grounding.evaluation import accuracy_report, accuracy_rows, ground_all
from dart.grounding.verification import Verified
from dart.grounding.zoom import crop_around, cut, ground_with_zoom
from dart.policy.pointer.model import GroundingModel, WarmUp
from dart.policy.pointer.regions import Region
from dart.policy.pointer.settings import HeadSettings
from dart.policy.protocols import Pixels
from tests.unit.grounding.samples import COLOURS, PLACES, data_set, made_sample, samples, screen


class ColourModel(GroundingModel):
    """Points at the middle of the pixels of the colour that the instruction names."""

    module: Any = None
    settings = HeadSettings()
    prompt = "find {instruction}"

    def ground(self, image: Pixels, instruction: str, k: int) -> list[Region]:
        wanted = np.array(COLOURS[instruction.rpartition(" ")[2]])
        rows, columns = np.nonzero((image == wanted).all(-1))
        if not len(rows):
            return [Region((0.0, 0.0), 0.0, ())]
        height, width, _ = image.shape
        return [Region(((columns.mean() + 0.5) / width, (rows.mean() + 0.5) / height), 1.0, (0,))][:k]

    def loss(self, images: Sequence[Pixels], instructions: Sequence[str], boxes: Sequence[Box]) -> Tensor:
        raise NotImplementedError

    def warm_up(self) -> WarmUp:
        return WarmUp(())

    def shown_size(self, image: Pixels) -> tuple[int, int]:
        return 32, 42

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def test_a_report_counts_hits_by_group_and_names_prompt_and_sizes(tmp_path: Path) -> None:
    held = samples(tmp_path)
    found = ground_all(ColourModel(), held, clock=lambda: 0.0)
    report = accuracy_report(ColourModel(), found, checkpoint="made", data="here", k=3)

    assert [one.is_hit for one in found] == [True] * 3
    assert (report.rows[0].hits, report.rows[0].samples, report.rows[0].accuracy) == (3, 3, 1.0)
    assert report.rows[0].low < 0.5  # three hits prove little
    assert {(row.group, row.name) for row in report.rows} >= {
        ("kind", "box"), ("query", "colour"), ("type", "icon"), ("elements", "2 to 3"), ("size", "above 5 %"),
    }  # fmt: skip
    assert report.prompt == "find {instruction}"
    assert (report.screen_sizes_px, report.shown_sizes_px) == (("160x210",), ("32x42",))


def test_a_long_measurement_says_how_far_it_is(tmp_path: Path) -> None:
    lines: list[str] = []
    now_s = count(step=4.0)

    ground_all(ColourModel(), samples(tmp_path), clock=lambda: next(now_s), report=lines.append)

    assert lines == ["1 of 3 samples measured", "2 of 3 samples measured", "3 of 3 samples measured"]


def test_what_a_set_does_not_know_makes_no_group() -> None:
    rows = accuracy_rows([(made_sample(Box(0, 0, 5, 5)), True), (made_sample(Box(0, 0, 5, 5)), False)])

    assert [(row.group, row.name, row.hits) for row in rows] == [
        ("all", "all", 1), ("type", "text", 1), ("source", "made", 1), ("size", "0.1 to 1 %", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("area", "name"),
    [(9, "below 0.1 %"), (10, "0.1 to 1 %"), (99, "0.1 to 1 %"), (100, "1 to 5 %"), (500, "above 5 %")],
)
def test_a_group_of_sizes_ends_before_the_share_at_which_the_next_begins(area: int, name: str) -> None:
    whole, part = accuracy_rows([(made_sample(Box(0, 0, area / 10, 10)), True)])[0::3]

    assert (whole.name, part.group, part.name) == ("all", "size", name)


def test_groups_of_sizes_come_from_the_smallest() -> None:
    samples = [made_sample(Box(0, 0, area / 10, 10)) for area in (500, 9, 100, 10)]

    rows = accuracy_rows([(sample, True) for sample in samples])

    sizes = [row.name for row in rows if row.group == "size"]
    assert sizes == ["below 0.1 %", "0.1 to 1 %", "1 to 5 %", "above 5 %"]


@pytest.mark.parametrize(
    ("elements", "name"),
    [(1, "1"), (2, "2 to 3"), (3, "2 to 3"), (4, "4 to 6"), (6, "4 to 6"), (7, "7 and more")],
)
def test_a_group_of_screens_has_as_many_elements_as_its_name_says(elements: int, name: str) -> None:
    box = Box(0, 0, 5, 5)

    assert accuracy_rows([(made_sample(box, [box] * elements), True)])[-1].name == name


class SecondGuess(ColourModel):
    """Points at a corner first, and then as `ColourModel`."""

    def ground(self, image: Pixels, instruction: str, k: int) -> list[Region]:
        return [Region((0.0, 0.0), 1.0, ()), *super().ground(image, instruction, k)][:k]


@pytest.mark.parametrize(("k", "hits_of_k"), [(1, 0), (2, 3)])
def test_a_hit_of_the_second_region_counts_for_the_first_k_alone_and_a_query_has_its_own_time(
    tmp_path: Path, k: int, hits_of_k: int
) -> None:
    now_s = count(step=4.0)
    found = ground_all(SecondGuess(), samples(tmp_path), k=k, clock=lambda: next(now_s))
    report = accuracy_report(SecondGuess(), found, checkpoint="", data="", k=k)

    assert report.rows[0].hits == 0
    assert (report.hits_of_k.hits, report.hits_of_k.name) == (hits_of_k, f"any of {k}")
    assert (report.seconds_per_query, report.candidates_per_query) == (4.0, 0.0)


def test_the_verifiers_choice_takes_the_place_of_the_best_region(tmp_path: Path) -> None:
    asked: list[int] = []

    def choose_candidate(sample: Any, candidates: Any) -> Verified:
        asked.append(len(candidates))
        return Verified(0, 0.9, 4)

    found = ground_all(ColourModel(), samples(tmp_path), choose_candidate=choose_candidate)
    report = accuracy_report(ColourModel(), found, checkpoint="", data="", k=1, verifier="v")

    assert asked == [1, 1, 1]
    assert report.candidates_per_query == 4.0


def test_a_random_element_is_right_as_often_as_there_are_right_ones() -> None:
    elements = [Box(0, 0, 10, 10), Box(20, 0, 30, 10), Box(40, 0, 50, 10), Box(60, 0, 70, 10)]

    assert controls.random_element([made_sample(elements[0], elements), made_sample(Box(0, 0, 5, 5))]) == [
        0.25
    ]


def test_controls_without_the_right_picture_miss(tmp_path: Path) -> None:
    other = {"red": Box(100, 10, 110, 20), "green": Box(10, 10, 20, 20), "blue": Box(140, 190, 150, 200)}
    held = [samples(tmp_path)[0], samples(tmp_path, other)[0]]

    assert controls.text_only(ColourModel(), held) == [False, False]
    assert controls.shuffled_image(ColourModel(), held) == [False, False]
    assert controls.centre(held) == [False, False]


def test_a_crop_is_moved_inside_the_screen() -> None:
    assert crop_around(0.1, 0.95) == Box(0.0, 0.5, 0.5, 1.0)
    assert crop_around(0.5, 0.5, 0.25) == Box(0.375, 0.375, 0.625, 0.625)


def test_a_cut_says_which_whole_pixels_it_has() -> None:
    pixels, part = cut(np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3), Box(0.3, 0.3, 0.8, 0.8))

    assert pixels.shape[:2] == (3, 4)
    assert part == Box(2 / 7, 1 / 5, 6 / 7, 4 / 5)


def test_the_second_stage_points_at_the_whole_screen(tmp_path: Path) -> None:
    from io import BytesIO

    from PIL import Image

    image = np.array(Image.open(BytesIO(screen())).convert("RGB"))
    (region,) = ground_with_zoom(ColourModel(), image, "click what is blue", 1)

    x, y = PLACES["blue"].centre
    assert region.centre == pytest.approx((x / 160, y / 210), abs=0.01)


def test_a_screenshot_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    sample = read_screenspot(data_set(tmp_path))[0]
    sample.image.write_bytes(sample.image.read_bytes()[:200])

    with pytest.raises(GroundingDataError, match=r"images/.*\.png cannot be decoded"):
        pixels_of(sample.image)
