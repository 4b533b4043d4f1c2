"""What is asked of a policy about the words of a page, and that answering it reads words never seen."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont

from dart.core.boxes import Box
from dart.core.screenspot import GroundingSample
from dart.grounding.words import Word
from dart.imitation.reading import (
    CELL_PX,
    MOST_SHIFT_PX,
    PLACES_PX,
    Questions,
    ReadingHeads,
    ReadingPage,
    cells_of,
    is_near,
    number_of,
    reading_loss,
    reading_pages,
)
from dart.imitation.text_embeddings import TextEmbeddings
from dart.policy.codec import load_pixels
from dart.policy.modeling import GuiPolicyModel, Pointer
from dart.policy.tokenizer import train_tokenizer
from tests.pictures import png, png_of
from tests.tiny_small_policy import tiny_small_policy

WIDTH, HEIGHT = 160, 210
LETTERS = "abcdehilmnorstu"
EMBEDDINGS = TextEmbeddings(
    ["".join(random.Random(seed).choices(LETTERS, k=3 + seed % 4)) for seed in range(200)], 8
)
FONT = ImageFont.load_default(11)


def model_that_reads() -> GuiPolicyModel:
    sizes = {"stem_channels": (8, 16, 32, 8), "pointer_size": 16, "reading_channels": (24, 32, 8)}
    return tiny_small_policy(train_tokenizer([LETTERS]), **sizes)


@pytest.fixture
def white(tmp_path: Path) -> Path:
    image = tmp_path / "white.png"
    image.write_bytes(png(WIDTH, HEIGHT, (255, 255, 255)))
    return image


def written(texts: list[str], image: Path) -> ReadingPage:
    """A white page with words below one another, written to a file."""
    page = Image.new("RGB", (WIDTH, HEIGHT), "white")
    words = []
    for number, text in enumerate(texts):
        left, top = 12 + 9 * number, 12 + 18 * number
        ImageDraw.Draw(page).text((left, top), text, font=FONT, fill="black")
        ends = tuple(left + FONT.getlength(text[: place + 1]) for place in range(len(text)))
        words.append(Word(text, Box(left, top + 2, ends[-1], top + 12), ends))
    image.write_bytes(png_of(page))
    return ReadingPage(image, words, ())


def shift_of(seed: int) -> tuple[int, int]:
    """How far `Questions` shifts the first page, to the right and down."""
    draw = random.Random(seed)
    right, down = (draw.randint(-MOST_SHIFT_PX, MOST_SHIFT_PX) for _ in range(2))
    return right, down


def test_a_word_is_asked_for_at_the_cells_under_its_middle_line() -> None:
    assert cells_of(Box(16, 24, 40, 32)) == [(3, 2), (3, 3), (3, 4)]
    assert cells_of(Box(17, 29, 21, 39)) == [(4, 2)]


def test_each_place_of_a_cell_is_asked_for_the_character_there_however_the_page_is_shifted(
    white: Path,
) -> None:
    word = Word("aB", Box(32, 40, 56, 50), (44, 56))
    for seed in range(50):
        asked = Questions([ReadingPage(white, [word], ())], random.Random(seed)).characters
        right, down = shift_of(seed)
        assert [cell for cell, _ in asked] == [(0, *one) for one in cells_of(word.box.shifted(right, down))]
        for (_, _, column), characters in asked:
            places = [CELL_PX * column + place - right for place in PLACES_PX]
            names = ["a" if 32 <= x < 44 else "B" if 44 <= x < 56 else "" for x in places]
            assert characters == list(map(number_of, names))


def test_a_text_is_asked_for_near_its_middle_and_the_words_of_an_element_only_together(white: Path) -> None:
    far, first, second = (
        Word("far", Box(20, 100, 50, 110), (30, 40, 50)),
        Word("Tab", Box(32, 40, 56, 50), (40, 48, 56)),
        Word("2", Box(60, 40, 66, 50), (66,)),
    )
    element = Box(26, 36, 98, 54)
    page = ReadingPage(white, [far, first, second], [("Tab 2", element)])
    for seed in range(50):
        asked = Questions([page], random.Random(seed)).texts
        assert {text for _, text in asked} == {"far", "Tab 2"}
        for (_, _, column), text in asked:
            box = (element if text == "Tab 2" else far.box).shifted(*shift_of(seed))
            assert is_near(column, box)


def test_a_word_that_a_shift_cuts_is_not_asked_for(white: Path) -> None:
    page = ReadingPage(white, [Word("a", Box(0, 0, 8, 10), (8,))], ())
    for seed in range(40):
        asked = Questions([page], random.Random(seed))
        assert bool(asked.characters) == bool(asked.texts) == (min(shift_of(seed)) >= 0)


def test_a_page_is_shifted_as_what_is_asked_of_it(tmp_path: Path) -> None:
    page = written(["word"], tmp_path / "page.png")
    asked = Questions([page], random.Random(3))
    right, down = shift_of(3)
    expected = np.roll(load_pixels(page.image.read_bytes()), (down, right), (0, 1))
    np.testing.assert_array_equal(asked.pixels[0], expected)


def test_pages_without_words_cost_nothing_and_unknown_characters_are_not_asked_as_texts(white: Path) -> None:
    model = model_that_reads()
    unknown = ReadingPage(white, [Word("確定", Box(20, 20, 40, 30), (30, 40))], ())

    nothing = Questions([ReadingPage(white, [], ())], random.Random(0))

    assert reading_loss(model, ReadingHeads(model.config), nothing, EMBEDDINGS).item() == 0
    assert Questions([unknown], random.Random(0)).texts == []


def test_the_pages_of_a_data_set_have_its_words_and_the_elements_that_a_text_names(tmp_path: Path) -> None:
    word = Word("Ok", Box(10, 10, 30, 20), (20, 30))

    def sample(instruction: str, query: str) -> GroundingSample:
        return GroundingSample(
            image=tmp_path / "images" / "a.png",
            width_px=WIDTH,
            height_px=HEIGHT,
            instruction=instruction,
            box=Box(8, 8, 40, 24),
            element_type="text",
            source="miniwob/some",
            kind="button",
            query=query,
        )

    samples = [sample('click "Ok"', "text"), sample("click the button", "kind")]

    assert reading_pages({tmp_path: {"a.png": [word], "b.png": []}}, samples) == [
        ReadingPage(tmp_path / "images" / "a.png", [word], [("Ok", Box(8, 8, 40, 24))]),
        ReadingPage(tmp_path / "images" / "b.png", [], []),
    ]


@pytest.mark.slow
def test_a_stem_that_learned_letters_tells_words_that_it_never_saw(tmp_path: Path) -> None:
    model, draw = model_that_reads(), random.Random(0)
    heads = ReadingHeads(model.config)
    optimizer = torch.optim.AdamW([*model.parameters(), *heads.parameters()], lr=3e-3)

    def page(words: int) -> ReadingPage:
        texts = ["".join(draw.choices(LETTERS, k=draw.randint(3, 6))) for _ in range(words)]
        return written(texts, tmp_path / f"{draw.random()}.png")

    for _ in range(600):
        asked = Questions([page(10) for _ in range(4)], draw)
        optimizer.zero_grad()
        reading_loss(model, heads, asked, EMBEDDINGS).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    right = 0
    for _ in range(60):
        shown = page(5)
        with torch.inference_mode():
            pixels = torch.from_numpy(load_pixels(shown.image.read_bytes())).permute(2, 0, 1)
            _, eighth, _ = model.stem(pixels[None])
            assert isinstance(model.pointer, Pointer)
            said = model.pointer.read(eighth)[1][0].permute(1, 2, 0)
        likeness = F.cosine_similarity(said, torch.from_numpy(EMBEDDINGS.of(shown.words[0].text)), -1)
        near = [
            [likeness[cell].item() for cell in cells_of(word.box) if is_near(cell[1], word.box)]
            for word in shown.words
        ]
        right += max(range(5), key=lambda number: max(near[number])) == 0
    assert right >= 22, "chance finds twelve of sixty"
