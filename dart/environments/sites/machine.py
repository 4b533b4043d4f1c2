"""A web application as a finite state machine of screens, elements and records. Pure.

A state is a screen together with the values of the records, such as the quantity of a product in the cart. To
click an element, or to send its form, makes a transition: the site shows another screen, changes records, or
both. Because the machine is known, the shortest solution of a task and the true coverage of an exploration
can be computed.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Literal

Value = str | int

Texts = tuple[tuple[str, str], ...]
"""The texts that are typed into the fields of a form: pairs of a field's name and its text."""

MOST_STATES = 50_000
"""How many states a search looks at before it gives up. Without a limit, a search for a goal that cannot be
reached might not end."""

SAMPLE_TEXT = "hello"
"""The text that a solution types into a field whose text does not matter for the goal."""


class Scope(StrEnum):
    """How long a record keeps its value, and whether a task may change it on the way."""

    KEPT = "kept"
    """The value lasts. A task whose goal does not name the record must leave the value unchanged."""
    INCIDENTAL = "incidental"
    """The value lasts, and any task may change it on the way, such as the mark that a mail was read."""
    TRANSIENT = "transient"
    """The record returns to its first value with the next transition, such as an open menu."""


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """One variable of a site: its first value and its scope."""

    first: Value
    scope: Scope = Scope.KEPT


@dataclass(frozen=True, slots=True)
class RecordGuard:
    """A condition on one record."""

    record: str
    test: Literal["is", "is not", "above", "below"]
    value: Value

    def holds(self, actual: Value) -> bool:
        """Whether the condition holds for the actual value of the record."""
        match self.test:
            case "is":
                return actual == self.value
            case "is not":
                return actual != self.value
            case "above":
                return int(actual) > int(self.value)
            case "below":
                return int(actual) < int(self.value)


@dataclass(frozen=True, slots=True)
class TypedText:
    """The text that was typed into a field of the element's form."""

    field: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a record a value, or the text that was typed into a field."""

    record: str
    value: Value | TypedText


@dataclass(frozen=True, slots=True)
class Add:
    """Add a whole number to a record."""

    record: str
    amount: int


@dataclass(frozen=True, slots=True)
class Toggle:
    """Turn a record from 0 to 1, or from 1 to 0."""

    record: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Give every record whose name begins with ``prefix`` its first value."""

    prefix: str


Effect = Assign | Add | Toggle | Restore


class Kind(StrEnum):
    """What an element is to its user; the style of a site decides how it looks."""

    LINK = "link"
    BUTTON = "button"
    TAB = "tab"
    MENU = "menu"
    MENU_ITEM = "menu item"
    CHECK_BOX = "check box"
    FORM = "form"


@dataclass(frozen=True, slots=True)
class Field:
    """A text field of a form; a form is sent only when none of its fields is blank."""

    name: str
    label: str


@dataclass(frozen=True, slots=True)
class Element:
    """Something on a screen that a user can click, or a form to fill in and send.

    label          text of the element; for a form, the text of its button
    target         id of the screen that the element leads to; empty to stay on its screen
    effects        changes of records, in order
    guards         the element is shown while all of them hold
    fields         text fields of a form, in order
    destinations   pairs of a text and a screen id: with this text in its first field, ignoring case, the form
                   leads to this screen; with any other text, to ``target``
    """

    kind: Kind
    label: str
    target: str = ""
    effects: tuple[Effect, ...] = ()
    guards: tuple[RecordGuard, ...] = ()
    fields: tuple[Field, ...] = ()
    destinations: tuple[tuple[str, str], ...] = ()

    @property
    def num_actions(self) -> int:
        """Number of actions to use the element: a click, and for each field a click and its text."""
        return 1 + 2 * len(self.fields)

    def target_of(self, texts: Texts) -> str:
        """Return the id of the screen that the element leads to with these texts; empty to stay."""
        if self.destinations and texts:
            wanted = texts[0][1].strip().casefold()
            return {text.casefold(): screen for text, screen in self.destinations}.get(wanted, self.target)
        return self.target


@dataclass(frozen=True, slots=True)
class SiteState:
    """A screen and the records that differ from their first values, sorted by name."""

    screen: str
    changes: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """The set of states that are on ``screen`` (any screen, if empty) and have the values of ``records``.

    is_strict   whether all other records that are `Scope.KEPT` must be as they were at the start
    """

    screen: str = ""
    records: tuple[tuple[str, Value], ...] = ()
    is_strict: bool = True


@dataclass(frozen=True, slots=True)
class Act:
    """The use of one element: its screen, its index on the screen, and the texts of its form."""

    screen: str
    element: int
    texts: Texts = ()


class ElementNotShown(ValueError):
    """The element is not on the screen in this state."""


class SearchTooLarge(ValueError):
    """A search for a path looked at `MOST_STATES` states; the goal is far away, or cannot be reached."""

    def __init__(self, goal: Goal) -> None:
        super().__init__(f"found no path to {goal} among {MOST_STATES} states")


