"""Queries for oracles: find the pixel at which a click hits an element of the page."""

import json
import re
from typing import Any

from dart.core.actions import Click
from dart.environments.browser.environment import BrowserEnvironment


class TargetNotFound(Exception):
    """The page or the instruction lacks something that an oracle looked for."""


FIND_TARGET = """
((selector, text) => {
  const said = (e) => (e.innerText ?? e.textContent).trim();
  const fits = (e) => (text === null || said(e) === text) && e.getClientRects().length > 0;
  const spot = (e) => {
    const area = (r) => r.width * r.height;
    const r = [...e.getClientRects()].reduce((a, b) => area(b) > area(a) ? b : a);
    const [x0, y0] = [Math.max(0, Math.ceil(r.left)), Math.max(0, Math.ceil(r.top))];
    const [right, bottom] = [Math.floor(r.right), Math.floor(r.bottom)];
    const [x1, y1] = [Math.min(innerWidth, right) - 1, Math.min(innerHeight, bottom) - 1];
    const [cx, cy] = [Math.floor((x0 + x1) / 2), Math.floor((y0 + y1) / 2)];
    const hits = ([x, y]) => { const hit = document.elementFromPoint(x, y); return hit && e.contains(hit); };
    const points = [];
    for (let x = x0; x <= x1; x++) for (let y = y0; y <= y1; y++) points.push([x, y]);
    points.sort((p, q) => Math.hypot(p[0] - cx, p[1] - cy) - Math.hypot(q[0] - cx, q[1] - cy));
    return points.find(hits) ?? null;
  };
  return [...document.querySelectorAll(selector)].filter(fits).map(spot).find(s => s !== null) ?? null;
})
"""
"""JavaScript function of a CSS selector and a text (or null) that returns the pixel [x, y] for `find`.

Among the pixels where a click hits the element, the function returns the nearest to the centre of the
element's largest box. It returns null when there is no such element."""


async def find(page: BrowserEnvironment[Any], selector: str, text: str | None = None) -> Click | None:
    """Return a click on the first visible element that matches a CSS selector and has exactly this text.

    With ``text=None``, any text will do. Returns None when there is no such element."""
    arguments = ", ".join(json.dumps(argument) for argument in (selector, text))
    point = await page.inspect(f"{FIND_TARGET}({arguments})")
    return None if point is None else Click(*point)


async def click(page: BrowserEnvironment[Any], selector: str, text: str | None = None) -> Click:
    """Like `find`; raises `TargetNotFound` when nothing matches."""
    found = await find(page, selector, text)
    if found is None:
        raise TargetNotFound(f"expected a visible element {selector!r} with the text {text!r}, found none")
    return found


def extract(pattern: str, instruction: str) -> str:
    """Return the first group of ``pattern`` in the instruction; raises `TargetNotFound` without a match."""
    match = re.search(pattern, instruction)
    if match is None:
        raise TargetNotFound(f"expected the instruction to match {pattern!r}, got: {instruction!r}")
    return match[1]
