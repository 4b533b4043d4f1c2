"""Pages with elements and words drawn at random, in the style of MiniWoB++.

The pages of all tasks together show some 1,300 different texts, which a policy learns by heart. These pages
show tens of thousands of words, mostly made up, so that it learns letters
(docs/decisions/0042-letters-before-words.md).
"""

import asyncio
import html
import json
import random
import string
from collections.abc import Callable
from pathlib import Path

from dart.environments.browser.in_parallel import in_parallel
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.grounding.pages import DEADLINE_S, Page, page_shown, write_pages

DRAWN_ON = "miniwob/click-tab-2-medium"
"""The task on whose page elements are drawn: it has the style sheets of MiniWoB++ and of jQuery UI."""

SOURCE = "drawn"
"""What the samples of drawn pages have in place of a task id."""

PAGES_PER_RESET = 100
"""Number of pages that are drawn one after another, because loading a page takes longer than drawing one."""

MOST_ELEMENTS = 9
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"

FREQUENT_WORDS = """
the of and to in is you that it he was for on are as with his they at be this have from or one had
by word but not what all were we when your can said there use an each which she do how their if will
up other about out many then them these so some her would make like him into time has look two more
write go see number no way could people my than first water been call who oil its now find long down
day did get come made may part over new sound take only little work know place year live me back
give most very after thing our just name good sentence man think say great where help through much
before line right too mean old any same tell boy follow came want show also around form three small
set put end does another well large must big even such because turn here why ask went men read need
land different home us move try kind hand picture again change off play spell air away animal house
point page letter mother answer found study still learn should world send open save delete edit copy
search filter reply forward upload share account settings profile checkout cart order price total
amount date month week today monday friday january march april north south east west left top bottom
start stop pause contact terms less next true false agree accept apply reset clear done finish music
video photo file folder report chart table list menu option item
"""
"""Frequent English words, and words of programs."""

COLOURS = (
    *("red", "green", "blue", "yellow", "orange", "purple", "pink", "cyan", "magenta", "lime"),
    *("black", "grey", "white", "brown"),
)

FONT_SIZES_PX = (10, 10, 10, 10, 10, 9, 11, 12, 13)


def drawn_word(draw: random.Random) -> str:
    """Return a frequent word, one of drawn syllables, drawn letters and digits, or a number."""
    [kind] = draw.choices((_frequent, _syllables, _code, _number), (35, 40, 13, 12))
    word = kind(draw)
    [case] = draw.choices((str, str.capitalize, str.upper), (60, 28, 12))
    return case(word)


def _frequent(draw: random.Random) -> str:
    return draw.choice(FREQUENT_WORDS.split())


def _syllables(draw: random.Random) -> str:
    def syllable() -> str:
        begin = draw.choice(CONSONANTS) if draw.random() < 0.85 else ""
        end = draw.choice(CONSONANTS) if draw.random() < 0.45 else ""
        return begin + draw.choice(VOWELS) + end

    return "".join(syllable() for _ in range(draw.choice((1, 2, 2, 2, 3, 3, 4))))


def _code(draw: random.Random) -> str:
    return "".join(draw.choices(string.ascii_letters + string.digits, k=draw.randint(1, 6)))


def _number(draw: random.Random) -> str:
    if draw.random() < 0.5:
        return f"#{draw.randint(1, 30)}"
    return str(draw.randint(0, 10 ** draw.choice((1, 1, 2, 3, 4))))


def _text(draw: random.Random) -> str:
    return " ".join(drawn_word(draw) for _ in range(draw.choice((1, 1, 1, 2, 2, 3))))


# ---- elements, as HTML ----


def _button(draw: random.Random) -> str:
    style = draw.choice(("", "ui-button ui-widget ui-corner-all"))
    return f'<button class="{style}">{html.escape(_text(draw))}</button>{_after(draw)}'


def _links(draw: random.Random) -> str:
    def word() -> str:
        written = html.escape(drawn_word(draw))
        if draw.random() < 0.65:
            return written
        return f'<span class="alink" style="color:#00e;text-decoration:underline">{written}</span>'

    return " ".join(word() for _ in range(draw.randint(2, 9))) + _after(draw)


def _choice(draw: random.Random) -> str:
    kind = draw.choice(("radio", "checkbox"))
    return f'<label><input type="{kind}" name="choice">{html.escape(_text(draw))}</label><br>'


def _line(draw: random.Random) -> str:
    return f"<div>{html.escape(_text(draw))}</div>"


def _field(draw: random.Random) -> str:
    return f'<input type="text" style="width:{draw.randint(40, 150)}px"><br>'


