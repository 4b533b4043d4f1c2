"""The action grammar: the actions of a policy on a screen, in UI-TARS form.

One action is one line of text, for instance ``click(start_box='(84,120)')``.
Coordinates are whole pixels of the screenshot before the action.
The action space is that of UI-TARS (Qin et al. 2025, arXiv 2501.12326, table 1);
``finished`` carries no text. ``call_user`` says that the task cannot be done.

The parser is strict: it accepts exactly the forms of `GRAMMAR` with nothing around them. A text that
does not parse is a failure of the policy (`dart.core.types.Outcome.PARSE_ERROR`), never a crash.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

MAX_COORDINATE = 99_999
"""Largest pixel coordinate of the grammar: five digits."""

MODIFIERS = ("ctrl", "alt", "shift", "meta")
"""Keys that are held while the last key of a hotkey is pressed."""

NAMED_KEYS = (
    *("enter", "tab", "esc", "space", "backspace", "delete"),
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
    *(f"f{n}" for n in range(1, 13)),
)
"""Keys of a hotkey besides the letters a to z and the digits."""

DIRECTIONS = ("up", "down", "left", "right")


class ActionParseError(ValueError):
    """The text of an answer is not an action of the grammar; the attribute ``text`` holds it."""

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(f"{problem}, got: {text!r}")
        self.text = text


@dataclass(frozen=True, slots=True)
class _AtPoint:
    """An action at one pixel, (x, y)."""

    x: int
    y: int

    def __post_init__(self) -> None:
        _check_point(self.x, self.y)


@dataclass(frozen=True, slots=True)
class Click(_AtPoint):
    """Press and release the left button at (x, y)."""


@dataclass(frozen=True, slots=True)
class LeftDouble(_AtPoint):
    """Double click with the left button at (x, y)."""


@dataclass(frozen=True, slots=True)
class RightSingle(_AtPoint):
    """Press and release the right button at (x, y)."""


@dataclass(frozen=True, slots=True)
class Drag:
    """Press the left button at (x, y), move, release at (end_x, end_y)."""

    x: int
    y: int
    end_x: int
    end_y: int

    def __post_init__(self) -> None:
        _check_point(self.x, self.y)
        _check_point(self.end_x, self.end_y)


@dataclass(frozen=True, slots=True)
class Hotkey:
    """Press one key while modifiers are held: ``('ctrl', 'c')`` or ``('enter',)``."""

    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        *held, last = self.keys or ("",)
        if not _is_key(last):
            raise ValueError(f"expected a hotkey to end in a letter, a digit or a named key, got: {last!r}")
        if len(set(held)) != len(held) or not set(held) <= set(MODIFIERS):
            raise ValueError(f"expected distinct modifiers of {MODIFIERS} before the last key, got: {held!r}")


@dataclass(frozen=True, slots=True)
class Type:
    """Type every character of ``content`` with the keyboard; a newline presses Enter."""

    content: str

    def __post_init__(self) -> None:
        if not self.content:
            raise ValueError("expected at least one character to type, got: ''")
        for character in self.content:
            if character != "\n" and unicodedata.category(character) in ("Cc", "Cs"):
                raise ValueError(f"expected characters a keyboard can type, got: {character!r}")


@dataclass(frozen=True, slots=True)
class Scroll:
    """Turn the wheel at (x, y) by a fixed amount."""

    x: int
    y: int
    direction: str

    def __post_init__(self) -> None:
        _check_point(self.x, self.y)
        if self.direction not in DIRECTIONS:
            raise ValueError(f"expected a direction of {DIRECTIONS}, got: {self.direction!r}")


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a moment and look again."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The policy declares the task done. Nothing happens on the screen."""


@dataclass(frozen=True, slots=True)
class CallUser:
    """The policy declares that the task cannot be done without a person. Nothing happens on the screen."""


Action = Click | LeftDouble | RightSingle | Drag | Hotkey | Type | Scroll | Wait | Finished | CallUser


@dataclass(frozen=True, slots=True)
class Form:
    """How one action is written: error messages show ``sample``; ``pattern`` and ``build`` parse its text."""

    sample: str
    pattern: re.Pattern[str]
    build: Callable[[re.Match[str]], Action]


