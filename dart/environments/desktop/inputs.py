"""Actions as input events of an X server, which `dart.environments.desktop.guest` sends through XTEST.

Pure: an action becomes a list of calls (name, parameters). Keys are keysyms of the X protocol; for Latin-1
these are the numbers of the characters. Characters that a US keyboard types with Shift are sent with Shift,
so that the events that arrive can be compared with the events that were sent.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

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
from dart.environments.browser_inputs import Call, InputCounts

LEFT, RIGHT = 1, 3
WHEEL = {"up": 4, "down": 5, "left": 6, "right": 7}
"""Mouse buttons by direction. X has no wheel events: each notch of the wheel is a click of such a button."""

NOTCHES = 5
"""Wheel notches of one `Scroll`, as in UI-TARS."""

DRAG_MOVES = 8
"""Number of mouse moves between press and release. Toolkits begin a drag some pixels after the press."""

DRAG_PAUSE_S = 0.02

KEY_PAUSE = ("pause", {"s": 0.008})
"""Pause after each typed character; some applications lose keys that come faster."""

SLOWEST_KEY_S = 0.05
"""Longest time of one key: the pause after it, and the assignment of a character that has no key yet."""

SHIFT = 0xFFE1
KEYS = {
    "ctrl": 0xFFE3,
    "alt": 0xFFE9,
    "shift": SHIFT,
    "meta": 0xFFEB,
    "enter": 0xFF0D,
    "tab": 0xFF09,
    "esc": 0xFF1B,
    "space": 0x20,
    "backspace": 0xFF08,
    "delete": 0xFFFF,
    "insert": 0xFF63,
    "up": 0xFF52,
    "down": 0xFF54,
    "left": 0xFF51,
    "right": 0xFF53,
    "home": 0xFF50,
    "end": 0xFF57,
    "pageup": 0xFF55,
    "pagedown": 0xFF56,
    **{f"f{n}": 0xFFBD + n for n in range(1, 13)},
}

_KEY_OF = {"\n": "enter", "\t": "tab"}
"""Names of the keys that type a newline and a tab."""

_SHIFTED = dict(zip('~!@#$%^&*()_+{}|:"<>?', "`1234567890-=[]\\;',./", strict=True))
"""Characters that a US keyboard types with Shift, each with its key."""

UNICODE_KEYSYMS = 0x01000000
"""The keysym of a character outside Latin-1 is this number plus the code point of the character."""

COUNTED = ("key_down", "key_up", "button_down", "button_up")


def desktop_calls(action: Action) -> list[Call]:
    """Return the calls that perform ``action``, in order; none for `Wait`, `Finished` and `CallUser`."""
    match action:
        case Click(x, y):
            return [_move(x, y), *_press(LEFT)]
        case LeftDouble(x, y):
            return [_move(x, y), *_press(LEFT), *_press(LEFT)]
        case RightSingle(x, y):
            return [_move(x, y), *_press(RIGHT)]
        case Drag():
            return list(_drag(action))
        case Hotkey(keys):
            return _chord(*dict.fromkeys(keysym for key in keys for keysym in _keysyms(key)))
        case KeyDown(key):
            return [("key_down", {"keysym": keysym}) for keysym in _keysyms(key)]
        case KeyUp(key):
            return [("key_up", {"keysym": keysym}) for keysym in reversed(_keysyms(key))]
        case Hover(x, y):
            return [_move(x, y)]
        case Type(content):
            return [call for character in content for call in (*_character(character), KEY_PAUSE)]
        case Scroll(x, y, direction):
            return [_move(x, y), *_press(WHEEL[direction]) * NOTCHES]
        case ScrollHere(direction):
            return [*_press(WHEEL[direction]) * NOTCHES]
        case Wait() | Finished() | CallUser():
            return []


def expected_desktop_counts(calls: Iterable[Call]) -> InputCounts:
    """Return the number of events of each kind that the X server counts when it receives just these calls."""
    counted: InputCounts = Counter(name for name, _ in calls if name in COUNTED)
    return counted


def own_time_s(calls: Iterable[Call]) -> float:
    """Return how long it takes to send the calls. This time is added to the deadline of a step."""
    return SLOWEST_KEY_S * sum(name == "key_down" for name, _ in calls)


def _move(x: float, y: float) -> Call:
    return "move", {"x": round(x), "y": round(y)}


def _press(button: int) -> tuple[Call, Call]:
    return ("button_down", {"button": button}), ("button_up", {"button": button})


def _drag(drag: Drag) -> Iterator[Call]:
    down, up = _press(LEFT)
    yield from (_move(drag.x, drag.y), down)
    for move in range(1, DRAG_MOVES + 1):
        part = move / DRAG_MOVES
        yield _move(drag.x + (drag.end_x - drag.x) * part, drag.y + (drag.end_y - drag.y) * part)
        yield "pause", {"s": DRAG_PAUSE_S}
    yield up


def _keysyms(key: str) -> tuple[int, ...]:
    """Return the keysyms to press, in order, for a key name of the action grammar: with Shift for a character
    such as the plus sign, else one keysym."""
    shifted = _SHIFTED.get(key)
    return (SHIFT, ord(shifted)) if shifted else (KEYS.get(key) or ord(key),)


def _character(character: str) -> list[Call]:
    if character in _KEY_OF:
        return _chord(KEYS[_KEY_OF[character]])
    if character in _SHIFTED or (character.isascii() and character.isupper()):
        return _chord(SHIFT, ord(_SHIFTED.get(character, character.lower())))
    number = ord(character)
    return _chord(number if number < 0x100 else UNICODE_KEYSYMS + number)


def _chord(*keysyms: int) -> list[Call]:
    """Return the calls that press keys one after the other and release them in the reverse order."""
    return [("key_down", {"keysym": keysym}) for keysym in keysyms] + [
        ("key_up", {"keysym": keysym}) for keysym in reversed(keysyms)
    ]
