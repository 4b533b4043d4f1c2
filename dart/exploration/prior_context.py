"""The text that tells a model the candidates of a screen and what was tried there. Pure.

The text follows the instruction of a request, so any policy can read it::

    Not tried on this screen:
    - click link 'Orders'
    - type into textbox 'Search' and press Enter
    Tried on this screen, the newest first:
    - click button 'Don\\'t ask': nothing changed

A candidate is told by its kind and its words. Its point is left out, because each policy writes points in
its own unit. The words come from the page, so they are made plain: one line, at most `WORDS_MOST`
characters, quotes escaped. Both kinds of quotes become \\', because the small policy copies spans in double
quotes (`dart.policy.vocabulary.quoted_spans`).

The size of the text has a limit in bytes of UTF-8, because a byte-level tokenizer makes at most one token of
each byte. The two lists take turns: the best candidate, the newest try, the second best candidate and so on.
A list ends where its next entry no longer fits. So the least promising candidates and the oldest tries are
left out first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dart.core.exploration import Candidate, Effect, ExploreAct

CANDIDATES_MOST = 10
TRIES_MOST = 8

WORDS_MOST = 40
"""Largest number of characters of an element's text; a longer one is cut and ends with three dots."""
ROLE_MOST = 20

UNTRIED_HEAD = "Not tried on this screen:"
TRIED_HEAD = "Tried on this screen, the newest first:"

OUTCOMES: Mapping[Effect, str] = {
    Effect.NEW_SHAPE: "a new kind of screen",
    Effect.NEW_SCREEN: "a new screen",
    Effect.KNOWN_SCREEN: "a screen that was known",
    Effect.NO_CHANGE: "nothing changed",
    Effect.LEFT: "left the site",
    Effect.ENDED: "the end",
    Effect.FAULT: "the page broke",
    Effect.LOST: "it was gone",
}


@dataclass(frozen=True, slots=True)
class PriorContext:
    """The text about a screen that a model gets beside the screenshot."""

    text: str = ""
    """The text that follows the instruction; empty for none."""
    tried: int = 0
    """Number of candidates of the screen that were tried."""


NO_CONTEXT = PriorContext()


def context_of(
    untried: Sequence[Candidate], tried: Sequence[tuple[Candidate, Effect]], most_bytes: int
) -> PriorContext:
    """Return the context of a screen.

    untried      candidates that were not tried, the most promising first
    tried        the other candidates with their newest effect, the newest try first
    most_bytes   largest size of the text; if not one entry fits, the text is empty
    """
    tries = (f"{described(one)}: {OUTCOMES[effect]}" for one, effect in tried)
    lists = (
        (UNTRIED_HEAD, _each_once(map(described, untried))[:CANDIDATES_MOST]),
        (TRIED_HEAD, _each_once(tries)[:TRIES_MOST]),
    )
    return PriorContext(_fitted(lists, most_bytes), len(tried))


def described(candidate: Candidate) -> str:
    """Return a candidate in words: its kind and, in quotes, the text of its element."""
    text = _escaped(_plain(candidate.text, WORDS_MOST))
    element = _escaped(_plain(candidate.role, ROLE_MOST)) + (f" '{text}'" if text else "")
    match candidate.act:
        case ExploreAct.CLICK:
            return f"click {element}"
        case ExploreAct.TYPE:
            return f"type into {element}"
        case ExploreAct.SUBMIT:
            return f"type into {element} and press Enter"
        case _:
            return candidate.act.replace("_", " ")


_Lists = Sequence[tuple[str, Sequence[str]]]
"""Lists of entries, each with its heading."""


def _fitted(lists: _Lists, most_bytes: int) -> str:
    """Return the lists as text, with as many entries as fit, which the lists add in turns."""
    kept = [0] * len(lists)
    growing = list(range(len(lists)))
    while growing:
        for index in tuple(growing):
            more = [count + (index == place) for place, count in enumerate(kept)]
            is_more = kept[index] < len(lists[index][1])
            if is_more and len(_written(lists, more).encode()) <= most_bytes:
                kept = more
            else:
                growing.remove(index)
    return _written(lists, kept)


def _written(lists: _Lists, counts: Sequence[int]) -> str:
    """Return the first entries of each list below its heading; begins with a line break unless empty."""
    lines: list[str] = []
    for (head, entries), count in zip(lists, counts, strict=True):
        if count:
            lines += (head, *(f"- {entry}" for entry in entries[:count]))
    return "".join(f"\n{line}" for line in lines)


def _each_once(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _plain(text: str, most: int) -> str:
    """Return a text as one line of printable characters, cut to a number of characters."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= most else f"{line[: most - 3].rstrip()}..."


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'").replace('"', "\\'")
