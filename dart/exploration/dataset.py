"""Grounding data from an exploration graph: queries for elements of its screens. Pure.

There are three kinds of queries:

* `element` names an element by its text: ``click "Reply"``;
* `order` names one of several elements with the same text by its place: ``click the second "Delete"``;
* `outcome` names what a click on the element leads to. ``open "Shopping cart"`` has the heading or title of
  the next screen; ``show "Log out"`` has a text that appears below the same heading and title.

A query is used only if exactly one element fits it, and if this element can be seen and clicked. An outcome
must have been the same at every try, at least twice. Screens that look almost like another one of their
shape are left out, and those with the screenshot of another one; no screen and no text has more than
`MOST_EACH` samples. All screens of one shape are in the same split, so a policy is never measured on a shape
or on a screenshot that it was trained on.
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
"""Largest number of samples of one screen, and of one text of elements."""

TRIES_LEAST = 2
"""Number of tries, all with the same effect, from which on an outcome counts as reproducible."""

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")

TEXT_MOST = 40

SHOW = "show "
"""First word of an outcome query if heading and title stay the same."""

LARGEST_SHARE = 0.5
"""Largest share of the screen's area that a target may have; no query is made for a larger element."""


class QueryKind(StrEnum):
    """What identifies the element in a query; the module's text describes the kinds."""

    ELEMENT = "element"
    ORDER = "order"
    OUTCOME = "outcome"


class Split(StrEnum):
    """A part of the data. Its shapes are in no other part."""

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
    """The screen to which the element leads, for an outcome query."""
    step_id: int | None = None
    """The first step that led there, for an outcome query."""


def queries_of(graph: Graph) -> list[GraphQuery]:
    """Return the queries of all distinct screens, in the order in which the screens were found.

    No screen and no text of elements has more than `MOST_EACH` queries.
    """
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
    """Yield the list of all queries of each screen, without a limit. Outcome queries and others alternate."""
    outcomes = _outcomes(graph)
    for node in nodes:
        yield list(_interleaved(_outcome_queries(graph, node, outcomes), list(_element_queries(node))))


def distinct_screens(nodes: Iterable[ScreenNode]) -> list[ScreenNode]:
    """Return the screens without those that look almost like an earlier one of their shape, or exactly like
    an earlier one of any shape."""
    kept: defaultdict[str, list[ScreenNode]] = defaultdict(list)
    pictures: set[str] = set()
    for node in nodes:
        of_shape, picture = kept[node.screen.shape], node.screen.screenshot_sha256
        if picture not in pictures and all(d_img(node.screen, one.screen) > D_IMG_MOST for one in of_shape):
            of_shape.append(node)
            pictures.add(picture)
    return sorted((node for of_shape in kept.values() for node in of_shape), key=lambda one: one.screen_id)


def split_of_shapes(shapes: Iterable[str], seed: int) -> dict[str, Split]:
    """Assign each shape to a split: about 70 % to training, 15 % to validation and 15 % to test.

    The seed determines the assignment. At least one shape is in training.
    """
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
    ambiguous = _texts_besides_targets(node.screen)
    for text, elements in by_text.items():
        if text in ambiguous:
            continue
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
    """Return the elements of a screen for which queries may be made, the first one of each click point.

    Such an element can be acted on, nothing covers it, it has a text of at most `TEXT_MOST` characters, and
    it is not larger than `LARGEST_SHARE` of the screen.
    """
    found: dict[tuple[int, int], PageElement] = {}
    for element in _nameable(screen):
        if element.acts:
            found.setdefault(centre(element.box), element)
    return list(found.values())


def _texts_besides_targets(screen: PageScreen) -> set[str]:
    """Return the texts, in lower case, of elements that a query may mean although they are no targets.

    They can be seen and clicked, but exploration does nothing with them, as with links to other sites.
    """
    points = {centre(one.box) for one in targets(screen)}
    return {
        one.text.casefold()
        for one in _nameable(screen)
        if one.role != "heading" and centre(one.box) not in points
    }


def _nameable(screen: PageScreen) -> Iterator[PageElement]:
    """Yield the elements that can be seen and have a text, without long texts and large elements."""
    for element in screen.elements:
        left, top, right, bottom = element.box
        is_large = (right - left) * (bottom - top) > LARGEST_SHARE * screen.width * screen.height
        if element.is_clear and 0 < len(element.text) <= TEXT_MOST and not is_large:
            yield element


