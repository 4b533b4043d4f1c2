"""The action grammar: the actions of a policy on a screen, in UI-TARS form.

One action is one line of text, for instance ``click(start_box='(84,120)')``. Coordinates are whole pixels of
the screenshot before the answer. The action space is that of UI-TARS (Qin et al. 2025, arXiv 2501.12326,
table 1), together with the further pointer and key actions that the authors' code executes. ``finished``
carries no text. ``call_user`` says that the task cannot be done. One answer may have several actions, which
are applied in order; a blank line separates them.

The parser is strict: it accepts exactly the forms of `GRAMMAR` with nothing around them. A text that
does not parse is a failure of the policy (`dart.core.types.Outcome.PARSE_ERROR`), never a crash.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_COORDINATE = 99_999
"""Largest pixel coordinate of the grammar: five digits."""

MODIFIERS = ("ctrl", "alt", "shift", "meta")
"""Keys that change what other keys do while they are held."""

NAMED_KEYS = (
    *("enter", "tab", "esc", "space", "backspace", "delete", "insert"),
    *("up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
    *(f"f{n}" for n in range(1, 13)),
)
"""Keys that are neither modifiers nor in `KEY_CHARACTERS`."""

KEY_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789`-=[]\\;',./+"
"""Keys that are named by their character: those of a US keyboard without Shift, and the plus sign."""

BETWEEN_ACTIONS = "\n\n"
"""What separates the actions of one answer."""

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
class Hover(_AtPoint):
    """Move the pointer to (x, y)."""


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
    """Press keys one after the other and release them in the reverse order: ``('ctrl', 'c')`` or
    ``('enter',)``."""

    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.keys or len(set(self.keys)) != len(self.keys):
            raise ValueError(f"expected one key or several different ones, got: {self.keys!r}")
        for key in self.keys:
            _check_key(key)


@dataclass(frozen=True, slots=True)
class _OneKey:
    """An action with one key."""

    key: str

    def __post_init__(self) -> None:
        _check_key(self.key)


@dataclass(frozen=True, slots=True)
class KeyDown(_OneKey):
    """Press a key and hold it until `KeyUp` or the end of the episode."""


@dataclass(frozen=True, slots=True)
class KeyUp(_OneKey):
    """Release a key."""


@dataclass(frozen=True, slots=True)
class Type:
    """Type every character of ``content`` with the keyboard; a newline presses Enter, a tab Tab."""

    content: str

    def __post_init__(self) -> None:
        if not self.content:
            raise ValueError("expected at least one character to type, got: ''")
        for character in self.content:
            if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"):
                raise ValueError(f"expected characters a keyboard can type, got: {character!r}")


@dataclass(frozen=True, slots=True)
class Scroll:
    """Turn the wheel at (x, y) by a fixed amount."""

    x: int
    y: int
    direction: str

    def __post_init__(self) -> None:
        _check_point(self.x, self.y)
        _check_direction(self.direction)


@dataclass(frozen=True, slots=True)
class ScrollHere:
    """Turn the wheel by a fixed amount where the pointer is."""

    direction: str

    def __post_init__(self) -> None:
        _check_direction(self.direction)


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a moment and look again."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The policy declares the task done. Nothing happens on the screen."""


@dataclass(frozen=True, slots=True)
class CallUser:
    """The policy declares that the task cannot be done without a person. Nothing happens on the screen."""


PointerAction = Click | LeftDouble | RightSingle | Hover | Drag | Scroll | ScrollHere
KeyboardAction = Hotkey | KeyDown | KeyUp | Type
Action = PointerAction | KeyboardAction | Wait | Finished | CallUser


@dataclass(frozen=True, slots=True)
class Form:
    """How one action is written. Error messages show ``sample``; ``pattern`` and ``build`` parse the text."""

    sample: str
    pattern: re.Pattern[str]
    build: Callable[[re.Match[str]], Action]


_NUMBER = r"(0|[1-9][0-9]{0,4})"
_BOX = rf"'\({_NUMBER},{_NUMBER}\)'"
_STRING = r"'((?:[^'\\\n\t]|\\['\"\\nt])*)'"


def _form(sample: str, arguments: str, build: Callable[[re.Match[str]], Action]) -> tuple[str, Form]:
    name = sample.partition("(")[0]
    return name, Form(sample, re.compile(rf"{name}\({arguments}\)"), build)


