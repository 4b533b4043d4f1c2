"""Drawn pages: the same seed draws the same page, and a browser shows what is written on it."""

import json
import random
import re
from pathlib import Path

import pytest

from dart.core.screenspot import read_screenspot
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.grounding.pages import page_shown
from dart.grounding.words import read_words
from dart.imitation import drawn_pages
from dart.imitation.drawn_pages import ELEMENTS, collect_drawn_pages, drawn_page, drawn_word
from dart.imitation.pretrain import UNSEEN_TASKS


def test_the_same_seed_draws_the_same_page_and_another_seed_another_one() -> None:
    pages = [drawn_page(random.Random(seed)) for seed in (1, 1, 2)]

    assert pages[0] == pages[1] != pages[2]


def test_most_words_are_of_letters_in_both_cases_and_hardly_one_is_drawn_often() -> None:
    draw = random.Random(0)
    words = [drawn_word(draw) for _ in range(5000)]

    assert len(set(words)) > 2500
    assert any(word.startswith("#") for word in words)
    assert any(word.isdecimal() for word in words)
    assert all(re.fullmatch(r"[A-Za-z0-9#]+", word) for word in words)


def test_every_kind_of_element_is_drawn() -> None:
    draw = random.Random(0)
    pages = "".join(drawn_page(draw)[0] for _ in range(300))

    assert all(kind(random.Random(0)).split(" ")[0].split(">")[0] in pages for kind in ELEMENTS)


def test_pages_are_drawn_over_a_task_that_the_second_set_does_not_have() -> None:
    assert drawn_pages.DRAWN_ON not in UNSEEN_TASKS


@pytest.mark.browser
def test_a_browser_shows_the_words_of_drawn_pages_and_names_their_elements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_pages, "PAGES_PER_RESET", 3)

    count = collect_drawn_pages(5, tmp_path, browsers=1)

    samples, words = read_screenspot(tmp_path), read_words(tmp_path)
    assert len(samples) == count > 6
    assert {sample.source for sample in samples} == {"drawn"}
    assert {sample.provenance["seed"] for sample in samples} <= set(range(6))
    assert {sample.image.name for sample in samples} == set(words)
    for seed in {sample.provenance["seed"] for sample in samples}:
        name = next(sample.image.name for sample in samples if sample.provenance["seed"] == seed)
        written = " ".join(drawn_page(random.Random(seed)))
        assert words[name]
        assert all(word.text in written for word in words[name])
        assert all(len(word.ends) == len(word.text) for word in words[name])


PAGE = """
<p>Go <b style="visibility:hidden">hidden</b> \U0001f600ok
<span style="display:inline-block;width:1em">in two</span></p>
<p style="position:absolute;top:300px">below</p>
<p style="position:relative">under<i style="position:absolute;inset:0;background:red"></i></p>
<p style="width:9px;word-break:break-all">broken</p><input value="typed">
"""


@pytest.mark.browser
async def test_words_of_a_page_are_those_that_are_seen_whole_character_by_character(tmp_path: Path) -> None:
    environment = MiniWobEnvironment(tmp_path)
    try:
        await environment.reset(drawn_pages.DRAWN_ON, 0, deadline_s=60)
        await environment.inspect(f"document.body.innerHTML = {json.dumps(PAGE)}")
        page = await page_shown(environment, await environment.observe(deadline_s=60), "a", 0)
    finally:
        await environment.close()

    assert [word.text for word in page.words] == ["Go", "\U0001f600ok", "in", "two"]
    for word in page.words:
        inside = [word.box.left, *word.ends]
        assert inside == sorted(inside), word
        assert len(word.ends) == len(word.text)
        middles = [(begin + end) / 2 for begin, end in zip(inside, word.ends, strict=False)]
        assert "".join(map(word.character_at, middles)) == word.text
