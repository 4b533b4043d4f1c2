"""Actions as the browser's input events: trusted mouse and key events at CSS pixels. Pure.

An action becomes a list of Chrome DevTools Protocol calls (method, parameters). Events of the protocol's
Input domain are ``isTrusted`` like those of a real mouse and keyboard, and native widgets react to them.

The events that were sent are compared with those that the screen counted, which shows a lost or doubled
action. The page counts pointer events, not mouse events: a disabled button receives no mouse events, and a
page that cancels a pointer event suppresses the mouse event that follows it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dart.core.actions import (
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    RightSingle,
    Scroll,
    Type,
    Wait,
)

Call = tuple[str, dict[str, Any]]

Key = tuple[str, str, int]
"""DOM key, DOM code, Windows virtual key code."""

DRAG_MOVES = 6
"""Number of mouse moves between press and release. Drag libraries start a drag after the first few."""

SCROLL_DELTAS = {"up": (0, -100), "down": (0, 100), "left": (-100, 0), "right": (100, 0)}
"""Pixels (x, y) of one `Scroll` by its direction: one notch of a mouse wheel."""

BUTTON_BITS = {"none": 0, "left": 1, "right": 2}
CTRL, SHIFT = 2, 8
MODIFIERS: dict[str, tuple[int, Key]] = {
    "alt": (1, ("Alt", "AltLeft", 18)),
    "ctrl": (CTRL, ("Control", "ControlLeft", 17)),
    "meta": (4, ("Meta", "MetaLeft", 91)),
    "shift": (SHIFT, ("Shift", "ShiftLeft", 16)),
}
"""For each modifier: its key, and the bit that the events of other keys carry while it is held."""

NAMED_KEYS: dict[str, Key] = {
    "enter": ("Enter", "Enter", 13),
    "tab": ("Tab", "Tab", 9),
    "esc": ("Escape", "Escape", 27),
    "space": (" ", "Space", 32),
    "backspace": ("Backspace", "Backspace", 8),
    "delete": ("Delete", "Delete", 46),
    "up": ("ArrowUp", "ArrowUp", 38),
    "down": ("ArrowDown", "ArrowDown", 40),
    "left": ("ArrowLeft", "ArrowLeft", 37),
    "right": ("ArrowRight", "ArrowRight", 39),
    "home": ("Home", "Home", 36),
    "end": ("End", "End", 35),
    "pageup": ("PageUp", "PageUp", 33),
    "pagedown": ("PageDown", "PageDown", 34),
    **{f"f{n}": (f"F{n}", f"F{n}", 111 + n) for n in range(1, 13)},
}
KEY_TEXT = {"enter": "\r", "space": " "}
"""Named keys that also produce a character."""

EDIT_COMMANDS = {"a": "selectAll", "c": "copy", "v": "paste", "x": "cut", "z": "undo"}
"""Editing command of ctrl with each letter. A headless browser runs it only if the key event names it."""


def input_calls(action: Action) -> list[Call]:
    """Return the calls that perform ``action``, in order; none for `Wait`, `Finished` and `CallUser`."""
    match action:
        case Click(x, y):
            return [_mouse("mouseMoved", x, y), *_press(x, y, "left", 1)]
        case LeftDouble(x, y):
            return [_mouse("mouseMoved", x, y), *_press(x, y, "left", 1), *_press(x, y, "left", 2)]
        case RightSingle(x, y):
            return [_mouse("mouseMoved", x, y), *_press(x, y, "right", 1)]
        case Drag():
            return list(_drag(action))
        case Hotkey(keys):
            return list(_hotkey(keys))
        case Type(content):
            return [call for character in content for call in _character(character)]
        case Scroll(x, y, direction):
            dx, dy = SCROLL_DELTAS[direction]
            method, wheel = _mouse("mouseWheel", x, y)
            return [(method, wheel | {"deltaX": dx, "deltaY": dy})]
        case Wait() | Finished() | CallUser():
            return []


def _mouse(kind: str, x: float, y: float, button: str = "none", count: int = 0, held: str = "none") -> Call:
    pointer = {"type": kind, "x": x, "y": y, "button": button, "clickCount": count}
    return "Input.dispatchMouseEvent", pointer | {"buttons": BUTTON_BITS[held]}


def _press(x: int, y: int, button: str, count: int) -> tuple[Call, Call]:
    """Return a press and a release of a mouse button; ``count`` is 2 for the second of a double click."""
    return (
        _mouse("mousePressed", x, y, button, count, held=button),
        _mouse("mouseReleased", x, y, button, count),
    )


def _drag(drag: Drag) -> Iterator[Call]:
    yield _mouse("mouseMoved", drag.x, drag.y)
    yield _mouse("mousePressed", drag.x, drag.y, "left", 1, held="left")
    for move in range(1, DRAG_MOVES + 1):
        part = move / DRAG_MOVES
        x, y = drag.x + (drag.end_x - drag.x) * part, drag.y + (drag.end_y - drag.y) * part
        yield _mouse("mouseMoved", x, y, "left", held="left")
    yield _mouse("mouseReleased", drag.end_x, drag.end_y, "left", 1)


def _hotkey(keys: tuple[str, ...]) -> Iterator[Call]:
    *held, last = keys
    modifiers = 0
    for modifier in held:
        bit, key = MODIFIERS[modifier]
        modifiers |= bit
        yield _key("rawKeyDown", key, modifiers)
    yield from _last_key(last, modifiers)
    for modifier in reversed(held):
        bit, key = MODIFIERS[modifier]
        modifiers &= ~bit
        yield _key("keyUp", key, modifiers)


def _last_key(name: str, modifiers: int) -> Iterator[Call]:
    key = NAMED_KEYS.get(name) or _character_key(name)
    text = KEY_TEXT.get(name, name if len(name) == 1 else "") if modifiers in (0, SHIFT) else ""
    if modifiers == SHIFT:
        text = text.upper()
    command = EDIT_COMMANDS.get(name, "") if modifiers == CTRL else ""
    yield _key("keyDown" if text else "rawKeyDown", key, modifiers, text, command)
    yield _key("keyUp", key, modifiers)


def _character(character: str) -> tuple[Call, Call]:
    if character == "\n":
        return _key("keyDown", NAMED_KEYS["enter"], text="\r"), _key("keyUp", NAMED_KEYS["enter"])
    key = _character_key(character)
    return _key("keyDown", key, text=character), _key("keyUp", key)


def _character_key(character: str) -> Key:
    """Return the key that types ``character``; its code is empty if that key depends on the keyboard
    layout."""
    if character.isascii() and character.isalpha():
        return character, f"Key{character.upper()}", ord(character.upper())
    if character.isascii() and character.isdigit():
        return character, f"Digit{character}", ord(character)
    return NAMED_KEYS["space"] if character == " " else (character, "", 0)


def _key(kind: str, key: Key, modifiers: int = 0, text: str = "", command: str = "") -> Call:
    name, code, key_code = key
    event: dict[str, Any] = {"type": kind, "key": name, "code": code, "modifiers": modifiers}
    event["windowsVirtualKeyCode"] = key_code
    if text:
        event["text"] = text
    if command:
        event["commands"] = [command]
    return "Input.dispatchKeyEvent", event


# ---- what arrived ----

InputCounts = Counter[str]
"""Number of events by their name in the page: pointerdown, pointerup, keydown, keyup; and wheel, in pixels,
because a browser may split one wheel event into two."""

EVENT_OF = {
    "mousePressed": "pointerdown",
    "mouseReleased": "pointerup",
    "keyDown": "keydown",
    "rawKeyDown": "keydown",
    "keyUp": "keyup",
}


def expected_counts(calls: Iterable[Call]) -> InputCounts:
    """Return the number of events of each kind that the page counts when it receives just these calls."""
    counted: InputCounts = Counter()
    for _, event in calls:
        if event["type"] in EVENT_OF:
            counted[EVENT_OF[event["type"]]] += 1
        elif event["type"] == "mouseWheel":
            counted["wheel"] += int(abs(event["deltaX"]) + abs(event["deltaY"]))
    return counted


def differences(sent: Mapping[str, int], arrived: Mapping[str, int]) -> str:
    """Describe the events whose number differs, such as `2 of 1 pointerdown`; empty when none does."""
    counts = {name: (arrived.get(name, 0), sent.get(name, 0)) for name in sorted({*sent, *arrived})}
    return ", ".join(f"{came} of {went} {name}" for name, (came, went) in counts.items() if came != went)
