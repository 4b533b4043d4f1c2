"""Which pages are read for a data set, and what a page becomes in it. No browser."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from dart.core.boxes import Box
from dart.core.seeds import HELD_OUT_SEEDS, TRAINING_SEEDS
from dart.grounding import pages
from dart.grounding.pages import Page, Split, collect_pages, samples_of
from dart.grounding.queries import LabelledElement
from tests.pictures import png


@pytest.mark.parametrize(("split", "seeds"), [("train", TRAINING_SEEDS), ("held-out", HELD_OUT_SEEDS)])
def test_pages_are_divided_evenly_among_tasks_and_have_seeds_of_their_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: Split, seeds: range
) -> None:
    asked: list[tuple[str, int]] = []

    async def collected(wanted: Sequence[tuple[str, int]], *_: object) -> int:
        asked.extend(wanted)
        return 0

    monkeypatch.setattr(pages, "_collected", collected)
    collect_pages(("a", "b"), 3, split, tmp_path / "out")

    assert asked == [("a", seeds[0]), ("b", seeds[0]), ("a", seeds[1])]


def element(kind: str, box: Box, *, shows_text: bool = False) -> LabelledElement:
    return LabelledElement(box=box, kind=kind, text=kind, shows_text=shows_text)


def test_the_samples_of_a_page_name_its_elements_and_whether_they_show_their_words(tmp_path: Path) -> None:
    button = element("button", Box(10, 10, 60, 30), shows_text=True)
    checkbox = element("checkbox", Box(10, 50, 20, 60))
    page = Page("miniwob/some", 7, png(160, 210), (160, 210), (button, checkbox))

    found = {one.instruction: one for one in samples_of(page, tmp_path)}

    assert found.keys() == {
        "click the button",
        'click "button"',
        "click the checkbox",
        'click "checkbox"',
    }
    box, of_button = found["click the checkbox"], found['click "button"']
    assert (box.box, box.element_type, box.kind, box.query) == (checkbox.box, "icon", "checkbox", "kind")
    assert (of_button.box, of_button.element_type, of_button.query) == (button.box, "text", "text")
    assert (box.source, box.provenance) == ("miniwob/some", {"task_id": "miniwob/some", "seed": 7})
    assert (box.width_px, box.height_px, box.elements) == (160, 210, (button.box, checkbox.box))


def test_a_page_on_which_nothing_can_be_named_makes_no_sample_and_no_file(tmp_path: Path) -> None:
    page = Page("miniwob/some", 7, png(160, 210), (160, 210), ())

    assert (samples_of(page, tmp_path), list(tmp_path.iterdir())) == ([], [])
