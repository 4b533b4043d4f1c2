"""The answer format of UI-TARS (Qin et al. 2025, arXiv 2501.12326): its prompt, and answers to and from
actions.

An answer is a thought and one action::

    Thought: The dialog asks for a name; I type it into the only field.
    Action: click(start_box='(84,120)')

Coordinates are those of the policy's frame (`dart.policy.coordinates`). The reader accepts what the published
checkpoints write (box tokens, either quote, spaces, `finished` with a text) and nothing else: an answer with
no action, with two actions, or with other text around the action is refused. Pure.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dart.core.actions import (
    DIRECTIONS,
    Action,
    ActionParseError,
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
    format_action,
)
from dart.policy.coordinates import Points

PROMPT = """\
You operate a computer for its user. You get a task, what you did so far, and screenshots. \
Choose the one next action.

## Format
Thought: ...
Action: ...

## Actions
click(start_box='(x,y)')
left_double(start_box='(x,y)')
right_single(start_box='(x,y)')
drag(start_box='(x,y)', end_box='(x,y)')
hotkey(key='ctrl c')
type(content='text') # \\n at the end submits; write quotes as \\'
scroll(start_box='(x,y)', direction='down') # or up, left, right
wait()
finished(content='text') # the task is done
call_user() # only the user can go on
infeasible() # the task cannot be done

## Rules
- Points are {points}.
- The thought is in English: a short plan, and in one last sentence the action and its target.

## Task
"""
"""Text before the instruction, unless the configuration names a file with another one. `{points}` is replaced
by the unit of points."""

HINT = """