_SCROLL = rf"(?:start_box={_BOX}, )?direction='([a-z]*)'"


def _scroll(match: re.Match[str]) -> Scroll | ScrollHere:
    return ScrollHere(match[3]) if match[1] is None else Scroll(int(match[1]), int(match[2]), match[3])


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
        _form("hover(start_box='(x,y)')", f"start_box={_BOX}", lambda m: Hover(*_ints(m))),
        _form("hotkey(key='ctrl c')", f"key={_STRING}", lambda m: Hotkey(tuple(_unescape(m[1]).split(" ")))),
        _form("keydown(key='ctrl')", f"key={_STRING}", lambda m: KeyDown(_unescape(m[1]))),
        _form("keyup(key='ctrl')", f"key={_STRING}", lambda m: KeyUp(_unescape(m[1]))),
        _form("type(content='text')", f"content={_STRING}", lambda m: Type(_unescape(m[1]))),
        _form("scroll(start_box='(x,y)', direction='down')", _SCROLL, _scroll),
        _form("wait()", "", lambda m: Wait()),
        _form("finished()", "", lambda m: Finished()),
        _form("call_user()", "", lambda m: CallUser()),
    )
)
"""Every action by name, in the order of the UI-TARS prompt. The point of `scroll` may be missing."""


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


def parse_actions(text: str) -> tuple[Action, ...]:
    """Parse the actions of an answer: one or more, with a blank line between them. Raises ActionParseError.

    ``finished``, ``wait`` and ``call_user`` must be the only action of an answer.
    """
    try:
        actions = tuple(parse_action(one) for one in text.split(BETWEEN_ACTIONS))
    except ActionParseError as error:
        raise ActionParseError(str(error).partition(", got: ")[0], text) from error
    if len(actions) > 1 and (
        alone := [one for one in actions if isinstance(one, Wait | Finished | CallUser)]
    ):
        raise ActionParseError(f"expected {format_action(alone[0])} to be the only action", text)
    return actions


def is_action(text: str) -> bool:
    """Whether a text is one action of the grammar or several."""
    try:
        parse_actions(text)
    except ActionParseError:
        return False
    return True


def format_actions(actions: Sequence[Action]) -> str:
    """Return the text of the actions of one answer; `parse_actions` returns equal actions from it."""
    return BETWEEN_ACTIONS.join(format_action(action) for action in actions)


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
        case Hover(x, y):
            return f"hover(start_box='({x},{y})')"
        case Hotkey(keys):
            return f"hotkey(key='{_escape(' '.join(keys))}')"
        case KeyDown(key):
            return f"keydown(key='{_escape(key)}')"
        case KeyUp(key):
            return f"keyup(key='{_escape(key)}')"
        case Type(content):
            return f"type(content='{_escape(content)}')"
        case Scroll(x, y, direction):
            return f"scroll(start_box='({x},{y})', direction='{direction}')"
        case ScrollHere(direction):
            return f"scroll(direction='{direction}')"
        case Wait():
            return "wait()"
        case Finished():
            return "finished()"
        case CallUser():
            return "call_user()"


def _check_point(x: int, y: int) -> None:
    if not (0 <= x <= MAX_COORDINATE and 0 <= y <= MAX_COORDINATE):
        raise ValueError(f"expected coordinates between 0 and {MAX_COORDINATE}, got: ({x},{y})")


def _check_direction(direction: str) -> None:
    if direction not in DIRECTIONS:
        raise ValueError(f"expected a direction of {DIRECTIONS}, got: {direction!r}")


def _check_key(key: str) -> None:
    if not is_key(key):
        raise ValueError(f"expected a letter, a digit, a sign, a modifier or a named key, got: {key!r}")


def is_key(key: str) -> bool:
    """Whether a text names one key of the grammar."""
    return key in NAMED_KEYS or key in MODIFIERS or (len(key) == 1 and key in KEY_CHARACTERS)


def _ints(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(number) for number in match.groups())


def _escape(content: str) -> str:
    escaped = content.replace("\\", "\\\\").replace("'", "\\'")
    return escaped.replace("\n", "\\n").replace("\t", "\\t")


def _unescape(escaped: str) -> str:
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), escaped)
