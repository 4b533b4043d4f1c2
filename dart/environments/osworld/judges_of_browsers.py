"""Functions that judge what a browser shows and keeps, and accessibility trees, by the names OSWorld's tasks
call them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from dart.environments.osworld.addresses_of_pages import same_page
from dart.environments.osworld.judges_of_text import Rules
from dart.environments.osworld.likeness import text_likeness
from dart.environments.osworld.reading import library, text_of, tree_of

TREE_SPACES = {
    name: f"https://accessibility.ubuntu.example.org/ns/{space}"
    for name, space in {
        "st": "state",
        "attr": "attributes",
        "cp": "component",
        "doc": "document",
        "docattr": "document/attributes",
        "txt": "text",
        "val": "value",
        "act": "action",
    }.items()
}
"""Name spaces of the accessibility tree, by the prefixes tasks use; servers of other ages declare others."""

Tab = Mapping[str, str] | str | None
"""What is known of a tab: its address, by itself or as ``url``."""

# ---- tabs ----


def is_expected_active_tab(tab: Tab, rule: Rules) -> float:
    return float(bool(tab) and same_page(_address(tab), _wanted(rule)))


def is_expected_active_tab_approximate(tab: Tab, rule: Rules) -> float:
    """Apart from what follows the question mark."""
    return float(bool(tab) and _without_query(_address(tab)) == _without_query(_wanted(rule)))


def is_expected_url_pattern_match(tab: Tab, rules: Rules) -> float:
    """Every pattern is found in the address."""
    return float(bool(tab) and all(re.search(one, _address(tab)) for one in rules["expected"]))


def is_expected_search_query(tab: Tab, rules: Rules) -> float:
    return float(re.search(rules["expect"]["pattern"], _address(tab)) is not None)


def is_expected_tabs(tabs: Sequence[Mapping[str, str]], rule: Rules) -> float:
    """As many tabs as expected, and each of those expected is among them."""
    if rule["type"] != "url":
        raise NotImplementedError(f"tabs by {rule['type']!r}")
    found = [tab["url"] for tab in tabs]
    return float(
        len(found) == len(rule["urls"])
        and all(any(same_page(wanted, one) for one in found) for wanted in rule["urls"])
    )


def _wanted(rule: Rules) -> str:
    if rule["type"] != "url":
        raise NotImplementedError(f"tabs by {rule['type']!r}")
    return str(rule["url"])


def _address(tab: Tab) -> str:
    return str(tab.get("url", "") if isinstance(tab, Mapping) else tab or "")


def _without_query(address: str) -> str:
    return urlunsplit(urlsplit(address)._replace(query=""))


# ---- what is kept ----


def is_expected_bookmarks(bookmarks: Mapping[str, Any], rule: Rules) -> float:
    """Folders or pages of the bookmark bar, or pages of its folder `Liked Authors`."""
    if not bookmarks:
        return 0.0
    bar = bookmarks["bookmark_bar"]["children"]
    match rule["type"]:
        case "bookmark_bar_folders_names":
            return float(_of(bar, "folder", "name") == set(rule["names"]))
        case "bookmark_bar_websites_urls":
            return float(_of(bar, "url", "url") == set(rule["urls"]))
        case "liked_authors_websites_urls":
            folder = [one for one in bar if one["type"] == "folder" and one["name"] == "Liked Authors"]
            choices = [[url] if isinstance(url, str) else url for url in rule["urls"]]
            found = _of(folder[0]["children"], "url", "url") if folder else set()
            return float(bool(folder) and any(set(one) == found for one in product(*choices)))
        case other:
            raise NotImplementedError(f"bookmarks by {other!r}")


def _of(entries: Sequence[Mapping[str, Any]], type_: str, key: str) -> set[str]:
    return {one[key] for one in entries if one["type"] == type_}


def is_cookie_deleted(cookies: Sequence[Sequence[Any]], rule: Rules) -> float:
    """No cookie of these domains; the domain is the second column."""
    if rule["type"] != "domains":
        raise NotImplementedError(f"cookies by {rule['type']!r}")
    return float(not any(same_page(domain, cookie[1]) for domain in rule["domains"] for cookie in cookies))


def check_history_deleted(visits: Sequence[Sequence[Any]], rule: Rules) -> float:
    """No address that was visited, the first column, has one of these words."""
    if rule["type"] != "keywords":
        raise NotImplementedError(f"visits by {rule['type']!r}")
    return float(not any(word in visit[0] for word in rule["keywords"] for visit in visits))


def is_shortcut_on_desktop(shortcuts: Mapping[str, str], rule: Rules) -> float:
    """A starter on the desktop has this name, or runs this."""
    keys = {"name": "Name", "exec": "Exec"}
    if rule["type"] not in keys:
        raise NotImplementedError(f"shortcuts by {rule['type']!r}")
    line = f"{keys[rule['type']]}={rule[rule['type']]}"
    return float(any(line in text.splitlines() for text in shortcuts.values()))


def check_enabled_experiments(experiments: Sequence[str], rule: Rules) -> float:
    """These experiments, in this order, and no others."""
    if rule["type"] != "names":
        raise NotImplementedError(f"experiments by {rule['type']!r}")
    return float([one.partition("@")[0] for one in experiments] == rule["names"])


def check_font_size(sizes: Mapping[str, Any], rule: Rules) -> float:
    """The size of letters is this one, or strictly between two."""
    size = sizes["default_font_size"]
    match rule["type"]:
        case "value":
            return float(size == rule["value"])
        case "range":
            return float(rule["min"] < size < rule["max"])
        case other:
            raise NotImplementedError(f"sizes by {other!r}")


def is_expected_installed_extensions(names: Sequence[str], rules: Rules) -> float:
    """All of these, and perhaps others."""
    return float(set(rules["expected"]) <= set(names))


# ---- pages and trees ----


class _Page(HTMLParser):
    """A page as a list of its elements, with their attributes, and its texts."""

    def __init__(self, ignored: set[str]) -> None:
        super().__init__()
        self._ignored = ignored
        self.parts: list[Any] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parts.append((tag, {name: value for name, value in attrs if name not in self._ignored}))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.parts.append(data.strip())


def compare_htmls(result: Path, expected: Path, *, ignore_sdnum: bool = False) -> float:
    """The same elements, attributes and texts in the same order, spaces at their ends apart.

    ignore_sdnum   leave out the attribute in which LibreOffice writes how it counts
    """
    found, wanted = (_parts(path, {"sdnum"} if ignore_sdnum else set()) for path in (result, expected))
    return float(found == wanted)


def _parts(path: Path, ignored: set[str]) -> list[Any]:
    page = _Page(ignored)
    page.feed(text_of(path))
    page.close()
    return page.parts


def check_accessibility_tree(tree: str, rules: Sequence[Rules], *, osname: str = "ubuntu") -> float:
    """Every rule selects something, by ``xpath`` or by CSS ``selectors``.

    Where it says a text, the likeness of the likest element's text counts; with ``exact``, which is the
    default, all or nothing.
    """
    if osname != "ubuntu":
        raise NotImplementedError(f"accessibility trees of {osname!r}")
    root = tree_of(tree)
    spaces = {**TREE_SPACES, **{name: space for name, space in root.nsmap.items() if name}}
    score = 1.0
    for rule in rules:
        found = list(_selected(root, rule, spaces))
        if not found:
            return 0.0
        if "text" in rule:
            score *= max(_text_score(element.text or "", rule) for element in found)
    return score


def _selected(root: Any, rule: Rules, spaces: Mapping[str, str]) -> Iterator[Any]:
    if "xpath" in rule:
        return iter(root.xpath(rule["xpath"], namespaces=spaces))
    css = library("lxml.cssselect", "cssselect")
    return iter(css.CSSSelector(", ".join(rule["selectors"]), namespaces=spaces)(root))


def _text_score(text: str, rule: Rules) -> float:
    return float(text == rule["text"]) if rule.get("exact", True) else text_likeness(rule["text"], text)
