"""The actions that exploration may try on a screen, and how they are written in the action grammar. Pure."""

from collections.abc import Sequence

from dart.core.actions import Action, Click, Hotkey, Scroll, Type
from dart.core.exploration import Box, Candidate, ExploreAct, PageScreen

CANDIDATES_MOST = 60

SELECT_ALL = Hotkey(("ctrl", "a"))
"""Typing replaces what a field holds, so that the same candidate has the same effect."""


def candidates_of(screen: PageScreen) -> tuple[Candidate, ...]:
    """The candidates of a screen in the order of the document, each key once; scrolling comes last.

    A label and the control in it, or a row and its link, are often clicked at one point: the first counts.
    """
    found: dict[str, Candidate] = {}
    clicked: set[tuple[ExploreAct, int, int]] = set()
    for element in screen.elements:
        for act in element.acts:
            candidate = Candidate(act=act, role=element.role, text=element.text, box=element.box)
            if (act, *centre(element.box)) not in clicked:
                clicked.add((act, *centre(element.box)))
                found.setdefault(candidate.key, candidate)
    for act in screen.scrolls:
        found[act] = Candidate(act=act)
    return tuple(found.values())[:CANDIDATES_MOST]


def actions_of(candidate: Candidate, screen: PageScreen, texts: Sequence[str]) -> tuple[Action, ...]:
    """The actions that carry out a candidate.

    texts   what may be typed; a field always gets the same text, so that a replay types it again
    """
    x, y = centre(candidate.box)
    match candidate.act:
        case ExploreAct.CLICK:
            return (Click(x, y),)
        case ExploreAct.TYPE:
            return Click(x, y), SELECT_ALL, Type(text_for(candidate, texts))
        case ExploreAct.SUBMIT:
            return Click(x, y), SELECT_ALL, Type(f"{text_for(candidate, texts)}\n")
        case ExploreAct.SCROLL_DOWN:
            return (Scroll(screen.width // 2, screen.height // 2, "down"),)
        case ExploreAct.SCROLL_UP:
            return (Scroll(screen.width // 2, screen.height // 2, "up"),)
        case ExploreAct.RESET:
            raise ValueError("a reset is no action on the screen")


def text_for(candidate: Candidate, texts: Sequence[str]) -> str:
    """The text that is typed into a field, chosen by the field's role and label."""
    return texts[sum(f"{candidate.role}{candidate.text}".encode()) % len(texts)]


def centre(box: Box) -> tuple[int, int]:
    """The pixel in the middle of a box."""
    left, top, right, bottom = box
    return (left + right - 1) // 2, (top + bottom - 1) // 2
