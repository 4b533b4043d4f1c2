"""Grounding data from an exploration graph: queries for elements of its screens. Pure.

Three kinds of queries:

* `element` names an element by its text: ``click "Reply"``;
* `order` names one of several elements with the same text by its place: ``click the second "Delete"``;
* `outcome` names what the element leads to: ``open "Shopping cart"`` by the next screen's heading or title,
  ``show "Log out"`` by a text that appears on the same screen.

A query is used only if exactly one element fits it, and that can be seen and clicked. An outcome must have
been the same at every try, at least twice. Near-duplicate screens are left out, and no screen and no text has
more than `MOST_EACH` samples. Splits are made by shape, so that no screen of a shape that was trained on is
used to measure.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dart.core.exploration import ExploreAct, PageElement, PageScreen, ScreenNode
from dart.exploration.candidates import centre
from dart.exploration.graph import Graph
from dart.exploration.matching import D_IMG_MOST, d_img

MOST_EACH = 8
"""Samples of one screen, and of one text."""

TRIES_LEAST = 2
"""Tries with the same effect after which an outcome counts as reproducible."""

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")

TEXT_MOST = 40

SHOW = "show "
"""How a query begins whose outcome stays below the same headline."""

LARGEST_SHARE = 0.5
"""Share of the screen that an element may take; a larger one is no target."""


class QueryKind(StrEnum):
    """What a query names its element by."""

    ELEMENT = "element"
    ORDER = "order"
    OUTCOME = "outcome"


class Split(StrEnum):
    """A part of the data, with shapes of its own."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


SHARES: Mapping[Split, float] = {Split.TRAIN: 0.7, Split.VALIDATION: 0.15, Split.TEST: 0.15}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphQuery:
    """An instruction, and the one element of a screen that it means."""

    screen_id: int
    instruction: str
    element: PageElement
    kind: QueryKind
    target_id: int | None = None
    """The screen that an outcome query promises."""
    step_id: int | None = None
    """The first step that showed the outcome."""


def queries_of(graph: Graph) -> list[GraphQuery]:
    """The queries of all screens that pass the gates, in the order in which the screens were found."""
    found: list[GraphQuery] = []
    of_text: Counter[str] = Counter()
    for queries in queries_of_screens(graph, distinct_screens(graph.nodes.values())):
        of_screen = 0
        for query in queries:
            text = query.element.text.casefold()
            if of_screen < MOST_EACH and of_text[text] < MOST_EACH:
                found.append(query)
                of_screen, of_text[text] = of_screen + 1, of_text[text] + 1
    return found


def queries_of_screens(graph: Graph, nodes: Iterable[ScreenNode]) -> Iterator[list[GraphQuery]]:
    """All queries of each screen that mean one element, without bounds; outcomes and others in turn."""
    outcomes = _outcomes(graph)
    for node in nodes:
        yield list(_interleaved(_outcome_queries(graph, node, outcomes), list(_element_queries(node))))


def distinct_screens(nodes: Iterable[ScreenNode]) -> list[ScreenNode]:
    """The screens without those that look like an earlier one of their shape."""
    kept: defaultdict[str, list[ScreenNode]] = defaultdict(list)
    for node in nodes:
        of_shape = kept[node.screen.shape]
        if all(d_img(node.screen, other.screen) > D_IMG_MOST for other in of_shape):
            of_shape.append(node)
    return sorted((node for of_shape in kept.values() for node in of_shape), key=lambda one: one.screen_id)


def split_of_shapes(shapes: Iterable[str], seed: int) -> dict[str, Split]:
    """The split of each shape: 70, 15 and 15 of a hundred, at least one in the first."""
    drawn = sorted(set(shapes), key=lambda one: hashlib.sha256(f"{seed}/{one}".encode()).hexdigest())
    test = round(len(drawn) * SHARES[Split.TEST])
    validation = round(len(drawn) * SHARES[Split.VALIDATION])
    parts = [Split.TEST] * test + [Split.VALIDATION] * validation
    parts += [Split.TRAIN] * (len(drawn) - len(parts))
    return dict(zip(drawn, parts, strict=True))


# ---- queries that name an element ----


def _element_queries(node: ScreenNode) -> Iterator[GraphQuery]:
    by_text: defaultdict[str, list[PageElement]] = defaultdict(list)
    for element in targets(node.screen):
        by_text[element.text.casefold()].append(element)
    for elements in by_text.values():
        if len(elements) == 1:
            words = _naming(elements[0])
            yield GraphQuery(
                screen_id=node.screen_id, instruction=words, element=elements[0], kind=QueryKind.ELEMENT
            )
        elif len(elements) <= len(ORDINALS) and len({one.role for one in elements}) == 1:
            yield from _order_queries(node, elements)


