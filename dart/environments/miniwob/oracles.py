"""Oracles: scripted solvers of MiniWoB++ tasks, for demonstrations and for tests of the environment.

An oracle reads the page's elements to find its targets, but acts only as a policy
can: one `Action` a step, whole pixels, keys. Its episodes therefore are pairs of (screenshot,
instruction, previous actions) and action. Each oracle is an async generator that yields its
moves and is resumed after each move; it stops when the page ends the episode.

``python -m dart.environments.miniwob.oracles --seeds 50`` prints how often each one succeeds.
"""

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence

from dart.core.actions import Click, Drag, Hotkey, Scroll, Type
from dart.core.seeds import training_seed
from dart.environments.miniwob.dom_queries import Move, QueriedPage, click, extract, find, quoted
from dart.environments.miniwob.oracle_runner import Oracle, OracleEpisode, play_all

ORACLES: dict[str, Oracle] = {}
"""By task id."""


def solves(*pages: str) -> Callable[[Oracle], Oracle]:
    def register(oracle: Oracle) -> Oracle:
        ORACLES.update({f"miniwob/{page}": oracle for page in pages})
        return oracle

    return register


@solves("click-test")
async def submit(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "#subbtn")


@solves("click-test-2", "click-test-transfer")
async def button_one(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "button", "ONE")


@solves("click-button")
async def named_button(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "button", quoted(instruction)[0])


