"""Actions as the browser's input events: trusted mouse and key events at CSS pixels. Pure.

An action becomes a list of Chrome DevTools Protocol calls (method, parameters). Events of the protocol's
Input domain are ``isTrusted`` like those of a real mouse and keyboard, and native widgets react to them.

The events that were sent are compared with those that the screen counted, which shows a lost or doubled
action. The page counts pointer events, not mouse events: a disabled button receives no mouse events, and a
page that cancels a pointer event suppresses the mouse event that follows it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dart.core.actions import (
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    Hover,
    KeyDown,
    KeyUp,
    LeftDouble,
    RightSingle,
    Scroll,
    ScrollHere,
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

SLOWEST_KEY_S = 0.02
"""Longest time of one key in a page that works. The more text a field has, the longer Chromium takes for a
key: 7 ms on average while 8,000 characters are typed."""

BUTTON_BITS = {"none": 0, "left": 1, "right": 2}
CTRL, SHIFT = 2, 8
MODIFIERS: dict[str, tuple[int, Key]] = {
    "alt": (1, ("Alt", "AltLeft", 18)),
    "ctrl": (CTRL, ("Control", "ControlLeft", 17)),
    "meta": (4, ("Meta", "MetaLeft", 91)),
    "shift": (SHIFT, ("Shift", "ShiftLeft", 16)),
}
"""For each modifier: the bit that other events carry while the modifier is held, and its key."""

NAMED_KEYS: dict[str, Key] = {
    "enter": ("Enter", "Enter", 13),
    "tab": ("Tab", "Tab", 9),
    "esc": ("Escape", "Escape", 27),
    "space": (" ", "Space", 32),
    "backspace": ("Backspace", "Backspace", 8),
    "delete": ("Delete", "Delete", 46),
    "insert": ("Insert", "Insert", 45),
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
"""Editing command of Ctrl and each letter. A headless browser runs it only if the key event names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """What the actions so far left behind: where the pointer is, and which modifiers are held."""

    x: int = 0
    y: int = 0
    held: frozenset[str] = frozenset()

    def after(self, action: Action) -> "LeftBehind":
        """Return what is left behind after one more action."""
        match action:
            case Drag():
                return replace(self, x=action.end_x, y=action.end_y)
            case Click(x, y) | LeftDouble(x, y) | RightSingle(x, y) | Hover(x, y) | Scroll(x, y):
                return replace(self, x=x, y=y)
            case KeyDown(key):
                return replace(self, held=self.held | ({key} & set(MODIFIERS)))
            case KeyUp(key):
                return replace(self, held=self.held - {key})
            case _:
                return self


NOTHING_LEFT = LeftBehind()


def input_calls(action: Action, left: LeftBehind = NOTHING_LEFT) -> list[Call]:
    """Return the calls that perform ``action``, in order; none for `Wait`, `Finished` and `CallUser`.

    left   what earlier actions of the episode left behind
    """
    bits = sum(MODIFIERS[key][0] for key in left.held)
    return [_while_held(call, bits) if bits else call for call in _calls(action, left)]


def _while_held(call: Call, bits: int) -> Call:
    """Return ``call`` with the bits of held modifiers. Keys then type no text, unless only Shift is held."""
    method, event = call
    event = event | {"modifiers": event.get("modifiers", 0) | bits}
    if bits & ~SHIFT and "text" in event:
        event = event | {"type": "rawKeyDown"}
        del event["text"]
    return method, event


def _calls(action: Action, left: LeftBehind) -> list[Call]:
    match action:
        case Click(x, y):
            return [_mouse("mouseMoved", x, y), *_press(x, y, "left", 1)]
        case LeftDouble(x, y):
            return [_mouse("mouseMoved", x, y), *_press(x, y, "left", 1), *_press(x, y, "left", 2)]
        case RightSingle(x, y):
            return [_mouse("mouseMoved", x, y), *_press(x, y, "right", 1)]
        case Hover(x, y):
            return [_mouse("mouseMoved", x, y)]
        case Drag():
            return list(_drag(action))
        case Hotkey(keys):
            return list(_hotkey(keys))
        case KeyDown(key):
            return [_down(key, _bit(key))]
        case KeyUp(key):
            return [_up(key, 0)]
        case Type(content):
            return [call for character in content for call in _character(character)]
        case Scroll(x, y, direction):
            return [_wheel(x, y, direction)]
        case ScrollHere(direction):
            return [_wheel(left.x, left.y, direction)]
        case Wait() | Finished() | CallUser():
            return []


def _wheel(x: int, y: int, direction: str) -> Call:
    dx, dy = SCROLL_DELTAS[direction]
    method, wheel = _mouse("mouseWheel", x, y)
    return method, wheel | {"deltaX": dx, "deltaY": dy}


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
    modifiers = 0
    for key in keys:
        modifiers |= _bit(key)
        yield _down(key, modifiers)
    for key in reversed(keys):
        modifiers &= ~_bit(key)
        yield _up(key, modifiers)


def _bit(name: str) -> int:
    return MODIFIERS[name][0] if name in MODIFIERS else 0


def _down(name: str, modifiers: int) -> Call:
    """Return the press of a key while modifiers are held."""
    if name in MODIFIERS:
        return _key("rawKeyDown", MODIFIERS[name][1], modifiers)
    text = KEY_TEXT.get(name, name if len(name) == 1 else "") if modifiers in (0, SHIFT) else ""
    if modifiers == SHIFT:
        text = text.upper()
    command = EDIT_COMMANDS.get(name, "") if modifiers == CTRL else ""
    return _key("keyDown" if text else "rawKeyDown", _key_named(name), modifiers, text, command)


def _up(name: str, modifiers: int) -> Call:
    return _key("keyUp", MODIFIERS[name][1] if name in MODIFIERS else _key_named(name), modifiers)


def _key_named(name: str) -> Key:
    return NAMED_KEYS.get(name) or _character_key(name)


def _character(character: str) -> tuple[Call, Call]:
    if character == "\n":
        return _key("keyDown", NAMED_KEYS["enter"], text="\r"), _key("keyUp", NAMED_KEYS["enter"])
    if character == "\t":
        return _down("tab", 0), _up("tab", 0)
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
"""Number of input events by name; in a page these are pointerdown, pointerup, keydown and keyup.

``wheel`` counts pixels, because a browser may split one wheel event into two."""

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


def own_time_s(calls: Iterable[Call]) -> float:
    """Return how long a page may take for the keys of the calls. This is added to the deadline of a step."""
    return SLOWEST_KEY_S * expected_counts(calls)["keydown"]


def differences(sent: Mapping[str, int], arrived: Mapping[str, int]) -> str:
    """Describe the events that did not arrive as often as they were sent; empty when all did.

    `2 of 1 pointerdown` means that two such events arrived and one was sent."""
    counts = {name: (arrived.get(name, 0), sent.get(name, 0)) for name in sorted({*sent, *arrived})}
    return ", ".join(f"{came} of {went} {name}" for name, (came, went) in counts.items() if came != went)