def _area(draw: random.Random) -> str:
    return f"<textarea>{html.escape(_text(draw))}</textarea><br>"


def _list(draw: random.Random) -> str:
    return f"<select><option>{html.escape(drawn_word(draw))}</option></select>{_after(draw)}"


def _tabs(draw: random.Random) -> str:
    def tab(number: int) -> str:
        active = "ui-tabs-active ui-state-active" if number == 0 else ""
        return (
            f'<li class="ui-tabs-tab ui-corner-top ui-state-default ui-tab {active}">'
            f'<a class="ui-tabs-anchor" style="{padding}">{html.escape(drawn_word(draw))}</a></li>'
        )

    padding = draw.choice(("", "padding:.3em .5em"))
    tabs = "".join(map(tab, range(draw.randint(2, 3))))
    bar = "ui-tabs-nav ui-corner-all ui-helper-reset ui-helper-clearfix ui-widget-header"
    return (
        f'<div class="ui-tabs ui-corner-all ui-widget ui-widget-content"><ul class="{bar}">{tabs}</ul></div>'
    )


def _section(draw: random.Random) -> str:
    style = "ui-accordion-header ui-corner-all ui-state-default ui-accordion-icons"
    icon = '<span class="ui-accordion-header-icon ui-icon ui-icon-triangle-1-e"></span>'
    return f'<h3 class="{style}">{icon}{html.escape(drawn_word(draw))}</h3>'


def _coloured(draw: random.Random) -> str:
    width, height, colour = draw.randint(12, 40), draw.randint(12, 40), draw.choice(COLOURS)
    size = f"width:{width}px;height:{height}px"
    return f'<div class="color" style="display:inline-block;{size};background:{colour}"></div> '


def _after(draw: random.Random) -> str:
    return draw.choice(("<br>", " "))


ELEMENTS: dict[Callable[[random.Random], str], int] = {
    _button: 32,
    _links: 15,
    _choice: 18,
    _line: 8,
    _field: 6,
    _tabs: 6,
    _section: 4,
    _area: 4,
    _list: 3,
    _coloured: 4,
}
"""Kinds of elements, and how often each is drawn."""


def drawn_page(draw: random.Random) -> tuple[str, str]:
    """Return the HTML of a page's elements, and the words in place of its instruction.

    Four pages of ten have elements of one kind only.
    """
    kinds, weights = list(ELEMENTS), list(ELEMENTS.values())
    count = draw.randint(3, MOST_ELEMENTS)
    drawn = draw.choices(kinds, weights, k=count if draw.random() < 0.6 else 1)
    elements = "".join(kind(draw) for kind in (drawn if len(drawn) == count else drawn * count))
    left, top = draw.choice((0, 0, 0, draw.randint(0, 25))), draw.choice((0, 0, draw.randint(0, 30)))
    style = f"font-size:{draw.choice(FONT_SIZES_PX)}px;margin:{top}px 0 0 {left}px"
    instruction = " ".join(drawn_word(draw) for _ in range(draw.randint(0, MOST_ELEMENTS)))
    return f'<div style="{style}">{elements}</div>', html.escape(instruction)


async def load_drawn_pages(environment: MiniWobEnvironment, task_id: str, first: int) -> list[Page]:
    """Draw the pages of PAGES_PER_RESET seeds over the page of a task, and read them.

    Raises EnvironmentFault.
    """
    await environment.reset(task_id, first, deadline_s=DEADLINE_S)
    return [await _drawn(environment, seed) for seed in range(first, first + PAGES_PER_RESET)]


async def _drawn(environment: MiniWobEnvironment, seed: int) -> Page:
    elements, instruction = drawn_page(random.Random(seed))
    await environment.inspect(
        f"document.querySelector('#query').innerHTML = {json.dumps(instruction)};"
        f"document.querySelector('#area').innerHTML = {json.dumps(elements)}"
    )
    return await page_shown(environment, await environment.observe(deadline_s=DEADLINE_S), SOURCE, seed)


def collect_drawn_pages(pages: int, folder: Path, browsers: int) -> int:
    """Write the samples and words of drawn pages to a folder. Returns the number of samples.

    The number of pages is rounded up to a multiple of PAGES_PER_RESET.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_collected(pages, folder, browsers))


async def _collected(count: int, folder: Path, browsers: int) -> int:
    wanted = [(DRAWN_ON, first) for first in range(0, count, PAGES_PER_RESET)]
    drawn = in_parallel(MiniWobEnvironment, load_drawn_pages, wanted, browsers)
    return await write_pages((page async for some in drawn for page in some), folder)