@solves("click-button-sequence")
async def one_then_two(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    for name in ("ONE", "TWO"):
        yield await click(page, "button", name)


@solves("unicode-test")
async def unicode_button(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "#area button, #area span, #area input", quoted(instruction)[0])


@solves("click-link")
async def link(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, ".alink", quoted(instruction)[0])


@solves("click-color")
async def colored_box(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    color = extract(r"the (\w+) colored", instruction)
    yield await click(page, f"[data-color={color}]")


@solves("click-widget")
async def widget(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, f'[data-type="{quoted(instruction)[0]}"]')


@solves("focus-text")
async def text_field(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "#area input")


@solves("focus-text-2")
async def numbered_text_field(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    number = extract(r"the (\d)", instruction)
    yield await click(page, f"#tt{number}")


@solves("click-dialog")
async def close_dialog(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, ".ui-dialog-titlebar button")


@solves("click-dialog-2")
async def dialog_button(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    name = quoted(instruction)[0]
    if name == "x":
        yield await click(page, ".ui-dialog-titlebar button")
    else:
        yield await click(page, ".ui-dialog-buttonset button", name)


@solves("click-tab")
async def tab(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "#area ul a", extract(r"(Tab #\d)", instruction))


@solves("click-tab-2-easy", "click-tab-2-medium", "click-tab-2-hard", "click-tab-2")
async def link_behind_tab(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    wanted = quoted(instruction)[0]
    for number in range(2, 8):
        target = await find(page, "#area .alink", wanted)
        if target is not None:
            yield target
            return
        yield await click(page, f"#area li:nth-child({number}) a")


@solves("grid-coordinate")
async def grid_point(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    point = extract(r"(\(.*\))", instruction)
    yield await click(page, f'[id="{point}"]')


@solves("identify-shape")
async def shape_name(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    tag, text = await page.inspect(
        "(e => [e.tagName, e.textContent])(document.querySelector('#area_svg > *'))"
    )
    kinds = {"circle": "Circle", "rect": "Rectangle", "text": "Number" if text.isdigit() else "Letter"}
    yield await click(page, "#area button", kinds.get(tag, "Triangle"))


@solves("click-option")
async def option(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "#boxes label", extract(r"Select (.*) and click", instruction))
    yield await click(page, "#subbtn")


@solves("click-checkboxes", "click-checkboxes-transfer")
async def checkboxes(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    wanted = extract(r"Select (.*) and click", instruction)
    for name in [] if wanted == "nothing" else wanted.split(", "):
        yield await click(page, "#boxes label", name)
    yield await click(page, "#subbtn")


@solves("enter-text", "enter-text-dynamic")
async def enter_text(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "#tt")
    yield Move(Type(quoted(instruction)[0]))
    yield await click(page, "#subbtn")


@solves("enter-text-2")
async def enter_text_in_case(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    text = quoted(instruction)[0]
    yield await click(page, "#tt")
    yield Move(Type(text.upper() if "upper" in instruction else text.lower()))
    yield await click(page, "#subbtn")


@solves("text-transform")
async def captcha(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    letters = await page.inspect("document.querySelector('#captcha').innerText")
    yield await click(page, "#tt")
    yield Move(Type("".join(letters.split())))
    yield await click(page, "#subbtn")


@solves("enter-password")
async def password_twice(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    for field in ("#password", "#verify"):
        yield await click(page, field)
        yield Move(Type(quoted(instruction)[0]))
    yield await click(page, "#subbtn")


@solves("login-user")
async def login(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    for field, text in zip(("#username", "#password"), quoted(instruction), strict=True):
        yield await click(page, field)
        yield Move(Type(text))
    yield await click(page, "#subbtn")


@solves("simple-arithmetic")
async def arithmetic(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    problem = await page.inspect("document.querySelector('#math-problem').innerText")
    left, sign, right = re.findall(r"-?\d+|[-+x]", problem)[:3]
    a, b = int(left), int(right)
    yield await click(page, "#math-answer")
    yield Move(Type(str({"+": a + b, "-": a - b, "x": a * b}[sign])))
    yield await click(page, "#subbtn")


@solves("use-spinner")
async def spinner(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    number = int(extract(r"Select (-?\d+)", instruction))
    for _ in range(abs(number)):
        yield await click(page, ".ui-spinner-up" if number > 0 else ".ui-spinner-down")
    yield await click(page, "#subbtn")


@solves("choose-list")
async def choose_from_list(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "#options")
    yield Move(Type(extract(r"Select (.*) from", instruction) + "\n"))
    yield await click(page, "#area button")


@solves("copy-paste")
async def copy_paste(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    yield await click(page, "#to-copy")
    yield Move(Hotkey(("ctrl", "a")))
    yield Move(Hotkey(("ctrl", "c")))
    yield await click(page, "#answer-input")
    yield Move(Hotkey(("ctrl", "v")))
    yield await click(page, "#subbtn")


@solves("drag-box")
async def drag_small_into_large(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    small, large = await click(page, "#draggableSmall"), await click(page, "#draggableLarge")
    assert isinstance(small.action, Click)
    assert isinstance(large.action, Click)
    yield Move(Drag(small.action.x, small.action.y, large.action.x, large.action.y), small.target)
    yield await click(page, "#subbtn")


@solves("scroll-text-2")
async def scroll_to_end(page: QueriedPage, instruction: str) -> AsyncIterator[Move]:
    direction = "up" if "top" in instruction else "down"
    area = await click(page, "#text-area")
    assert isinstance(area.action, Click)
    position = "document.querySelector('#text-area').scrollTop"
    before = None
    while before != (now := await page.inspect(position)):
        before = now
        yield Move(Scroll(area.action.x, area.action.y, direction), area.target)
    yield await click(page, "#subbtn")


async def _table(tasks: Sequence[str], seeds: int, environments: int) -> bool:
    plays: dict[str, list[OracleEpisode]] = {task: [] for task in tasks}
    async for one in play_all(
        ORACLES, [(t, training_seed(i)) for t in tasks for i in range(seeds)], environments
    ):
        plays[one.task_id].append(one)
    print(f"{'task':34} solved  steps  first failure")
    for task, played in plays.items():
        failed = [p for p in played if p.reward < 1.0]
        steps = sum(len(p.steps) for p in played) / len(played)
        why = f"seed {failed[0].seed}: reward {failed[0].reward:g} {failed[0].failure}" if failed else ""
        print(f"{task:34} {100 * (1 - len(failed) / len(played)):5.1f} % {steps:5.1f}  {why}")
    return all(sum(p.reward == 1.0 for p in played) >= 0.95 * seeds for played in plays.values())


def main() -> None:
    """Play every oracle; ends with code 1 when one of them solves less than 95 % of its episodes."""
    parser = argparse.ArgumentParser(description="How often each scripted oracle solves its task.")
    parser.add_argument("--seeds", type=int, default=50, help="training seeds for each task")
    parser.add_argument(
        "--tasks", nargs="+", default=sorted(ORACLES), choices=sorted(ORACLES), metavar="TASK"
    )
    parser.add_argument("--environments", type=int, default=4, help="browsers at a time")
    options = parser.parse_args()
    sys.exit(0 if asyncio.run(_table(options.tasks, options.seeds, options.environments)) else 1)


if __name__ == "__main__":
    main()
