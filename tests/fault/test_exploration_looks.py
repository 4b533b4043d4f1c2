"""What the script `look.js` returns of pages of a real browser whose texts or elements are odd."""

import json
from pathlib import Path
from typing import Any

import pytest

from dart.environments.browser.cdp import Browser
from dart.environments.browser.environment import CHROMIUM
from dart.exploration.page_look import LOOK, checked_look

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="not installed: chromium-headless-shell"),
]

TEXT = "a" + "\U0001f600" * 70
"""A text of which 60 UTF-16 units end within a character."""

PAGE = "<img name=title><button role='{role}'>{text}</button><button value='{text}'>\ud83d</button>"
"""A page whose property `document.title` is an element."""


DRAWN = (
    "<svg width=40 height=40 tabindex=0><rect width=30 height=30></rect></svg>"
    "<math onclick=''><mi>x</mi></math>"
)
"""A page with elements that can be clicked and lack properties of HTML elements."""


async def looked(tmp_path: Path, html: str) -> Any:
    """What the script returns of a page with this body."""
    browser = await Browser.launch(CHROMIUM, tmp_path)
    try:
        page = await browser.open_page()
        await page.evaluate(f"document.body.innerHTML = {json.dumps(html)}")
        return await page.evaluate(LOOK)
    finally:
        await browser.close()


async def test_texts_of_a_look_have_60_whole_characters_at_most(tmp_path: Path) -> None:
    look = await looked(tmp_path, PAGE.format(role="r" * 70_000, text=TEXT))
    one, other = look["elements"]
    assert (one["text"], one["role"]) == (TEXT[:60], "r" * 60)
    assert other["text"] == "\N{REPLACEMENT CHARACTER}"
    assert "\U0001f600" * 59 in look["nodes"][-1][-1], "the value"
    assert look["title"] == "[object HTMLImageElement]"


async def test_drawings_and_formulas_that_can_be_clicked_are_described_in_full(tmp_path: Path) -> None:
    look = checked_look(await looked(tmp_path, DRAWN))
    assert [(one["role"], one["acts"], one["is_field"]) for one in look["elements"]] == [
        ("svg", True, False),
        ("math", True, False),
    ]