_NUMBER = r"(0|[1-9][0-9]{0,4})"
_BOX = rf"'\({_NUMBER},{_NUMBER}\)'"
_STRING = r"'((?:[^'\\\n]|\\['\"\\n])*)'"


def _form(sample: str, arguments: str, build: Callable[[re.Match[str]], Action]) -> tuple[str, Form]:
    name = sample.partition("(")[0]
    return name, Form(sample, re.compile(rf"{name}\({arguments}\)"), build)


GRAMMAR: dict[str, Form] = dict(
    (
        _form("click(start_box='(x,y)')", f"start_box={_BOX}", lambda m: Click(*_ints(m))),
        _form("left_double(start_box='(x,y)')", f"start_box={_BOX}", lambda m: LeftDouble(*_ints(m))),
        _form("right_single(start_box='(x,y)')", f"start_box={_BOX}", lambda m: RightSingle(*_ints(m))),
        _form(
            "drag(start_box='(x,y)', end_box='(x,y)')",
            f"start_box={_BOX}, end_box={_BOX}",
            lambda m: Drag(*_ints(m)),
        ),
        _form("hotkey(key='ctrl c')", r"key='([^'\\\n]*)'", lambda m: Hotkey(tuple(m[1].split(" ")))),
        _form("type(content='text')", f"content={_STRING}", lambda m: Type(_unescape(m[1]))),
        _form(
            "scroll(start_box='(x,y)', direction='down')",
            rf"start_box={_BOX}, direction='([a-z]*)'",
            lambda m: Scroll(int(m[1]), int(m[2]), m[3]),
        ),
        _form("wait()", "", lambda m: Wait()),
        _form("finished()", "", lambda m: Finished()),
        _form("call_user()", "", lambda m: CallUser()),
    )
)
"""Every action by name, in the order of the UI-TARS prompt."""


def parse_action(text: str) -> Action:
    """Parse an action; raises `ActionParseError` unless the text is exactly one action."""
    name = text.partition("(")[0]
    form = GRAMMAR.get(name)
    if form is None:
        raise ActionParseError(f"expected one of the actions {', '.join(GRAMMAR)}", text)
    match = form.pattern.fullmatch(text)
    if match is None:
        raise ActionParseError(f"expected the form {form.sample}", text)
    try:
        return form.build(match)
    except ValueError as error:
        raise ActionParseError(f"{name}: {error}", text) from error


def is_action(text: str) -> bool:
    """Whether a text is an action of the grammar."""
    try:
        parse_action(text)
    except ActionParseError:
        return False
    return True


def format_action(action: Action) -> str:
    """Return the text of an action; `parse_action` returns an equal action from it."""
    match action:
        case Click(x, y):
            return f"click(start_box='({x},{y})')"
        case LeftDouble(x, y):
            return f"left_double(start_box='({x},{y})')"
        case RightSingle(x, y):
            return f"right_single(start_box='({x},{y})')"
        case Drag(x, y, end_x, end_y):
            return f"drag(start_box='({x},{y})', end_box='({end_x},{end_y})')"
        case Hotkey(keys):
            return f"hotkey(key='{' '.join(keys)}')"
        case Type(content):
            return f"type(content='{_escape(content)}')"
        case Scroll(x, y, direction):
            return f"scroll(start_box='({x},{y})', direction='{direction}')"
        case Wait():
            return "wait()"
        case Finished():
            return "finished()"
        case CallUser():
            return "call_user()"


def _check_point(x: int, y: int) -> None:
    if not (0 <= x <= MAX_COORDINATE and 0 <= y <= MAX_COORDINATE):
        raise ValueError(f"expected coordinates between 0 and {MAX_COORDINATE}, got: ({x},{y})")


def _is_key(key: str) -> bool:
    return key in NAMED_KEYS or re.fullmatch("[a-z0-9]", key) is not None


def _ints(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(number) for number in match.groups())


def _escape(content: str) -> str:
    return content.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")


def _unescape(escaped: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], escaped)
