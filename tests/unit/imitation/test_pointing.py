"""Steps from pages: each is a click on the middle of the element that its instruction names."""

import random
import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dart.config.bundled import bundled_folder
from dart.config.config import Config
from dart.core.actions import Click, parse_action
from dart.core.boxes import Box
from dart.core.screenspot import GroundingSample, save_image
from dart.imitation.drawn_pages import DRAWN_ON
from dart.imitation.pointing import instructions, pointing_steps
from dart.imitation.pretrain import OTHER_TASKS, UNSEEN_TASKS, laptop_base, laptop_base_that_reads
from dart.policy.codec import PromptCodec, load_pixels
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.tokenizer import train_tokenizer
from dart.policy.vocabulary import Coordinates
from tests.pictures import png

INSTRUCTIONS = ("click the checkbox", "click the second button")
KINDS, QUERIES = ("checkbox", "button"), ("kind", "order")
TOKENIZER = train_tokenizer(INSTRUCTIONS)
CODEC = PromptCodec(TOKENIZER, GuiPolicyConfig(vocab_size=TOKENIZER.get_vocab_size()).image_tokens)


def samples(folder: Path) -> list[GroundingSample]:
    image = save_image(folder, png(160, 210, (255, 0, 0)))
    boxes = (Box(10, 20, 31, 40), Box(100, 60, 160, 210))
    return [
        GroundingSample(
            image=image,
            width_px=160,
            height_px=210,
            instruction=instruction,
            box=box,
            element_type="icon",
            source="miniwob/click-shape",
            kind=kind,
            query=query,
        )
        for instruction, box, kind, query in zip(INSTRUCTIONS, boxes, KINDS, QUERIES, strict=True)
    ]


def test_the_answer_to_an_instruction_is_a_click_on_the_middle_of_its_element(tmp_path: Path) -> None:
    examples = pointing_steps(samples(tmp_path), CODEC)

    for kind, instruction in zip(KINDS, INSTRUCTIONS, strict=True):
        first = examples[kind][0]
        step, pixels = first.shown(CODEC, random.Random(0))
        assert step == first.step
        assert list(step.prompt_ids) == CODEC.encode_prompt(instruction, [])
        assert list(step.token_ids) == CODEC.encode_answer(step.answer, instruction)
        assert step.screenshot_sha256 == first.screen.sha256
        np.testing.assert_array_equal(pixels, load_pixels(png(160, 210, (255, 0, 0))))
        assert len({other.step.answer for other in examples[kind]}) == 1
    assert [examples[kind][0].step.answer for kind in KINDS] == [
        "click(start_box='(20,30)')",
        "click(start_box='(130,135)')",
    ]


def test_on_a_page_with_other_distances_the_answer_clicks_where_the_element_has_moved(tmp_path: Path) -> None:
    box = Box(100, 100, 120, 120)
    black = np.array(Image.new("RGB", (160, 210), "white"))
    black[100:120, 100:120] = 0
    picture = BytesIO()
    Image.fromarray(black).save(picture, "PNG")
    image = save_image(tmp_path, picture.getvalue())
    sample = replace(samples(tmp_path)[0], image=image, box=box, elements=(box,))
    (example,) = pointing_steps([sample], CODEC, moved=True)["checkbox"][:1]
    draw = random.Random(0)

    places = set()
    for _ in range(50):
        moved, pixels = example.shown(CODEC, draw)
        click = parse_action(CODEC.decode_action(moved.token_ids, sample.instruction))
        assert isinstance(click, Click)
        assert not pixels[click.y, click.x].any(), "the click is on the black element"
        assert moved.prompt_ids == example.step.prompt_ids
        places.add((click.x, click.y))
    assert len(places) > 20


def test_each_instruction_comes_with_others_that_mean_the_same_element(tmp_path: Path) -> None:
    checkbox, button = samples(tmp_path)
    field = replace(button, kind="text field", instruction="click the third text field")
    many = [
        text
        for number in range(200)
        for text in instructions(replace(field, image=Path(f"{number}.png")))
        if text != field.instruction
    ]

    assert next(instructions(checkbox)) == "click the checkbox"
    assert list(instructions(button)) == list(instructions(button)), "always the same"
    assert len(many) >= 200
    assert {"a textbox", "the 3rd input", "the third text box"} <= {
        text.split(maxsplit=1)[1] for text in many
    }
    wrong = [text for text in many if any(word in text for word in ("second", "2nd", "button", "radio"))]
    assert not wrong


@pytest.mark.parametrize("query", ["kind", "text", "colour"])
def test_other_words_never_change_what_an_instruction_names(tmp_path: Path, query: str) -> None:
    sample = replace(samples(tmp_path)[0], query=query, kind="checkbox")
    named = {"kind": "click the checkbox", "text": 'click "Yes"', "colour": "click what is red"}[query]
    essential = {"kind": ("checkbox", "check box"), "text": ("Yes",), "colour": ("what is red",)}[query]

    for number in range(100):
        for text in instructions(replace(sample, image=Path(f"{number}.png"), instruction=named)):
            assert any(word in text for word in essential), text


@pytest.mark.parametrize(
    ("coordinates", "folder"), [("bins", "base-policy"), ("pointer", "base-policy-pointer")]
)
def test_the_recipe_softens_each_base_policy_as_its_card_says(coordinates: Coordinates, folder: str) -> None:
    card = (bundled_folder() / folder / "README.md").read_text()
    recipe = laptop_base(coordinates)
    assert f"| pointer_temperature | {recipe.pointer_temperature} |" in card
    assert f"| coordinates | {coordinates} |" in card
    assert ("| moved_pages | True |" in card) == recipe.moved_pages


@pytest.mark.parametrize(
    ("coordinates", "folder"), [("bins", "base-policy"), ("pointer", "base-policy-pointer")]
)
def test_the_recipe_shows_each_base_policy_of_the_job_what_its_card_says(
    coordinates: Coordinates, folder: str
) -> None:
    card = (bundled_folder() / folder / "README.md").read_text()
    recipe = laptop_base(coordinates)
    emphasis = dict(recipe.emphasis)
    for task, episodes in recipe.episodes:
        if task in recipe.measured:
            assert re.search(rf"\b{episodes} successful episodes? of each of [^;]*`{task}`", card), task
            assert f"| emphasis on `{task}` | {emphasis[task]:g} |" in card


def test_the_base_policy_sees_no_page_of_a_task_that_is_measured_or_kept_apart() -> None:
    recipe = laptop_base()
    job = set(Config().tasks.train)

    assert not {*job, *UNSEEN_TASKS} & set(recipe.page_tasks)
    assert not {*job, *UNSEEN_TASKS} & set(OTHER_TASKS)
    assert not set(UNSEEN_TASKS) & {task for task, _ in recipe.episodes}
    assert recipe.measured == Config().tasks.train


def test_the_policy_that_reads_sees_nothing_of_the_second_set_either() -> None:
    base, reads = laptop_base(), laptop_base_that_reads()

    assert (reads.episodes, reads.page_tasks) == (base.episodes, base.page_tasks)
    assert 0 not in (reads.drawn_pages, reads.read_pages, reads.reading_updates)
    assert DRAWN_ON not in UNSEEN_TASKS


def test_steps_say_by_which_text_their_instruction_names_the_element_in_whatever_words(
    tmp_path: Path,
) -> None:
    kind, order = samples(tmp_path)
    text = replace(kind, instruction='click "Book now"', query="text")

    examples = pointing_steps([text, order], CODEC)

    assert {step.named for step in examples["checkbox"]} == {"Book now"}
    assert {step.named for step in examples["button"]} == {""}
