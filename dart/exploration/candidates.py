"""The actions that exploration may try on a screen, and the inputs (`Action`) that carry them out. Pure."""

from collections.abc import Sequence
from itertools import islice

from dart.core.actions import Action, Click, Hotkey, Scroll, Type
from dart.core.exploration import Box, Candidate, ExploreAct, PageScreen

CANDIDATES_MOST = 60

SELECT_ALL = Hotkey(("ctrl", "a"))
"""Input before a text is typed: the text replaces the content of the field, so a candidate has always the
same effect."""


def candidates_of(screen: PageScreen) -> tuple[Candidate, ...]:
    """Return the candidates of a screen in document order, then those that scroll; at most CANDIDATES_MOST.

    Of too many, the last ones of the document are left out. Those that scroll stay, because only they show
    the rest of a long page.

    No two candidates have the same key, and no two of one act have the same click point. A label and its
    control, or a row and its link, often share that point; the first one in the document is kept.
    """
    found: dict[str, Candidate] = {}
    clicked: set[tuple[ExploreAct, int, int]] = set()
    for element in screen.elements:
        for act in element.acts:
            candidate = Candidate(act=act, role=element.role, text=element.text, box=element.box)
            if (act, *centre(element.box)) not in clicked:
                clicked.add((act, *centre(element.box)))
                found.setdefault(candidate.key, candidate)
    scrolls = [Candidate(act=act) for act in screen.scrolls]
    return (*islice(found.values(), CANDIDATES_MOST - len(scrolls)), *scrolls)


def actions_of(candidate: Candidate, screen: PageScreen, texts: Sequence[str]) -> tuple[Action, ...]:
    """Return the inputs that carry out a candidate.

    texts    texts to choose from for a field; the same field always gets the same text, also in a replay
    raises   ValueError for a reset
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
            raise ValueError("a reset has no input on the screen: reset the environment instead")


def text_for(candidate: Candidate, texts: Sequence[str]) -> str:
    """Return the text to type into a field; it depends only on the role and the label of the field."""
    return texts[sum(f"{candidate.role}{candidate.text}".encode()) % len(texts)]


def centre(box: Box) -> tuple[int, int]:
    """Return x and y of the pixel in the middle of a box."""
    left, top, right, bottom = box
    return (left + right - 1) // 2, (top + bottom - 1) // 2