class Machine:
    """The screens with their elements, the records, and the start.

    elements   the elements of each screen, by the screen's id
    records    every record by its name
    start      id of the first screen
    """

    def __init__(
        self, elements: Mapping[str, tuple[Element, ...]], records: Mapping[str, SiteRecord], start: str
    ) -> None:
        self.elements = elements
        self.records = records
        self.start = SiteState(start)
        self._transient = {name for name, record in records.items() if record.scope is Scope.TRANSIENT}

    def states(self) -> tuple[str, ...]:
        """Return the ids of all screens."""
        return tuple(self.elements)

    def value(self, state: SiteState, record: str) -> Value:
        """Return the value of a record."""
        return dict(state.changes).get(record, self.records[record].first)

    def values(self, state: SiteState) -> dict[str, Value]:
        """Return the values of all records by their names."""
        return {name: record.first for name, record in self.records.items()} | dict(state.changes)

    def failed_guard(self, state: SiteState, element: Element) -> RecordGuard | None:
        """Return the first guard of an element that does not hold; None when all hold."""
        return next((one for one in element.guards if not one.holds(self.value(state, one.record))), None)

    def shown(self, state: SiteState) -> list[int]:
        """Return the indices of the elements that the screen shows in this state."""
        elements = self.elements[state.screen]
        return [index for index, one in enumerate(elements) if self.failed_guard(state, one) is None]

    def fire(self, state: SiteState, act: Act) -> SiteState:
        """Return the state after an act. Raises ElementNotShown."""
        elements = self.elements.get(act.screen, ())
        if act.screen != state.screen or not 0 <= act.element < len(elements):
            raise ElementNotShown(f"expected an element of {state.screen}, got: {act}")
        element = elements[act.element]
        if (guard := self.failed_guard(state, element)) is not None:
            raise ElementNotShown(f"{element.label!r} is not shown on {state.screen}: {guard} does not hold")
        changed = {name: value for name, value in state.changes if name not in self._transient}
        for effect in element.effects:
            self._apply(changed, effect, dict(act.texts))
        kept = {name: value for name, value in changed.items() if value != self.records[name].first}
        return SiteState(element.target_of(act.texts) or state.screen, tuple(sorted(kept.items())))

    def successors(self, state: SiteState) -> Iterator[tuple[Act, SiteState]]:
        """Yield each act of a state with the state after it. Forms are sent with `SAMPLE_TEXT` and, where
        they have destinations, with each of their texts."""
        return _acts_for(self, state, {})

    def num_actions(self, path: Iterable[Act]) -> int:
        """Return how many actions the acts of a path take."""
        return sum(self.elements[act.screen][act.element].num_actions for act in path)

    def freely_reachable(self, start: str) -> set[str]:
        """Return the ids of the screens that can be reached from ``start`` whatever values the records have.

        Only `Scope.TRANSIENT` records may hide an element on the way. Includes ``start``."""
        found, waiting = {start}, [start]
        while waiting:
            new = self._free_targets[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    @cached_property
    def _free_targets(self) -> dict[str, set[str]]:
        """For each screen, the screens that its elements lead to. Elements that may be hidden by a record,
        other than a `Scope.TRANSIENT` one, do not count."""
        return {
            screen: {
                target
                for element in elements
                if all(guard.record in self._transient for guard in element.guards)
                for target in (element.target or screen, *(target for _, target in element.destinations))
            }
            for screen, elements in self.elements.items()
        }

    def distances(self) -> dict[str, int]:
        """Return the number of actions from the start to each screen, if only transient records hid elements.

        Other records can only make the way longer.
        """
        free = _reduced(self, self._transient)
        found: dict[str, int] = {}
        for state, num_actions in _in_order(free, free.start, {}, {}):
            found.setdefault(state.screen, num_actions)
        return found

    def is_reached(self, goal: Goal, state: SiteState) -> bool:
        """Whether ``state`` is a state of the goal, for a task that begins in the start state."""
        return (not goal.screen or state.screen == goal.screen) and not self.wrong_records(goal, state)

    def wrong_records(self, goal: Goal, state: SiteState) -> set[str]:
        """Return the names of the records that do not have the value that the goal wants.

        For a strict goal, these include all other `Scope.KEPT` records that do not have their first value."""
        wanted = dict(goal.records)
        wrong = {name for name, value in wanted.items() if self.value(state, name) != value}
        if not goal.is_strict:
            return wrong
        changed = {name for name, _ in state.changes if self.records[name].scope is Scope.KEPT}
        return wrong | (changed - set(wanted))

    def shortest_path(self, start: SiteState, goal: Goal) -> tuple[Act, ...] | None:
        """Return a path with the fewest actions from a state to a goal; None when there is none.

        The first search ignores all records except those of the goal. The path that it finds is tried on the
        machine. If a guard fails there, or a record ends with a wrong value, the next search includes this
        record. Ignoring records can add paths but never removes one, so a path that passes is a shortest one.
        Raises SearchTooLarge.
        """
        counted = {name for name, _ in goal.records}
        while True:
            begin = SiteState(start.screen, tuple(one for one in start.changes if one[0] in counted))
            path = _search(_reduced(self, counted), begin, goal)
            if path is None:
                return None
            missed = self._missed(start, path, goal)
            if not missed:
                return path
            counted |= missed

    def _missed(self, state: SiteState, path: Iterable[Act], goal: Goal) -> set[str]:
        """Return the records that make a path from ``state`` fail; empty when the path reaches the goal."""
        for act in path:
            guard = self.failed_guard(state, self.elements[act.screen][act.element])
            if guard is not None:
                return {guard.record}
            state = self.fire(state, act)
        return self.wrong_records(goal, state)

    def _apply(self, values: dict[str, Value], effect: Effect, texts: Mapping[str, str]) -> None:
        match effect:
            case Assign(record, TypedText(name)):
                values[record] = texts[name].strip()
            case Assign(record, str() | int() as value):
                values[record] = value
            case Add(record, amount):
                values[record] = int(values.get(record, self.records[record].first)) + amount
            case Toggle(record):
                values[record] = 1 - int(values.get(record, self.records[record].first))
            case Restore(prefix):
                for name in [name for name in values if name.startswith(prefix)]:
                    del values[name]


def texts_of(element: Element, wanted: Mapping[str, Value]) -> Iterator[Texts]:
    """Yield the texts with which a search sends a form; one empty tuple for an element without fields.

    wanted   values that records should get, by name of the record
    """
    if not element.fields:
        yield ()
        return
    typed = {
        effect.value.field: str(wanted[effect.record])
        for effect in element.effects
        if isinstance(effect, Assign) and isinstance(effect.value, TypedText) and effect.record in wanted
    }
    choices = [[typed.get(one.name, SAMPLE_TEXT)] for one in element.fields]
    choices[0] += [text for text, _ in element.destinations]
    for chosen in itertools.product(*choices):
        yield tuple(zip((one.name for one in element.fields), chosen, strict=True))


_CameFrom = dict[SiteState, tuple[SiteState, Act] | None]
"""The state and the act before each state that a search has looked at; None for the first."""


def _search(machine: Machine, start: SiteState, goal: Goal) -> tuple[Act, ...] | None:
    """Return a path with the fewest actions; None when there is none. Raises SearchTooLarge."""
    came_from: _CameFrom = {}
    for state, _ in _in_order(machine, start, dict(goal.records), came_from):
        if machine.is_reached(goal, state):
            return _acts_to(state, came_from)
        if len(came_from) >= MOST_STATES:
            raise SearchTooLarge(goal)
    return None


def _in_order(
    machine: Machine, start: SiteState, wanted: Mapping[str, Value], came_from: _CameFrom
) -> Iterator[tuple[SiteState, int]]:
    """Yield states with their numbers of actions from the start, the fewest first (Dijkstra's algorithm).

    came_from   is filled with the states that were yielded
    """
    numbers = itertools.count()
    queue: list[tuple[int, int, SiteState, tuple[SiteState, Act] | None]] = [(0, next(numbers), start, None)]
    while queue:
        num_actions, _, state, step = heapq.heappop(queue)
        if state in came_from:
            continue
        came_from[state] = step
        yield state, num_actions
        for act, after in _acts_for(machine, state, wanted):
            if after not in came_from:
                so_far = num_actions + machine.num_actions([act])
                heapq.heappush(queue, (so_far, next(numbers), after, (state, act)))


def _acts_for(
    machine: Machine, state: SiteState, wanted: Mapping[str, Value]
) -> Iterator[tuple[Act, SiteState]]:
    """Yield each act of a state and the state after the act. Forms are sent with the texts of `texts_of`."""
    for index in machine.shown(state):
        for texts in texts_of(machine.elements[state.screen][index], wanted):
            act = Act(state.screen, index, texts)
            yield act, machine.fire(state, act)


def _reduced(machine: Machine, counted: set[str]) -> Machine:
    """Return a machine with only the records ``counted``, and only the guards and effects on them."""
    elements = {
        screen: tuple(_without_records(one, counted) for one in elements)
        for screen, elements in machine.elements.items()
    }
    records = {name: record for name, record in machine.records.items() if name in counted}
    return Machine(elements, records, machine.start.screen)


def _without_records(element: Element, counted: set[str]) -> Element:
    return replace(
        element,
        effects=tuple(one for one in element.effects if isinstance(one, Restore) or one.record in counted),
        guards=tuple(one for one in element.guards if one.record in counted),
    )


def _acts_to(
    state: SiteState, came_from: Mapping[SiteState, tuple[SiteState, Act] | None]
) -> tuple[Act, ...]:
    acts: list[Act] = []
    while (step := came_from[state]) is not None:
        state, act = step
        acts.append(act)
    return tuple(reversed(acts))
