"""Stands in for pyautogui in a test's guest: the calls that actions become, through the X server's XTEST."""

import time

from Xlib import XK, X, display
from Xlib.ext import xtest

FAILSAFE = True
_display = display.Display()

_KEYSYMS = {"enter": "Return", "esc": "Escape", "ctrl": "Control_L", "shift": "Shift_L", "alt": "Alt_L"}
_SHIFTED = dict(zip('~!@#$%^&*()_+{}|:"<>?', "`1234567890-=[]\\;',./", strict=True))


def position() -> tuple[int, int]:
    where = _display.screen().root.query_pointer()
    return where.root_x, where.root_y


def moveTo(x: int, y: int) -> None:
    xtest.fake_input(_display, X.MotionNotify, x=x, y=y)
    _display.sync()


def click(x: int, y: int) -> None:
    moveTo(x, y)
    for kind in (X.ButtonPress, X.ButtonRelease):
        xtest.fake_input(_display, kind, 1)
    _display.sync()


def hotkey(*names: str | list[str]) -> None:
    """As pyautogui's, which takes a list of names, too."""
    codes = [_code(one) for name in names for one in ([name] if isinstance(name, str) else name)]
    for code in codes:
        xtest.fake_input(_display, X.KeyPress, code)
    for code in reversed(codes):
        xtest.fake_input(_display, X.KeyRelease, code)
    _display.sync()


def press(name: str) -> None:
    hotkey(name)


def write(text: str, interval: float = 0.0) -> None:
    for character in text:
        if character in _SHIFTED or character.isupper():
            hotkey("shift", _SHIFTED.get(character, character.lower()))
        else:
            hotkey(character)
        time.sleep(interval)


def _code(name: str) -> int:
    keysym = ord(name) if len(name) == 1 else XK.string_to_keysym(_KEYSYMS.get(name, name))
    return int(_display.keysym_to_keycode(keysym))