# ---- queries that name an outcome ----


@dataclass(frozen=True, slots=True)
class _Outcome:
    target_id: int
    step_id: int


def _outcomes(graph: Graph) -> dict[tuple[int, str], _Outcome]:
    """Return the outcome of each reproducible action, by screen and key of the action.

    An action is reproducible if all its tries, at least `TRIES_LEAST`, led to the same other screen.
    """
    first_step = {
        (step.source_id, step.action): step.step_id
        for step in reversed(graph.steps)
        if step.target_id is not None  # a fault or a missing action led nowhere
    }
    return {
        (hop.source_id, hop.action): _Outcome(hop.target_id, first_step[hop.source_id, hop.action])
        for hop, tried in graph.edges()
        if tried[hop.target_id] == tried.total() >= TRIES_LEAST
    }


def _outcome_queries(
    graph: Graph, node: ScreenNode, outcomes: Mapping[tuple[int, str], _Outcome]
) -> list[GraphQuery]:
    """Return the outcome queries of a screen. A query that would fit several of its elements is left out."""
    by_words: defaultdict[str, list[GraphQuery]] = defaultdict(list)
    clicks_of = _clicks_by_words(graph, node)
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
    alone = [queries[0] for words, queries in by_words.items() if clicks_of[words] == 1]
    return [query for query in alone if not _says_so_itself(query) and not _is_switch(graph, query)]


def _clicks_by_words(graph: Graph, node: ScreenNode) -> Counter[str]:
    """Return how many clicks of a screen ever had an outcome of these words, by words.

    Every try counts, also that of an element without text, and one that was never repeated.
    """
    clicks = {one.key for one in graph.candidates(node.screen_id) if one.act is ExploreAct.CLICK}
    led_to = {
        (hop.action, outcome_words(node.screen, graph.nodes[target].screen))
        for hop, targets in graph.edges()
        if hop.source_id == node.screen_id and hop.action in clicks
        for target in targets
        if target is not None
    }
    return Counter(words for _, words in led_to)


def _says_so_itself(query: GraphQuery) -> bool:
    """Whether a query names the element's own text. Then it says no more than an element query."""
    return f'"{query.element.text}"'.casefold() in query.instruction.casefold()


def _is_switch(graph: Graph, query: GraphQuery) -> bool:
    """Whether a query `show ...` is for an element that is gone after the click, such as a tab that it opens.

    The new text is then that of the tab that was open before, and not an outcome of the click.
    """
    after = graph.nodes[query.target_id or query.screen_id].screen
    return query.instruction.startswith(SHOW) and query.element.text not in _texts(after)


def outcome_words(before: PageScreen, after: PageScreen) -> str:
    """Return the outcome query for an action that leads from one screen to another.

    If the next screen has a new heading or title, the query is `open` with it. Otherwise it is `show` with a
    new text, such as an item of a menu. It is empty if no new text has at most `TEXT_MOST` characters.
    """
    opened = _first_short(text for text in _headlines(after) if text not in _headlines(before))
    if opened:
        return f'open "{opened}"'
    known = {text.casefold() for text in _texts(before)}
    shown = _first_short(text for text in _texts(after) if text.casefold() not in known)
    return f'{SHOW}"{shown}"' if shown else ""


def _headlines(screen: PageScreen) -> list[str]:
    """Return the headings of a screen, and then its title."""
    headings = [one.text for one in screen.elements if one.role == "heading" and one.text]
    return [*headings, screen.title] if screen.title else headings


def _texts(screen: PageScreen) -> list[str]:
    return [one.text for one in screen.elements if one.text and one.has_text]


def _first_short(texts: Iterable[str]) -> str:
    return next((text for text in texts if len(text) <= TEXT_MOST), "")


def _interleaved(some: Sequence[GraphQuery], others: Sequence[GraphQuery]) -> Iterator[GraphQuery]:
    """Yield one query of each list in turn, so that the limit of a screen leaves room for both kinds."""
    for number in range(max(len(some), len(others))):
        yield from some[number : number + 1]
        yield from others[number : number + 1]
