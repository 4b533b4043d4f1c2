"""The windows, the focus and the window manager of an X server, as python-xlib shows them.

The guest of a local desktop imports this module. OSWorld's environment sends its source text to virtual
machines (`dart.environments.osworld.readiness`), so it needs nothing but Python 3.8 and python-xlib.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from Xlib import X
from Xlib.error import XError


def property_of(screen: Any, window: Any, name: str) -> Any:
    """Return the value of a window's property; None when it is missing or the window is gone."""
    try:
        found = window.get_full_property(screen.get_atom(name), X.AnyPropertyType)
    except XError:
        return None
    return found.value if found is not None and len(found.value) else None


def window_manager(screen: Any) -> str:
    """Return the name of the running window manager; empty when there is none."""
    check = property_of(screen, screen.screen().root, "_NET_SUPPORTING_WM_CHECK")
    if check is None:
        return ""
    window = screen.create_resource_object("window", check[0])
    again = property_of(screen, window, "_NET_SUPPORTING_WM_CHECK")
    if again is None or again[0] != check[0]:
        return ""
    return _text(property_of(screen, window, "_NET_WM_NAME")) or "nameless"


def managed_windows(screen: Any) -> list[Any]:
    """Return the windows that the window manager lists, in the order they were opened."""
    ids = property_of(screen, screen.screen().root, "_NET_CLIENT_LIST")
    return [screen.create_resource_object("window", id_) for id_ in (() if ids is None else ids)]


def active_id(screen: Any) -> int:
    """Return the id of the active window; 0 when no window is active."""
    active = property_of(screen, screen.screen().root, "_NET_ACTIVE_WINDOW")
    return 0 if active is None else int(active[0])


def described_windows(screen: Any) -> list[dict[str, Any]]:
    """Describe the windows that the window manager lists; a window that closes meanwhile is left out."""
    found = []
    for window in managed_windows(screen):
        with contextlib.suppress(XError):
            found.append(_described(screen, window))
    return found


def title_of(screen: Any, window: Any) -> str:
    """Return the title of a window; empty when it has none."""
    return _text(property_of(screen, window, "_NET_WM_NAME") or property_of(screen, window, "WM_NAME"))


def class_of(screen: Any, window: Any) -> list[str]:
    """Return the two names of a window's class; none when it has no class or is gone."""
    return [name for name in _text(property_of(screen, window, "WM_CLASS")).split("\0") if name]


def _described(screen: Any, window: Any) -> dict[str, Any]:
    size, place = window.get_geometry(), window.translate_coords(screen.screen().root, 0, 0)
    pid = property_of(screen, window, "_NET_WM_PID")
    kind = property_of(screen, window, "_NET_WM_WINDOW_TYPE")
    return {
        "id": int(window.id),
        "title": title_of(screen, window),
        "window_class": class_of(screen, window),
        "kind": "" if kind is None else screen.get_atom_name(kind[0]).rpartition("_")[2].lower(),
        "pid": 0 if pid is None else int(pid[0]),
        "state": "" if pid is None else process_state(int(pid[0])),
        "x": -place.x,
        "y": -place.y,
        "width": size.width,
        "height": size.height,
    }


def process_state(pid: int) -> str:
    """Return the process state of /proc/PID/stat, one letter; ``gone`` when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return "gone"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
