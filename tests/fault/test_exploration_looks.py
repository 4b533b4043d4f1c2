"""What the script `look.js` returns of pages of a real browser whose texts are odd."""

import json
from pathlib import Path

import pytest

from dart.environments.browser.cdp import Browser
from dart.environments.browser.environment import CHROMIUM
from dart.exploration.page_look import LOOK

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="not installed: chromium-headless-shell"),
]

TEXT = "a" + "\U0001f600" * 70
"""A text of which 60 UTF-16 units end within a character."""

PAGE = "<img name=title><button role='{role}'>{text}</button><button value='{text}'>\ud83d</button>"
"""A page whose property `document.title` is an element."""


async def test_texts_of_a_look_have_60_whole_characters_at_most(tmp_path: Path) -> None:
    browser = await Browser.launch(CHROMIUM, tmp_path)
    try:
        page = await browser.open_page()
        html = json.dumps(PAGE.format(role="r" * 70_000, text=TEXT))
        await page.evaluate(f"document.body.innerHTML = {html}")
        look = await page.evaluate(LOOK)
    finally:
        await browser.close()
    one, other = look["elements"]
    assert (one["text"], one["role"]) == (TEXT[:60], "r" * 60)
    assert other["text"] == "\N{REPLACEMENT CHARACTER}"
    assert "\U0001f600" * 59 in look["nodes"][-1][-1], "the value"
    assert look["title"] == "[object HTMLImageElement]"