def _order_queries(node: ScreenNode, elements: Sequence[PageElement]) -> Iterator[GraphQuery]:
    in_order = sorted(elements, key=lambda one: (one.box[1], one.box[0]))
    for ordinal, element in zip(ORDINALS, in_order, strict=False):
        words = f'click the {ordinal} "{element.text}" {element.role} from the top'
        yield GraphQuery(screen_id=node.screen_id, instruction=words, element=element, kind=QueryKind.ORDER)


def _naming(element: PageElement) -> str:
    if ExploreAct.TYPE in element.acts:
        return f'click into the field "{element.text}"'
    return f'click "{element.text}"'


def targets(screen: PageScreen) -> list[PageElement]:
    """The elements of a screen that may be asked for: named, visible, unoccluded, of one point each."""
    found: dict[tuple[int, int], PageElement] = {}
    for element in screen.elements:
        left, top, right, bottom = element.box
        is_large = (right - left) * (bottom - top) > LARGEST_SHARE * screen.width * screen.height
        is_named = 0 < len(element.text) <= TEXT_MOST
        if element.acts and element.is_clear and is_named and not is_large:
            found.setdefault(centre(element.box), element)
    return list(found.values())


# ---- queries that name an outcome ----


@dataclass(frozen=True, slots=True)
class _Outcome:
    target_id: int
    step_id: int


def _outcomes(graph: Graph) -> dict[tuple[int, str], _Outcome]:
    """What each action led to, if that was the same at every try and at least twice."""
    first_step = {
        (step.source_id, step.action): step.step_id
        for step in reversed(graph.steps)
        if step.source_id is not None
    }
    return {
        (hop.source_id, hop.action): _Outcome(hop.target_id, first_step[hop.source_id, hop.action])
        for hop, tried in graph.edges()
        if tried[hop.target_id] == tried.total() >= TRIES_LEAST
    }


def _outcome_queries(
    graph: Graph, node: ScreenNode, outcomes: Mapping[tuple[int, str], _Outcome]
) -> list[GraphQuery]:
    """A query for each outcome of this screen that only one of its elements has."""
    by_words: defaultdict[str, list[GraphQuery]] = defaultdict(list)
    known = {centre(one.box): one for one in targets(node.screen)}
    for candidate in graph.candidates(node.screen_id):
        outcome = outcomes.get((node.screen_id, candidate.key))
        element = known.get(centre(candidate.box))
        if outcome is None or element is None or candidate.act is not ExploreAct.CLICK:
            continue
        words = outcome_words(node.screen, graph.nodes[outcome.target_id].screen)
        if words:
            by_words[words].append(
                GraphQuery(
                    screen_id=node.screen_id,
                    instruction=words,
                    element=element,
                    kind=QueryKind.OUTCOME,
                    target_id=outcome.target_id,
                    step_id=outcome.step_id,
                )
            )
    alone = [queries[0] for queries in by_words.values() if len(queries) == 1]
    return [query for query in alone if not _says_so_itself(query) and not _is_switch(graph, query)]


def _says_so_itself(query: GraphQuery) -> bool:
    """Whether the element's own text is what the query promises, as an element query says already."""
    return f'"{query.element.text}"'.casefold() in query.instruction.casefold()


def _is_switch(graph: Graph, query: GraphQuery) -> bool:
    """Whether the element is gone where the headline stays, as a tab that is open is no element any more.

    What is new then is the tab that was left, which the element does not show.
    """
    after = graph.nodes[query.target_id or query.screen_id].screen
    return query.instruction.startswith(SHOW) and query.element.text not in _texts(after)


def outcome_words(before: PageScreen, after: PageScreen) -> str:
    """The query for an action that leads from one screen to another; empty if nothing names what it did.

    A page with another heading or title is opened. Where both stay, a text that is new is shown: a menu's
    items, say.
    """
    opened = _first_short(text for text in _headlines(after) if text not in _headlines(before))
    if opened:
        return f'open "{opened}"'
    known = {text.casefold() for text in _texts(before)}
    shown = _first_short(text for text in _texts(after) if text.casefold() not in known)
    return f'{SHOW}"{shown}"' if shown else ""


def _headlines(screen: PageScreen) -> list[str]:
    """The headings of a screen, and then its title."""
    headings = [one.text for one in screen.elements if one.role == "heading" and one.text]
    return [*headings, screen.title] if screen.title else headings


def _texts(screen: PageScreen) -> list[str]:
    return [one.text for one in screen.elements if one.text and one.has_text]


def _first_short(texts: Iterable[str]) -> str:
    return next((text for text in texts if len(text) <= TEXT_MOST), "")


def _interleaved(some: Sequence[GraphQuery], others: Sequence[GraphQuery]) -> Iterator[GraphQuery]:
    """One of each in turn, so that the bound of a screen leaves room for both kinds."""
    for number in range(max(len(some), len(others))):
        yield from some[number : number + 1]
        yield from others[number : number + 1]
