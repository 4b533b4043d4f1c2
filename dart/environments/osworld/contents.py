"""What is read out of the files of applications: a browser's settings and databases, presentations, trees.

Each function takes a guest's file or text and runs in a process of its own.
"""

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from dart.environments.osworld.judges_of_browsers import TREE_SPACES
from dart.environments.osworld.reading import json_of, member_of, reading, tree_of, xml_in

ADDRESS_BAR = '//application[@name="Google Chrome"]//entry[@name="Address and search bar"]'

_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_BLIP = "{http://schemas.openxmlformats.org/drawingml/2006/main}blip"
_EMBED = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}embed"
_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"

FONT_SIZES = {"default_fixed_font_size": 13, "default_font_size": 16, "minimum_font_size": 13}


def _is_startup_new(data: Mapping[str, Any]) -> bool:
    """It begins with a new tab, which is also what it does when nothing is said."""
    return "session" not in data or data["session"].get("restore_on_startup") == 5


def _extensions(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(data.get("extensions", {}).get("settings", {}).values())


def _said(value: object) -> str:
    return "true" if value else "false"


def _engine(data: Mapping[str, Any]) -> Any:
    provider = data.get("default_search_provider_data", {}).get("template_url_data", {})
    return provider.get("short_name", "Google")


IN_PREFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "default_search_engine": _engine,
    "profile_name": lambda data: data.get("profile", {}).get("name"),
    "chrome_font_size": lambda data: data.get("webkit", {}).get("webprefs", FONT_SIZES),
    "enable_do_not_track": lambda data: _said(data.get("enable_do_not_track")),
    "enable_enhanced_safety_browsing": lambda data: _said(data.get("safebrowsing", {}).get("enhanced")),
    "enable_safe_browsing": lambda data: _said(
        data.get("safebrowsing", {}).get("enhanced") or data.get("safebrowsing", {}).get("enabled")
    ),
    "new_startup_page": lambda data: _said(_is_startup_new(data)),
    "data_delete_automacally": lambda data: _said(
        data.get("profile", {}).get("default_content_setting_values") is not None
    ),
    "find_unpacked_extension_path": lambda data: [one["path"] for one in _extensions(data) if "path" in one],
    "find_installed_extension_name": lambda data: [
        one["manifest"]["name"] for one in _extensions(data) if "name" in one.get("manifest", {})
    ],
}
"""What is looked at in Chrome's preferences, by type."""

IN_LOCAL_STATE: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "enabled_experiments": lambda data: data.get("browser", {}).get("enabled_labs_experiments", []),
    "chrome_language": lambda data: data.get("intl", {}).get("app_locale", "en-US"),
}

IN_BOOKMARKS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "bookmarks": lambda data: data.get("roots", {}),
}


def chrome_value(path: Path, type_: str) -> Any:
    """What is looked at in a file of Chrome's. Raises Unreadable."""
    value_of = {**IN_PREFERENCES, **IN_LOCAL_STATE, **IN_BOOKMARKS}[type_]
    data = json_of(path)
    with reading(path, "settings file of Chrome"):
        return value_of(data)


def address_in(tree: str) -> str:
    """What the address bar of the last browser in an accessibility tree says; empty without one."""
    bars = tree_of(tree).xpath(ADDRESS_BAR, namespaces=TREE_SPACES)
    return (bars[-1].text or "").strip() if bars else ""


def linked_in(path: Path, slide: int, kind: str) -> tuple[str, bytes | None]:
    """What a slide links to, the picture ``behind`` it or its ``audio``: its address, empty when there is no
    such link, and its content when the presentation has it. Raises Unreadable."""
    relations = xml_in(path, f"ppt/slides/_rels/slide{slide + 1}.xml.rels")
    links = list(relations.iter(_RELATION)) if relations is not None else []
    ids = _behind(path, slide) if kind == "behind" else None
    targets = [
        one.get("Target", "")
        for one in links
        if ("audio" if ids is None else "image") in one.get("Type", "")
        and (ids is None or one.get("Id") in ids)
    ]
    target = targets[0] if targets else ""
    if not target or target.startswith("file://"):
        return target, None
    return target, member_of(path, str(PurePosixPath("ppt") / target.removeprefix("../")))


def _behind(path: Path, slide: int) -> list[str | None]:
    """Ids of the pictures behind a slide."""
    root = xml_in(path, f"ppt/slides/slide{slide + 1}.xml")
    parts = root.iter(f"{_P}bgPr") if root is not None else ()
    return [blip.get(_EMBED) for part in parts for blip in part.iter(_BLIP)]
