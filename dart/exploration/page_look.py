"""Makes a `PageScreen` of a page: its nodes, its elements, and what exploration may do with each element.

The script `look.js` runs in the page and returns a description as JSON, here called a *look*. `screen_of`
makes a screen from two looks and two screenshots.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from actors.codec import from_plain
from actors.errors import MalformedMessage
from dart.core.exploration import PLACE_PX, ExploreAct, PageElement, PageScreen
from dart.core.origins import AllowedOrigins, is_local
from dart.environments.faults import InfrastructureFault
from dart.exploration.matching import grid_of, no_volatile_cells, shape_of, structure_of, volatile_cells

LOOK = (Path(__file__).parent / "look.js").read_text(encoding="utf-8")
"""JavaScript that describes the page."""

ELEMENTS_MOST = 150
"""Largest number of elements of a screen, the first ones of the document; so many fit into a message."""

NODES_MOST = 1500
"""Largest number of nodes in the structure of a screen, the first ones of the document."""

ROLE_MOST, TEXT_MOST, TITLE_MOST, URL_MOST = 60, 180, 512, 2048
"""Largest sizes, in bytes of UTF-8, of an element's role and text and of a screen's title and address. A
report with `ELEMENTS_MOST` elements of these sizes fits into a message."""

REFUSED_ROLES = ("file", "hidden", "color", "slider")

Number = Annotated[int, Meta(ge=-(2**31), lt=2**31)]

Place = tuple[Number, Number, Number, Number]


class LookedElement(TypedDict):
    """An element of a look."""

    role: str
    text: str
    has_text: bool
    box: Place
    acts: bool
    is_enabled: bool
    is_clear: bool
    is_field: bool
    leads_to: str
    opens: bool
    sends_to: str


class Look(TypedDict):
    """The description of a page that the script `look.js` returned."""

    url: str
    title: str
    width: Number
    height: Number
    nodes: list[tuple[Number, str, str, Place, str, str]]
    elements: list[LookedElement]
    is_above: bool
    is_below: bool


def checked_look(returned: Any) -> Look:
    """Return what the script `look.js` returned in a page.

    Raises InfrastructureFault unless it is a Look. The page may have replaced functions that the script uses.
    """
    try:
        return from_plain(returned, Look)
    except MalformedMessage as error:
        raise InfrastructureFault(f"the page spoils its description for exploration: {error}") from error


def screen_of(first: Look, last: Look, screenshots: Sequence[bytes], allowed: AllowedOrigins) -> PageScreen:
    """Return the screen that two looks at a page show, without an action between them.

    Nodes that changed between the two looks are left out of the structure. The page may have changed what the
    script returns, so all texts are bounded again here.

    screenshots   one PNG for each look; the second one is the screenshot of the screen
    allowed       the origins that exploration may open
    """
    grids = [grid_of(png) for png in screenshots]
    before, after = structure_of(_instances(first["nodes"])), structure_of(_instances(last["nodes"]))
    return PageScreen(
        screenshot_sha256=hashlib.sha256(screenshots[-1]).hexdigest(),
        url=_bounded(last["url"], URL_MOST),
        title=_bounded(last["title"], TITLE_MOST),
        width=last["width"],
        height=last["height"],
        grid=grids[-1],
        volatile=volatile_cells(*grids) if grids[0] != grids[-1] else no_volatile_cells(),
        structure=after if before == after else _in_both(before, after),
        shape=shape_of(_kinds(last["nodes"])),
        elements=tuple(element_of(one, last["url"], allowed) for one in last["elements"][:ELEMENTS_MOST]),
        scrolls=(
            *([ExploreAct.SCROLL_DOWN] if last["is_below"] else []),
            *([ExploreAct.SCROLL_UP] if last["is_above"] else []),
        ),
    )


def element_of(found: LookedElement, page_url: str, allowed: AllowedOrigins) -> PageElement:
    """Return an element of a look, with what exploration may do with it."""
    left, top, right, bottom = found["box"]
    return PageElement(
        role=_bounded(found["role"], ROLE_MOST),
        text=_bounded(found["text"], TEXT_MOST),
        box=(left, top, right, bottom),
        acts=acts_of(found, page_url, allowed),
        is_clear=found["is_clear"],
        has_text=found["has_text"],
    )


def acts_of(found: LookedElement, page_url: str, allowed: AllowedOrigins) -> tuple[ExploreAct, ...]:
    """Return what exploration may do with an element: type, type and submit, or click; empty for nothing.

    Nothing may be done that leaves the allowed origins, opens another window, or sends a form to an address
    that is not allowed or not on this machine. Text may be typed, but not sent, where only the sending is not
    allowed.
    """
    is_usable = found["acts"] and found["is_enabled"] and found["is_clear"]
    if not is_usable or found["role"] in REFUSED_ROLES or found["opens"]:
        return ()
    if found["leads_to"] and not allowed.allow(found["leads_to"], page_url):
        return ()
    to = found["sends_to"]
    may_send = not to or (is_local(to) and allowed.allow(to))
    if found["is_field"]:
        return (ExploreAct.TYPE, ExploreAct.SUBMIT) if to and may_send else (ExploreAct.TYPE,)
    return (ExploreAct.CLICK,) if may_send else ()


def _bounded(text: str, most_bytes: int) -> str:
    """Return the beginning of a text of a page, of at most this size in UTF-8.

    Half of a character of two UTF-16 units, which no message can carry, becomes a question mark.
    """
    return text.encode(errors="replace")[:most_bytes].decode(errors="ignore")


def _instances(nodes: Iterable[Sequence[Any]]) -> list[str]:
    """Return a line for each node: its depth, tag, class, place (units of PLACE_PX), text and state."""
    return [
        f"{depth}|{tag}|{kind}|{','.join(str(one // PLACE_PX) for one in place)}|{text}|{state}"
        for depth, tag, kind, place, text, state in list(nodes)[:NODES_MOST]
    ]


def _kinds(nodes: Iterable[Sequence[Any]]) -> list[str]:
    return [f"{depth}|{tag}|{kind}" for depth, tag, kind, *_ in nodes]


def _in_both(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    there = set(other)
    return tuple(item for item in one if item in there)
