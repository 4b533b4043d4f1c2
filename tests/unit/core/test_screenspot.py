"""ScreenSpot's format: the published layouts, ours, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import EpsImagePlugin, Image

from dart.core.boxes import Box
from dart.core.screenspot import (
    GroundingDataError,
    GroundingSample,
    read_screenspot,
    save_image,
    write_screenspot,
)
from tests.pictures import png
from tests.unit.environments.huge_pictures import HUGE_BMP

V2 = {
    "img_filename": "one.png",
    "bbox": [10, 20, 30, 40],
    "instruction": "close this window",
    "data_type": "icon",
    "data_source": "windows",
}

PRO = {
    "img_filename": "vscode_mac/two.png",
    "bbox": [10, 20, 40, 60],
    "img_size": [100, 80],
    "instruction": "run the file",
    "instruction_cn": "…",
    "id": "vscode_macos_0",
    "application": "vscode",
    "platform": "macos",
    "ui_type": "text",
    "group": "Dev",
}


def data_set(folder: Path, entries: Any, images: str = "images", name: str = "one.png") -> Path:
    file = folder / "screenspot_web_v2.json"
    file.write_text(json.dumps(entries))
    image = folder / images / name
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_bytes(png(100, 80))
    return file


@pytest.mark.parametrize("images", ["images", "screenspot_imgs", "screenspotv2_image", "."])
def test_boxes_of_screenspot_and_v2_are_x_y_width_and_height(tmp_path: Path, images: str) -> None:
    (sample,) = read_screenspot(data_set(tmp_path, [V2], images))

    assert sample.box == Box(10, 20, 40, 60)
    assert (sample.element_type, sample.source) == ("icon", "windows")
    assert (sample.width_px, sample.height_px) == (100, 80)


def test_boxes_of_screenspot_pro_are_corners(tmp_path: Path) -> None:
    folder = tmp_path / "annotations"
    folder.mkdir()
    (folder / "vscode_macos.json").write_text(json.dumps([PRO]))
    image = tmp_path / "images" / "vscode_mac" / "two.png"
    image.parent.mkdir(parents=True)
    image.write_bytes(png(100, 80))

    (sample,) = read_screenspot(tmp_path)

    assert sample.box == Box(10, 20, 40, 60)
    assert (sample.element_type, sample.source) == ("text", "vscode")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    written = GroundingSample(
        image=save_image(tmp_path, png(160, 210)),
        width_px=160,
        height_px=210,
        instruction='click the "OK" button',
        box=Box(1.5, 2, 30, 40),
        element_type="text",
        source="miniwob/click-button",
        kind="button",
        query="text",
        elements=(Box(1.5, 2, 30, 40), Box(50, 2, 70, 40)),
        provenance={"seed": 7},
    )

    assert write_screenspot(tmp_path, [written]) == 1
    assert read_screenspot(tmp_path) == [written]


def test_the_same_screenshot_is_written_once(tmp_path: Path) -> None:
    assert save_image(tmp_path, png(9, 9)) == save_image(tmp_path, png(9, 9))
    assert len(list((tmp_path / "images").iterdir())) == 1


def test_a_box_that_is_a_pixel_too_large_is_cut(tmp_path: Path) -> None:
    (sample,) = read_screenspot(data_set(tmp_path, [{**V2, "bbox": [-0.5, 20, 101, 60.5]}]))

    assert sample.box == Box(0, 20, 100, 80)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([], "no samples"),
        ({"bbox": []}, "expected a list of objects"),
        ([{**V2, "bbox": [90, 20, 30, 40]}], r"entry 0: the box \(90, 20, 120, 60\) lies outside .*100x80"),
        ([{**V2, "bbox": [-1, -1, -1, -1]}], "entry 0: expected a box with left < right"),
        ([V2, {**V2, "bbox": [1, 2, 3]}], "entry 1: expected a bbox of four numbers"),
        ([{**V2, "img_filename": "gone.png"}], "entry 0: the screenshot 'gone.png' is missing: searched in"),
        ([{**V2, "img_filename": "../screenspot_web_v2.json"}], "is missing"),
        ([{**V2, "data_type": "?"}], "text or icon"),
        ([{**V2, "instruction": ""}], "expected a text under 'instruction'"),
        ([{**V2, "img_size": [50, 50]}], "img_size says"),
        ([{**V2, "img_size": 160}], "img_size says 160"),
        ([{**V2, "elements": 3}], "entry 0: expected elements to be a list of lists of four numbers"),
        ([V2, {**V2, "elements": [[1, 2, 3]]}], "entry 1: expected elements"),
        ([{**V2, "elements": [[1, 2, 0, 9]]}], "entry 0: in elements, .* correct or remove it"),
        ([{**V2, "elements": [[90, 2, 40, 9]]}], "entry 0: in elements, .* lies outside"),
        (
            [V2, {**V2, "provenance": "shop"}],
            "entry 1: expected provenance to be an object, got 'shop'; correct or remove it",
        ),
        ([{**V2, "provenance": None}], "entry 0: expected provenance to be an object, got None"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_entry(tmp_path: Path, entries: Any, problem: str) -> None:
    with pytest.raises(GroundingDataError, match=problem):
        read_screenspot(data_set(tmp_path, entries))


def test_a_screenshot_that_is_no_image_is_refused(tmp_path: Path) -> None:
    file = data_set(tmp_path, [V2])
    (tmp_path / "images" / "one.png").write_text("not found")

    with pytest.raises(GroundingDataError, match=r"entry 0: the screenshot .*one.png cannot be read"):
        read_screenspot(file)


def test_a_screenshot_that_is_cut_off_is_refused_before_anything_is_trained_on(tmp_path: Path) -> None:
    file = data_set(tmp_path, [V2])
    image = tmp_path / "images" / "one.png"
    image.write_bytes(image.read_bytes()[:-20])

    with pytest.raises(GroundingDataError, match=r"entry 0: the screenshot .*one.png cannot be read"):
        read_screenspot(file)


def test_a_screenshot_of_another_format_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    file = data_set(tmp_path, [V2])
    (tmp_path / "images" / "one.png").write_bytes(HUGE_BMP)

    with pytest.raises(GroundingDataError, match=r"entry 0: the screenshot .*one.png cannot be read"):
        read_screenspot(file)


def test_no_program_is_started_for_a_screenshot_of_a_format_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", "gs")
    monkeypatch.setenv("PATH", str(tmp_path))
    ghostscript, started = tmp_path / "gs", tmp_path / "started"
    ghostscript.write_text(f"#!/bin/sh\n/usr/bin/touch {started}\n")
    ghostscript.chmod(0o755)
    file = data_set(tmp_path, [V2])
    Image.new("RGB", (100, 80)).save(tmp_path / "images" / "one.png", "EPS")

    with pytest.raises(GroundingDataError, match=r"entry 0: the screenshot .*one.png cannot be read"):
        read_screenspot(file)
    assert not started.exists()


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_folder_without_annotations_is_refused_with_what_was_expected(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(GroundingDataError, match="has no annotations: expected"):
        read_screenspot(tmp_path / name)


@pytest.mark.parametrize("text", ["<html>", "[" * 10_000], ids=["html", "deeply nested"])
def test_annotations_that_are_not_json_are_refused(tmp_path: Path, text: str) -> None:
    file = data_set(tmp_path, [V2])
    file.write_text(text)

    with pytest.raises(GroundingDataError, match="cannot be read as JSON"):
        read_screenspot(file)


def test_nothing_is_written_when_a_box_lies_outside(tmp_path: Path) -> None:
    image = save_image(tmp_path, png(10, 10))
    sample = GroundingSample(
        image=image, width_px=10, height_px=10, instruction="x", box=Box(5, 5, 15, 8),
        element_type="icon", source="",
    )  # fmt: skip

    with pytest.raises(GroundingDataError, match=r"sample 0 \('x'\).*outside"):
        write_screenspot(tmp_path, [sample])
    assert not (tmp_path / "annotations.json").exists()
