"""Checks of a site's definition: every mistake that can be found without a browser. Pure."""

from collections import Counter
from collections.abc import Iterator

from dart.environments.sites.machine import (
    Assign,
    Element,
    Goal,
    Kind,
    Machine,
    Restore,
    Toggle,
    TypedText,
)
from dart.environments.sites.site import SiteDefinition, SiteScreen

LEAST_SCREENS, MOST_SCREENS = 50, 200
"""Smallest and largest number of screens of a site."""


class SiteInvalid(ValueError):
    """The definition of a site has mistakes; the message lists all of them."""

    def __init__(self, site: str, mistakes: list[str]) -> None:
        super().__init__(f"the site {site} has {len(mistakes)} mistakes:\n" + "\n".join(mistakes))
        self.mistakes = mistakes


def check(site: SiteDefinition) -> None:
    """Raise SiteInvalid when the definition has mistakes."""
    if mistakes := list(mistakes_of(site)):
        raise SiteInvalid(site.name, mistakes)


def mistakes_of(site: SiteDefinition) -> Iterator[str]:
    """Yield every mistake of a definition."""
    if not LEAST_SCREENS <= len(site.screens) <= MOST_SCREENS:
        yield f"expected {LEAST_SCREENS} to {MOST_SCREENS} screens, got {len(site.screens)}"
    yield from _duplicates(site)
    broken = [one for screen in site.screens for one in _broken_elements(site, screen)]
    yield from broken
    if site.start not in site.by_id:
        yield f"the first screen {site.start!r} is not defined"
    elif not broken:
        yield from _unconnected(site.machine)
    yield from _unknown_goals(site)


def _duplicates(site: SiteDefinition) -> Iterator[str]:
    for what, found in (
        ("id", [screen.id for screen in site.screens]),
        ("name", [screen.name for screen in site.screens]),
    ):
        for value, count in Counter(found).items():
            if count > 1:
                yield f"{count} screens have the {what} {value!r}"
    for (title, blocks), count in Counter((screen.title, screen.blocks) for screen in site.screens).items():
        if count > 1 and blocks:
            same = [one.id for one in site.screens if (one.title, one.blocks) == (title, blocks)]
            yield f"the screens {', '.join(same)} look the same"


def _broken_elements(site: SiteDefinition, screen: SiteScreen) -> Iterator[str]:
    elements = list(site.elements_of(screen))
    for element, count in Counter(elements).items():
        place = f"{element.kind} {element.label!r} of screen {screen.id}"
        if count > 1:
            yield f"{place} is defined {count} times"
        yield from (f"{place} {mistake}" for mistake in _mistakes_of_element(site, element))


def _mistakes_of_element(site: SiteDefinition, element: Element) -> Iterator[str]:
    if not element.label.strip():
        yield "has no label, so a user cannot find it"
    for target in (element.target, *(screen for _, screen in element.destinations)):
        if target and target not in site.by_id:
            yield f"leads to the screen {target!r}, which is not defined"
    if not (element.target or element.effects or element.destinations or element.kind is Kind.MENU):
        yield "neither leads to a screen nor changes a record"
    records = site.machine_records
    for guard in element.guards:
        if guard.record not in records:
            yield f"has a guard on the record {guard.record!r}, which is not defined"
    fields = {one.name for one in element.fields}
    for effect in element.effects:
        if isinstance(effect, Restore):
            if not any(name.startswith(effect.prefix) for name in records):
                yield f"restores the records that begin with {effect.prefix!r}, but there are none"
        elif effect.record not in records:
            yield f"changes the record {effect.record!r}, which is not defined"
        if (
            isinstance(effect, Toggle)
            and records.get(effect.record)
            and records[effect.record].first not in (0, 1)
        ):
            yield f"toggles the record {effect.record!r}, which does not begin with 0 or 1"
        if (
            isinstance(effect, Assign)
            and isinstance(effect.value, TypedText)
            and effect.value.field not in fields
        ):
            yield f"stores the text of the field {effect.value.field!r}, which it does not have"
    if (element.kind is Kind.FORM) != bool(element.fields):
        yield "has no fields" if element.kind is Kind.FORM else "has fields but is not a form"


def _unconnected(machine: Machine) -> Iterator[str]:
    """Yield a mistake for each screen that the first screen does not lead to, or that does not lead back."""
    free = machine.freely_reachable(machine.start.screen)
    for screen in machine.states():
        if screen not in free and machine.shortest_path(machine.start, Goal(screen, is_strict=False)) is None:
            yield f"nothing leads to the screen {screen}"
        if machine.start.screen not in machine.freely_reachable(screen):
            yield f"the screen {screen} is a dead end: nothing leads back to {machine.start.screen}"


def _unknown_goals(site: SiteDefinition) -> Iterator[str]:
    for change in site.changes:
        for name, _ in change.records:
            if name not in site.machine_records:
                yield f"the task {change.instructions[0]!r} wants the record {name!r}, which is not defined"
    for sentence, count in Counter(change.instructions[0] for change in site.changes).items():
        if count > 1:
            yield f"{count} tasks say {sentence!r}"
