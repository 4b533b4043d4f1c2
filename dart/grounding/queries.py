"""Instructions for the elements of one screen, each of which means exactly one of them. Pure.

Attribute queries name an element by what can be seen without reading: its kind, its colour, its shape, or its
place in the order of reading. Text queries name it by its words. An instruction that fits two elements of a
screen is never written.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dart.core.boxes import Box

ORDINALS = ("first", "second", "third", "fourth", "fifth")

LONGEST_TEXT = 40
"""Characters of the longest text that a query quotes."""

LINE_PX = 8.0
"""Elements whose tops differ by less than this are on one line, which is read from left to right."""

NEUTRAL = frozenset({"", "white", "black", "grey"})
"""Colours by which no query names an element, because texts and backgrounds have them, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledElement:
    """An element of a page that can be clicked."""

    box: Box
    """In pixels of the screenshot."""
    kind: str
    text: str
    """Words on the element, or words of its label."""
    shows_text: bool
    """Whether the words are on the element itself."""
    colour: str = ""
    """Name of the element's colour; empty if the colour has no name."""
    shape: str = ""
    """Name of a drawn shape; empty for other elements."""


@dataclass(frozen=True, slots=True)
class Query:
    """An instruction and the element that it means."""

    kind: str
    """By what the instruction names the element: `kind`, `colour`, `shape`, `order` or `text`."""
    instruction: str
    element: LabelledElement


def queries(elements: Sequence[LabelledElement]) -> Iterator[Query]:
    """Yield all instructions that mean exactly one element of a screen."""
    named = [query for element in elements for query in _named(element)]
    counts = Counter(query.instruction for query in named)
    yield from (query for query in named if counts[query.instruction] == 1)
    yield from _ordered(elements)


def _named(element: LabelledElement) -> Iterator[Query]:
    """Yield the instructions that name an element by its own properties; they may fit other elements, too."""
    yield Query("kind", f"click the {element.kind}", element)
    if element.colour not in NEUTRAL:
        yield Query("colour", f"click what is {element.colour}", element)
    if element.shape:
        yield Query("shape", f"click the {element.shape}", element)
        if element.colour not in NEUTRAL:
            yield Query("shape", f"click the {element.colour} {element.shape}", element)
    if element.text and len(element.text) <= LONGEST_TEXT:
        yield Query("text", f'click "{element.text}"', element)


def _ordered(elements: Sequence[LabelledElement]) -> Iterator[Query]:
    """Yield an instruction such as "click the second button" for each element of a kind, in reading order.

    Kinds with one element, or with more elements than there are ORDINALS, are left out.
    """
    for kind in sorted({element.kind for element in elements}):
        alike = reading_order([element for element in elements if element.kind == kind])
        if 2 <= len(alike) <= len(ORDINALS):
            for ordinal, element in zip(ORDINALS, alike, strict=False):
                yield Query("order", f"click the {ordinal} {kind}", element)


def reading_order(elements: Sequence[LabelledElement]) -> list[LabelledElement]:
    """Return elements line by line from the top, each line from the left."""
    lines: list[list[LabelledElement]] = []
    for element in sorted(elements, key=lambda one: one.box.top):
        if lines and element.box.top - lines[-1][0].box.top < LINE_PX:
            lines[-1].append(element)
        else:
            lines.append([element])
    return [element for line in lines for element in sorted(line, key=lambda one: one.box.left)]
