"""Queries of oracles: find an element of the page, as a pixel to click and the box around that pixel."""

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from dart.core.actions import Action, Click
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.miniwob.pages import HEIGHT, WIDTH

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; every click inside hits the same element unless something covers it."""


@dataclass(frozen=True, slots=True)
class Move:
    """One action, and the box of the element that it aims at; None when it aims at none."""

    action: Action
    target: Box | None = None


Oracle = Callable[[MiniWobEnvironment, str], AsyncIterator[Move]]
"""Yields the moves for a page and its instruction; it is resumed after each move was made."""


class TargetNotFound(Exception):
    """The page or the instruction lacks something that the oracle expected."""


FIND_TARGET = """
((selector, text, WIDTH, HEIGHT) => {
  const said = (e) => (e.innerText ?? e.textContent).trim();
  const fits = (e) => (text === null || said(e) === text) && e.getClientRects().length > 0;
  const spot = (e) => {
    const area = (r) => r.width * r.height;
    const r = [...e.getClientRects()].reduce((a, b) => area(b) > area(a) ? b : a);
    const [x0, y0] = [Math.max(0, Math.ceil(r.left)), Math.max(0, Math.ceil(r.top))];
    const [x1, y1] = [Math.min(WIDTH, Math.floor(r.right)) - 1, Math.min(HEIGHT, Math.floor(r.bottom)) - 1];
    const [cx, cy] = [Math.floor((x0 + x1) / 2), Math.floor((y0 + y1) / 2)];
    const hits = ([x, y]) => { const hit = document.elementFromPoint(x, y); return hit && e.contains(hit); };
    const points = [];
    for (let x = x0; x <= x1; x++) for (let y = y0; y <= y1; y++) points.push([x, y]);
    points.sort((p, q) => Math.hypot(p[0] - cx, p[1] - cy) - Math.hypot(q[0] - cx, q[1] - cy));
    const point = points.find(hits);
    return point === undefined ? null : {point, box: [x0, y0, x1, y1]};
  };
  return [...document.querySelectorAll(selector)].filter(fits).map(spot).find(s => s !== null) ?? null;
})
"""
"""JavaScript that returns the largest box of an element, and the pixel nearest to its centre where a click
hits the element."""


async def find(page: MiniWobEnvironment, selector: str, text: str | None = None) -> Move | None:
    """Return a click on the first visible element that matches ``selector`` and shows ``text``; else None."""
    arguments = ", ".join(json.dumps(argument) for argument in (selector, text, WIDTH, HEIGHT))
    found = await page.inspect(f"{FIND_TARGET}({arguments})")
    if found is None:
        return None
    x0, y0, x1, y1 = found["box"]
    return Move(Click(*found["point"]), (x0, y0, x1, y1))


async def click(page: MiniWobEnvironment, selector: str, text: str | None = None) -> Move:
    """Like `find`; raises `TargetNotFound` when nothing matches."""
    move = await find(page, selector, text)
    if move is None:
        raise TargetNotFound(f"expected a visible element {selector!r} with the text {text!r}, found none")
    return move


def quoted(instruction: str) -> list[str]:
    """Return the texts in double quotes."""
    return re.findall(r'"(.*?)"', instruction)


def extract(pattern: str, instruction: str) -> str:
    """Return the first group of ``pattern`` in the instruction; raises `TargetNotFound` without a match."""
    match = re.search(pattern, instruction)
    if match is None:
        raise TargetNotFound(f"expected the instruction to match {pattern!r}, got: {instruction!r}")
    return match[1]
