"""Draws the states of a site as HTML pages in the look of the site. Pure.

Every element carries its index in the machine as ``data-element``, so that the page can report which element
was used. A page is self-contained: the browser has to fetch nothing else.
"""

from collections.abc import Iterator, Mapping
from html import escape

from dart.environments.sites.machine import Element, Kind, SiteState, Toggle, Value
from dart.environments.sites.site import (
    MENU_RECORD,
    NOTICE_RECORD,
    Actions,
    Block,
    Facts,
    Item,
    Listing,
    Paragraph,
    SiteDefinition,
    SiteScreen,
    Tabs,
    Text,
    item_elements,
    tab_elements,
)
from dart.environments.sites.style import Style, classes_of, css_of


def document_html(site: SiteDefinition, style: Style, state: SiteState) -> str:
    """Return the whole HTML document of a state."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(site.brand)}</title>'
        f"<style>{css_of(style)}</style></head>"
        f'<body class="{classes_of(style)}">{body_html(site, state)}</body></html>'
    )


def body_html(site: SiteDefinition, state: SiteState) -> str:
    """Return the body of a state's HTML document. The rest of the document is the same for all states."""
    return _Drawing(site, state).body()


class _Drawing:
    """Draws one state of a site."""

    def __init__(self, site: SiteDefinition, state: SiteState) -> None:
        self._site = site
        self._screen: SiteScreen = site.by_id[state.screen]
        machine = site.machine
        self._values: Mapping[str, Value] = machine.values(state)
        elements = machine.elements[state.screen]
        self._shown = {elements[index]: index for index in machine.shown(state)}

    def body(self) -> str:
        """Return the body of the document."""
        site, notice = self._site, self._values[NOTICE_RECORD]
        search = "" if site.search is None else self._element(site.search)
        said = f'<p class="notice">{escape(str(notice))}</p>' if notice else ""
        blocks = "".join(map(self._block, self._screen.blocks))
        return (
            f'<div class="site"><header><div class="brand">{escape(site.brand)}</div>{search}{self._menu()}'
            f"</header><nav>{self._navigation()}</nav><main><h1>{escape(self._screen.title)}</h1>{said}{blocks}"
            f"</main><footer>{escape(site.tagline)}</footer></div>"
        )

    def _navigation(self) -> str:
        links = {element.target: element for element in self._site.links_of(self._screen)}
        return "".join(
            _tag("a", links[target], self._shown[links[target]], escape(label))
            if target in links
            else f"<span>{escape(label)}</span>"
            for label, target in self._site.navigation
        )

    def _menu(self) -> str:
        shown = [one for one in self._site.menu_of(self._screen) if one in self._shown]
        head, *items = shown
        opener = _tag("button", head, self._shown[head], f"{escape(head.label)} ▾")
        listed = "".join(_tag("a", one, self._shown[one], escape(one.label)) for one in items)
        return (
            f'<div class="menu">{opener}{f"<div>{listed}</div>" if self._values[MENU_RECORD] else ""}</div>'
        )

    def _block(self, block: Block) -> str:
        match block:
            case Paragraph(text, guards):
                holds = all(guard.holds(self._values[guard.record]) for guard in guards)
                return f'<p class="lead">{self._text(text)}</p>' if holds else ""
            case Facts(rows):
                facts = "".join(f"<dt>{escape(name)}</dt><dd>{self._text(text)}</dd>" for name, text in rows)
                return f"<dl>{facts}</dl>"
            case Listing():
                return self._listing(block)
            case Actions(elements):
                drawn = "".join(map(self._element, elements))
                return f'<div class="actions">{drawn}</div>' if drawn else ""
            case Tabs():
                return f'<div class="tabs">{"".join(self._tabs(block))}</div>'

    def _listing(self, listing: Listing) -> str:
        items = "".join(map(self._item, listing.items))
        if not items:
            return f'<p class="empty">{escape(listing.empty)}</p>'
        if listing.columns:
            return (
                f'<div class="listing grid" style="grid-template-columns: repeat({listing.columns}, 1fr)">'
                f"{items}</div>"
            )
        return f'<div class="listing rows">{items}</div>'

    def _item(self, item: Item) -> str:
        if not all(guard.holds(self._values[guard.record]) for guard in item.guards):
            return ""
        elements = list(item_elements(item))
        title = (
            self._element(elements.pop(0))
            if isinstance(item.title, Element)
            else f"<b>{self._text(item.title)}</b>"
        )
        details = "".join(f' <span class="detail">{self._text(text)}</span>' for text in item.details)
        actions = "".join(map(self._element, elements))
        return f'<div class="item"><div class="texts">{title}{details}</div>{actions}</div>'

    def _tabs(self, tabs: Tabs) -> Iterator[str]:
        elements = {element.target: element for element in tab_elements(tabs, self._screen.id)}
        for label, target in tabs.views:
            element = elements.get(target)
            yield f"<span>{escape(label)}</span>" if element is None else self._element(element)

    def _element(self, element: Element) -> str:
        """Return the HTML of an element; empty when the state does not show the element."""
        index = self._shown.get(element)
        if index is None:
            return ""
        label = escape(element.label)
        match element.kind:
            case Kind.FORM:
                return self._form(element, index)
            case Kind.CHECK_BOX:
                return self._check_box(element, index)
            case Kind.BUTTON:
                return _tag("button", element, index, label, "button")
            case _:
                return _tag("a", element, index, label, "link" if element.kind is Kind.LINK else "")

    def _check_box(self, element: Element, index: int) -> str:
        record = next(effect.record for effect in element.effects if isinstance(effect, Toggle))
        is_on = bool(self._values[record])
        inner = f"<i></i>{escape(element.label)}"
        return _tag(
            "a",
            element,
            index,
            inner,
            "check on" if is_on else "check",
            f' aria-checked="{str(is_on).lower()}"',
        )

    def _form(self, element: Element, index: int) -> str:
        fields = "".join(
            f'<label class="field"><span>{escape(one.label)}</span>'
            f'<input type="text" name="{escape(one.name)}" placeholder="{escape(one.label)}" maxlength="60" '
            'autocomplete="off" spellcheck="false"></label>'
            for one in element.fields
        )
        send = f'<button class="button" type="submit">{escape(element.label)}</button>'
        return f'<form data-element="{index}" novalidate>{fields}{send}</form>'

    def _text(self, text: Text) -> str:
        return escape(text if isinstance(text, str) else text.text(self._values))


_ROLES = {Kind.TAB: "tab", Kind.MENU: "button", Kind.MENU_ITEM: "menuitem", Kind.CHECK_BOX: "checkbox"}


def _tag(tag: str, element: Element, index: int, inner: str, classes: str = "", more: str = "") -> str:
    """Return the HTML of an element that a user clicks.

    inner     HTML between the tags
    classes   CSS classes
    more      further attributes, each with a space before it
    """
    role = f' role="{_ROLES[element.kind]}"' if element.kind in _ROLES else ""
    address = f' href="/{escape(element.target)}"' if tag == "a" else ' type="button"'
    look = f' class="{classes}"' if classes else ""
    return f'<{tag} data-element="{index}"{address}{role}{look}{more}>{inner}</{tag}>'
