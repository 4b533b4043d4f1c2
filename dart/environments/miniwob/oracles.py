"""Oracles: scripted solvers of MiniWoB++ tasks, for demonstrations and for tests of the environment.

An oracle reads the page's elements to find its targets, but it acts only as a policy can: one `Action` in
each step, at whole pixels or with keys. An episode of an oracle is therefore training data for a policy: an
action for each (screenshot, instruction, previous actions). An oracle is an async generator of actions. Each
action is applied before the generator is resumed. When the page ends the episode, the generator is dropped.
"""

import re
from collections.abc import AsyncIterator, Callable

from dart.core.actions import Action, Drag, Hotkey, Scroll, Type
from dart.environments.browser.dom_queries import click, extract, find
from dart.environments.miniwob.environment import MiniWobEnvironment

Oracle = Callable[[MiniWobEnvironment, str], AsyncIterator[Action]]
"""Async generator of actions for a page and its instruction; resumed after each action was applied."""


def one_click(selector: str, text: str | None = None, *, name: str = "") -> Oracle:
    """Return an oracle that clicks one element.

    name   regular expression; the instruction's match of its first group replaces {} in selector and text
    """

    async def oracle(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
        found = extract(name, instruction) if name else ""
        yield await click(page, selector.replace("{}", found), text and text.replace("{}", found))

    return oracle


def form(*fields: tuple[str, str]) -> Oracle:
    """Return an oracle that fills in a form and submits it.

    A field is a pair: a CSS selector, and a regular expression whose first group is the text to type, as it
    is found in the instruction.
    """

    def oracle(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
        return filled_in(page, *((selector, extract(text, instruction)) for selector, text in fields))

    return oracle


async def filled_in(page: MiniWobEnvironment, *fields: tuple[str, str]) -> AsyncIterator[Action]:
    """Yield the actions that fill in a form and submit it; a field is a pair of its selector and its text."""
    for selector, text in fields:
        yield await click(page, selector)
        yield Type(text)
    yield await click(page, "#subbtn")


QUOTED = r'"(.*?)"'

ORACLES: dict[str, Oracle] = {
    "miniwob/click-test": one_click("#subbtn"),
    "miniwob/click-test-2": one_click("button", "ONE"),
    "miniwob/click-test-transfer": one_click("button", "ONE"),
    "miniwob/click-button": one_click("button", "{}", name=QUOTED),
    "miniwob/unicode-test": one_click("#area button, #area span, #area input", "{}", name=QUOTED),
    "miniwob/click-link": one_click(".alink", "{}", name=QUOTED),
    "miniwob/click-color": one_click("[data-color={}]", name=r"the (\w+) colored"),
    "miniwob/click-widget": one_click('[data-type="{}"]', name=QUOTED),
    "miniwob/focus-text": one_click("#area input"),
    "miniwob/focus-text-2": one_click("#tt{}", name=r"the (\d)"),
    "miniwob/click-dialog": one_click(".ui-dialog-titlebar button"),
    "miniwob/click-tab": one_click("#area ul a", "{}", name=r"(Tab #\d)"),
    "miniwob/grid-coordinate": one_click('[id="{}"]', name=r"(\(.*\))"),
    "miniwob/enter-text": form(("#tt", QUOTED)),
    "miniwob/enter-text-dynamic": form(("#tt", QUOTED)),
    "miniwob/enter-password": form(("#password", QUOTED), ("#verify", QUOTED)),
    "miniwob/login-user": form(("#username", QUOTED), ("#password", r'password "(.*?)"')),
}
"""The oracle of each task, by task id."""


def solves(*pages: str) -> Callable[[Oracle], Oracle]:
    def register(oracle: Oracle) -> Oracle:
        ORACLES.update({f"miniwob/{page}": oracle for page in pages})
        return oracle

    return register


@solves("click-button-sequence")
async def one_then_two(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    for name in ("ONE", "TWO"):
        yield await click(page, "button", name)


@solves("click-dialog-2")
async def dialog_button(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    name = extract(QUOTED, instruction)
    if name == "x":
        yield await click(page, ".ui-dialog-titlebar button")
    else:
        yield await click(page, ".ui-dialog-buttonset button", name)


@solves("click-tab-2-easy", "click-tab-2-medium", "click-tab-2-hard", "click-tab-2")
async def link_behind_tab(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    wanted = extract(QUOTED, instruction)
    for number in range(2, 8):
        target = await find(page, "#area .alink", wanted)
        if target is not None:
            yield target
            return
        yield await click(page, f"#area li:nth-child({number}) a")


@solves("identify-shape")
async def shape_name(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    tag, text = await page.inspect(
        "(e => [e.tagName, e.textContent])(document.querySelector('#area_svg > *'))"
    )
    kinds = {"circle": "Circle", "rect": "Rectangle", "text": "Number" if text.isdigit() else "Letter"}
    yield await click(page, "#area button", kinds.get(tag, "Triangle"))


@solves("click-option", "click-checkboxes", "click-checkboxes-transfer")
async def checkboxes(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    wanted = extract(r"Select (.*) and click", instruction)
    for name in [] if wanted == "nothing" else wanted.split(", "):
        yield await click(page, "#boxes label", name)
    yield await click(page, "#subbtn")


@solves("enter-text-2")
def enter_text_in_case(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    text = extract(QUOTED, instruction)
    return filled_in(page, ("#tt", text.upper() if "upper" in instruction else text.lower()))


@solves("text-transform")
async def captcha(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    letters = await page.inspect("document.querySelector('#captcha').innerText")
    yield await click(page, "#tt")
    yield Type("".join(letters.split()))
    yield await click(page, "#subbtn")


@solves("simple-arithmetic")
async def arithmetic(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    problem = await page.inspect("document.querySelector('#math-problem').innerText")
    left, sign, right = re.findall(r"-?\d+|[-+x]", problem)[:3]
    a, b = int(left), int(right)
    yield await click(page, "#math-answer")
    yield Type(str({"+": a + b, "-": a - b, "x": a * b}[sign]))
    yield await click(page, "#subbtn")


@solves("use-spinner")
async def spinner(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    number = int(extract(r"Select (-?\d+)", instruction))
    for _ in range(abs(number)):
        yield await click(page, ".ui-spinner-up" if number > 0 else ".ui-spinner-down")
    yield await click(page, "#subbtn")


@solves("choose-list")
async def choose_from_list(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    yield await click(page, "#options")
    yield Type(extract(r"Select (.*) from", instruction) + "\n")
    yield await click(page, "#area button")


@solves("copy-paste")
async def copy_paste(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    yield await click(page, "#to-copy")
    yield Hotkey(("ctrl", "a"))
    yield Hotkey(("ctrl", "c"))
    yield await click(page, "#answer-input")
    yield Hotkey(("ctrl", "v"))
    yield await click(page, "#subbtn")


@solves("drag-box")
async def drag_small_into_large(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    small, large = await click(page, "#draggableSmall"), await click(page, "#draggableLarge")
    yield Drag(small.x, small.y, large.x, large.y)
    yield await click(page, "#subbtn")


@solves("scroll-text-2")
async def scroll_to_end(page: MiniWobEnvironment, instruction: str) -> AsyncIterator[Action]:
    direction = "up" if "top" in instruction else "down"
    area = await click(page, "#text-area")
    position = "document.querySelector('#text-area').scrollTop"
    before = None
    while before != (now := await page.inspect(position)):
        before = now
        yield Scroll(area.x, area.y, direction)
    yield await click(page, "#subbtn")
