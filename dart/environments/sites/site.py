"""The definition of a site: its screens, what they show, its records, and the changes that tasks ask for.

A definition is data: screens made of blocks, and blocks made of texts and elements. `SiteDefinition.machine`
is the machine that follows from it, and `dart.environments.sites.html` draws its states. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from dart.environments.sites.machine import (
    Assign,
    Effect,
    Element,
    Kind,
    Machine,
    RecordGuard,
    Scope,
    SiteRecord,
    Toggle,
    Value,
)

MENU_RECORD, NOTICE_RECORD = "ui/menu", "ui/notice"
"""Records that every site has: whether the menu is open, and a message about the last transition."""

UI_RECORDS = {
    MENU_RECORD: SiteRecord(0, Scope.TRANSIENT),
    NOTICE_RECORD: SiteRecord("", Scope.TRANSIENT),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A text that shows the value of a record between ``before`` and ``after``.

    words   pairs of a value and the text that is shown in its place
    """

    record: str
    before: str = ""
    after: str = ""
    words: tuple[tuple[Value, str], ...] = ()

    def text(self, values: Mapping[str, Value]) -> str:
        """Return the text; ``values`` has the values of all records by name."""
        value = values[self.record]
        return f"{self.before}{dict(self.words).get(value, value)}{self.after}"


Text = str | Shown


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A short text, shown while its guards hold."""

    text: Text
    guards: tuple[RecordGuard, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """A table of labels and texts."""

    rows: tuple[tuple[str, Text], ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One line, card or cell of a listing, shown with its elements while its guards hold.

    title     a text, or the element that opens the item
    details   more texts, such as a date or a price
    actions   further elements, such as `Delete`
    """

    title: Element | Text
    details: tuple[Text, ...] = ()
    actions: tuple[Element, ...] = ()
    guards: tuple[RecordGuard, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """Items in rows, a table or cards. ``empty`` is the text that is shown when there is no item to show.

    columns   number of columns of a grid of cells, such as the days of a month; 0 for no grid
    """

    items: tuple[Item, ...]
    empty: str = "Nothing here."
    columns: int = 0


@dataclass(frozen=True, slots=True)
class Actions:
    """Elements side by side: buttons, links, check boxes or forms."""

    elements: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Tabs:
    """Tabs that switch between views of one thing: pairs of a label and a screen id.

    The tab of the screen that is shown is plain text and not an element."""

    views: tuple[tuple[str, str], ...]


Block = Paragraph | Facts | Listing | Actions | Tabs


@dataclass(frozen=True, slots=True)
class SiteScreen:
    """One page of a site.

    name     how an instruction names the page, such as `the order history`; different for each screen of a
             site
    title    heading of the page
    """

    id: str
    name: str
    title: str
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A change of records that a task can ask for.

    instructions   sentences with the same meaning, of which a task draws one
    records        pairs of a record's name and the wanted value
    """

    instructions: tuple[str, ...]
    records: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class SiteDefinition:
    """A whole web application.

    name        name of the site in task ids
    brand       name of the site on its pages
    navigation  pairs of label and screen id: the links that every page has
    menu        label of the menu that every page has, and its items: pairs of label and screen id
    changes     the changes of records that tasks can ask for
    search      the form that every page has, if any
    start       id of the first screen
    """

    name: str
    brand: str
    tagline: str
    navigation: tuple[tuple[str, str], ...]
    menu: tuple[str, tuple[tuple[str, str], ...]]
    screens: tuple[SiteScreen, ...]
    records: Mapping[str, SiteRecord]
    changes: tuple[RecordChange, ...]
    search: Element | None = None
    start: str = "home"
    by_id: Mapping[str, SiteScreen] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_id", {screen.id: screen for screen in self.screens})

    @cached_property
    def machine(self) -> Machine:
        """The machine of this site."""
        elements = {screen.id: tuple(self.elements_of(screen)) for screen in self.screens}
        return Machine(elements, self.machine_records, self.start)

    @cached_property
    def machine_records(self) -> dict[str, SiteRecord]:
        """The records of the definition and those that every site has, by name."""
        return UI_RECORDS | dict(self.records)

    def elements_of(self, screen: SiteScreen) -> Iterator[Element]:
        """Yield the elements of a screen in reading order."""
        yield from self.links_of(screen)
        yield from self.menu_of(screen)
        if self.search is not None:
            yield self.search
        for block in screen.blocks:
            yield from block_elements(block, screen.id)

    def links_of(self, screen: SiteScreen) -> Iterator[Element]:
        """Yield the links of the navigation, without a link to the screen itself."""
        for label, target in self.navigation:
            if target != screen.id:
                yield Element(Kind.LINK, label, target)

    def menu_of(self, screen: SiteScreen) -> Iterator[Element]:
        """Yield the element that opens the menu, the one that closes it, and the menu's items."""
        label, items = self.menu
        is_closed, is_open = RecordGuard(MENU_RECORD, "is", 0), RecordGuard(MENU_RECORD, "is", 1)
        yield Element(Kind.MENU, label, effects=(Assign(MENU_RECORD, 1),), guards=(is_closed,))
        yield Element(Kind.MENU, label, guards=(is_open,))
        for item, target in items:
            if target != screen.id:
                yield Element(Kind.MENU_ITEM, item, target, guards=(is_open,))


def block_elements(block: Block, screen: str) -> Iterator[Element]:
    """Yield the elements of a block of a screen in reading order."""
    match block:
        case Listing(items):
            for item in items:
                yield from item_elements(item)
        case Actions(elements):
            yield from elements
        case Tabs():
            yield from tab_elements(block, screen)
        case Paragraph() | Facts():
            return


def item_elements(item: Item) -> tuple[Element, ...]:
    """Return the elements of an item, its title first. Each element gets the guards of the item, too."""
    elements = (item.title, *item.actions) if isinstance(item.title, Element) else item.actions
    return tuple(replace(element, guards=item.guards + element.guards) for element in elements)


def tab_elements(tabs: Tabs, screen: str) -> Iterator[Element]:
    """Yield an element for each tab, except for the tab of the screen itself."""
    for label, target in tabs.views:
        if target != screen:
            yield Element(Kind.TAB, label, target)


# ---- parts of definitions ----


def notice(text: str) -> Assign:
    """Return the effect that shows a message after the transition, until the next transition."""
    return Assign(NOTICE_RECORD, text)


def link(label: str, target: str) -> Element:
    """Return a link to a screen."""
    return Element(Kind.LINK, label, target)


def button(label: str, effects: tuple[Effect, ...], guards: tuple[RecordGuard, ...] = ()) -> Element:
    """Return a button that changes records and leads to no other screen."""
    return Element(Kind.BUTTON, label, effects=effects, guards=guards)


def check_box(label: str, record: str) -> Element:
    """Return a check box that shows and toggles a record with the values 0 and 1."""
    return Element(Kind.CHECK_BOX, label, effects=(Toggle(record),))


def pages(items: list[Item], per_page: int) -> list[tuple[Item, ...]]:
    """Split the items into pages of ``per_page`` items; the last page may have fewer."""
    return [tuple(items[first : first + per_page]) for first in range(0, len(items), per_page)]