## Plan
These actions did this task before, from the same start:
{actions}
Do the task with them. Look at the screenshot before each action: things may be in other places. Write every \
thought as if you had found the way yourself; do not mention this plan.
"""
"""Text after the instruction when the policy sees the actions of a demonstration."""

POINTS_TEXT: Mapping[Points, str] = MappingProxyType(
    {
        "image": "pixels of the last screenshot",
        "screen": "pixels of the last screenshot",
        "thousandths": "thousandths of the last screenshot's width and height",
        "patches": "places of the last screenshot: write the pointer token for (x,y)",
    }
)

NOT_AN_ACTION = "not an action: "
"""Prefix of the text that replaces an answer without an action; the strict action grammar refuses it."""


def system_prompt(prompt: str, points: Points) -> str:
    """Return the prompt with the unit of points filled in."""
    return prompt.replace("{points}", POINTS_TEXT[points])


def hint_of(actions: Sequence[Action]) -> str:
    """Return the text that shows a demonstration's actions to the policy; empty without actions.

    actions   actions whose points are in the policy's frame
    """
    listed = "\n".join(f"{number}. {format_action(action)}" for number, action in enumerate(actions, 1))
    return HINT.replace("{actions}", listed) if actions else ""


MOST_KEYS = 5

KEY_NAMES = {
    "control": "ctrl",
    "option": "alt",
    **dict.fromkeys(("cmd", "command", "super", "win", "windows"), "meta"),
    "return": "enter",
    "escape": "esc",
    "del": "delete",
    "pgup": "pageup",
    "pgdn": "pagedown",
    **{f"arrow{way}": way for way in DIRECTIONS},
}
"""Names of keys that policies write, and their names in the action grammar."""

_ACTION = re.compile(r"^[ \t]*Action:[ \t]*", re.MULTILINE)
_BOX_TOKENS = re.compile(r"<\|box_(?:start|end)\|>")
_CALL = re.compile(r"([a-z_]+)\((.*)\)", re.DOTALL)
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_ARGUMENT = re.compile(rf"\s*([a-z_]+)\s*=\s*({_QUOTED})\s*(?:,|$)", re.DOTALL)
_CONTENT = re.compile(r"""\s*content\s*=\s*(['"])(.*)\1\s*""", re.DOTALL)
_SECOND = re.compile(r"""['"]\s*\)\s+[a-z_]+\(""")
"""Matches where a quoted text and its action end and a second action begins."""
_NUMBER = r"(\d{1,5}(?:\.\d+)?)"
_POINT = re.compile(rf"\(?\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)?")

Point = tuple[int, int]
MapPoint = Callable[[float, float], Point]


def read_answer(text: str) -> Action:
    """Return the action of an answer, with points in the policy's frame. Raises ActionParseError."""
    parts = _ACTION.split(text)
    if len(parts) != 2:
        raise ActionParseError(f"expected one line that begins with 'Action:', found {len(parts) - 1}", text)
    call = _CALL.fullmatch(parts[1].strip())
    if call is None or call[1] not in _READERS:
        raise ActionParseError(f"expected one of the actions {', '.join(_READERS)}", text)
    expected, build = _READERS[call[1]]
    arguments = _arguments(call[2], text)
    if not set(arguments) <= set(expected):
        raise ActionParseError(f"expected the arguments {', '.join(expected) or 'none'}", text)
    try:
        return build(arguments)
    except KeyError as missing:
        raise ActionParseError(f"{call[1]}: expected the argument {missing}", text) from missing
    except ValueError as error:
        raise ActionParseError(f"{call[1]}: {error}", text) from error


def write_answer(action: Action, thought: str = "") -> str:
    """Return the answer with this action, whose points are in the policy's frame, and an optional thought."""
    line = f"Action: {format_action(action)}"
    return f"Thought: {thought}\n{line}" if thought else line


def thought_of(answer: str) -> str:
    """Return the thought before an answer's action; empty without one."""
    return _ACTION.split(answer)[0].strip().removeprefix("Thought:").strip()


def map_points(action: Action, map_point: MapPoint) -> Action:
    """Return the action with `map_point` applied to its points."""
    match action:
        case Click(x, y) | LeftDouble(x, y) | RightSingle(x, y):
            return type(action)(*map_point(x, y))
        case Scroll(x, y, direction):
            return Scroll(*map_point(x, y), direction)
        case Drag(x, y, end_x, end_y):
            return Drag(*map_point(x, y), *map_point(end_x, end_y))
        case _:
            return action


def points_of(action: Action) -> tuple[Point, ...]:
    """Return the points of an action, in the order in which its text has them."""
    match action:
        case Click(x, y) | LeftDouble(x, y) | RightSingle(x, y) | Scroll(x, y):
            return ((x, y),)
        case Drag(x, y, end_x, end_y):
            return ((x, y), (end_x, end_y))
        case _:
            return ()


Arguments = dict[str, str]


def _arguments(listed: str, text: str) -> Arguments:
    content = _CONTENT.fullmatch(listed)
    is_quoted = _ARGUMENT.fullmatch(listed) is not None
    if content is not None and (is_quoted or not _SECOND.search(content[2])):
        return {"content": _unescape(content[2])}  # the only argument: an unescaped quote is part of the text
    found: Arguments = {}
    position = 0
    while position < len(listed.rstrip()):
        argument = _ARGUMENT.match(listed, position)
        if argument is None or argument[1] in found:
            raise ActionParseError("expected arguments like name='value', each once", text)
        found[argument[1]] = _unescape(argument[2][1:-1])
        position = argument.end()
    return found


def _unescape(escaped: str) -> str:
    """Resolve escapes; a backslash before any other character stays, as in C:\\Users."""
    return re.sub(r"\\([n'\"\\])", lambda m: "\n" if m[1] == "n" else m[1], escaped)


def _point(box: str) -> Point:
    found = _POINT.fullmatch(_BOX_TOKENS.sub("", box).strip())
    if found is None:
        raise ValueError(f"expected a point like '(84,120)', got: {box!r}")
    return round(float(found[1])), round(float(found[2]))


def _keys(written: str) -> tuple[str, ...]:
    names = re.split(r"[\s+]+", written.strip().lower())
    if len(names) > MOST_KEYS:
        raise ValueError(f"expected at most {MOST_KEYS} keys, got {len(names)}")
    return tuple(KEY_NAMES.get(name, name) for name in names)


_READERS: dict[str, tuple[tuple[str, ...], Callable[[Arguments], Action]]] = {
    "click": (("start_box",), lambda a: Click(*_point(a["start_box"]))),
    "left_double": (("start_box",), lambda a: LeftDouble(*_point(a["start_box"]))),
    "right_single": (("start_box",), lambda a: RightSingle(*_point(a["start_box"]))),
    "drag": (("start_box", "end_box"), lambda a: Drag(*_point(a["start_box"]), *_point(a["end_box"]))),
    "hotkey": (("key",), lambda a: Hotkey(_keys(a["key"]))),
    "type": (("content",), lambda a: Type(a["content"])),
    "scroll": (("start_box", "direction"), lambda a: Scroll(*_point(a["start_box"]), a["direction"])),
    "wait": ((), lambda a: Wait()),
    "finished": (("content",), lambda a: Finished()),
    "call_user": ((), lambda a: CallUser()),
    "infeasible": ((), lambda a: CallUser()),
}
"""Arguments and constructor of every action. `call_user` and `infeasible` both declare that the task cannot
be done."""
