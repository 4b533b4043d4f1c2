"""The answer format of UI-TARS (Qin et al. 2025, arXiv 2501.12326): its prompts, and answers to and from
actions.

An answer is a thought and one action, sometimes several::

    Thought: The dialog asks for a name; I type it into the only field.
    Action: click(start_box='(84,120)')

Points are in the units that the policy writes (`dart.policy.coordinates`). `read_answer` treats an answer as
the authors' own agents do, and refuses only what they refuse. Its sources:

agent    xlang-ai/OSWorld, mm_agents/uitars15_v1.py: `parse_action_to_structure_output` reads an answer,
         `parsing_response_to_pyautogui_code` carries one action out, `UITARSAgent.predict` joins them
parser   bytedance/UI-TARS, codes/ui_tars/action_parser.py (package ui-tars 0.1.4): newer functions of the
         same names
DART     Computer-use-agents/dart_rollouter, src/utils/ui_tars_utils.py: DART's copy of the agent's functions

The rules of all three sources, or of those named in brackets:

- The last ``Action:`` of an answer counts. Only its actions may follow it.
- A blank line separates several actions. They are carried out in order, as one step with one screenshot
  after it (OSWorld's `run_single_example`). Where one of them is ``finished``, ``wait`` or ``call_user``,
  nothing else of the answer is carried out, not even the actions before it (agent, `predict`).
- A missing ``)`` at the end is added (parser).
- ``left_single`` is a click, ``select`` a drag, ``hover`` moves the pointer.
- ``press`` presses and releases one key (agent, DART; parser holds it). ``keydown`` and ``keyup`` hold and
  release one; so does ``release`` (parser).
- ``scroll`` without a box scrolls where the pointer is. A box of four numbers means its middle.
- ``point=``, ``start_point=``, ``end_point=`` are boxes, ``<point>x y</point>`` is a point. The parser has
  this rule, too, but fails in `convert_point_to_coordinates`; OSWorld's mm_agents/uitars15_v2.py does not.
- Arguments that an action does not have are ignored.
- An action with an unknown name does nothing, and the episode continues. The same holds for a scroll without
  a direction, a drag that lacks a box, unknown keys, and an empty text to type.
- A click without a box, a box of one or three numbers, two arguments of one name, or a text that is not a
  call makes the whole answer invalid.
- ``call_user`` and ``error_env`` say that the task cannot be done (DART; the agent waits at the first three
  ``call_user``).

Three rules differ from the sources:

- ``scroll`` also goes left and right, as their prompt says.
- Keys have more names (``return``, and ``+`` between keys).
- A text may contain ``Action:``, blank lines and calls if its quotes are escaped or of the other kind. Where
  unescaped quotes leave open whether an action or ``Action:`` belongs to the text, the answer is invalid; the
  agent and the parser type the second action as text: ``type(content='a') hotkey(key='enter')``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from dart.core.actions import (
    DIRECTIONS,
    MAX_COORDINATE,
    Action,
    ActionParseError,
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
    format_actions,
    is_key,
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
"""Text before the instruction, unless the configuration names another one. `{points}` is replaced by the unit
of points."""

_OWN_PROMPT = Path(__file__).with_name("uitars_prompt.txt")
_CALL_USER = (
    "call_user() # Submit the task and call the user when the task is unsolvable, "
    "or when you need the user's help.\n"
)
_AFTER_ACTIONS = "\n\n## Note\n"


def named_prompt(name: str) -> str | None:
    """Return the prompt with this name in `context.prompt`, with which a checkpoint was trained.

    None for any other name. The names are:

    uitars-1.5             the prompt of UI-TARS-1.5-7B in its authors' agent (`UITARSAgent`, its mode
                           `qwen25vl_normal`; in DART COMPUTER_USE_PROMPT, with a password for sudo)
    uitars-1.5-call-user   the same with `call_user()`, for tasks that may be infeasible (in DART
                           COMPUTER_USE_PROMPT_WITH_CALL_USER)
    """
    if name not in PROMPT_NAMES:
        return None
    own = _OWN_PROMPT.read_text(encoding="utf-8")
    return own if name == PROMPT_NAMES[0] else own.replace(_AFTER_ACTIONS, f"{_CALL_USER}{_AFTER_ACTIONS}")


PROMPT_NAMES = ("uitars-1.5", "uitars-1.5-call-user")

HINT = """

## Plan
These actions did this task before, from the same start:
{actions}
Do the task with them. Look at the screenshot before each action: things may be in other places. Write every \
thought as if you had found the way yourself; do not mention this plan.
"""
"""Text after the instruction when the policy sees the actions of a demonstration as a hint."""

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

    actions   actions whose points are in the units that the policy writes
    """
    listed = "\n".join(f"{number}. {format_actions((one,))}" for number, one in enumerate(actions, 1))
    return HINT.replace("{actions}", listed) if actions else ""


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
"""Names of keys that policies write, mapped to the names in the action grammar."""

MOST_STARTS = 8
"""How many occurrences of `Action:` in an answer are tried as the start of its actions, the last first."""

BOX_START, BOX_END = "<|box_start|>", "<|box_end|>"
"""Tokens between which UI-TARS-1.5 writes a point; other text may lack them."""

Point = tuple[int, int]
MapPoint = Callable[[float, float], Point]
Arguments = dict[str, str]

_ACTION = re.compile(r"Action:")
_BLANK_LINE = r"[ \t]*+\n[^\S\n]*+\n\s*+"
"""Matches the rest of a line and at least one blank line. Possessive, so that the time is linear."""

_BETWEEN = re.compile(rf"\){_BLANK_LINE}(?=[A-Za-z_][\w.]*[ \t]*\()")
"""Matches the end of an action, the blank line after it and no character of the next action."""

_CALL = re.compile(r"\s*([A-Za-z_][\w.]*)\s*\(")
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_ARGUMENT = re.compile(rf"\s*([A-Za-z_]\w*)\s*=\s*({_QUOTED})\s*(?:,|(?=\)))", re.DOTALL)
_END = re.compile(rf"\s*\)(?:{_BLANK_LINE}(?=\S)|\s*+\Z)")
"""Matches the end of an action, up to the next one or to the end of the text."""

_CONTENT = re.compile(r"""\s*content\s*=\s*(['"])(.*)\1\s*""", re.DOTALL)
_BOX_MARKS = re.compile(r"<\|box_(?:start|end)\|>|</?point>|\[EOS\]")
_NUMBER = re.compile(r"[+-]?\d{1,9}(?:\.\d{0,9})?")
_ESCAPED = re.compile(r"\\([nt'\"\\])")


def read_answer(text: str) -> tuple[Action, ...]:
    """Return the actions of an answer, with points as the policy writes them. Raises ActionParseError."""
    refused: ActionParseError | None = None
    starts = [found.end() for found in _ACTION.finditer(text)]
    for start in reversed(starts[-MOST_STARTS:]):
        try:
            return _performed(list(_actions(text[start:].strip())))
        except ValueError as error:
            # "Action:" may also stand in a quoted text. Then the rest alone is no action, and an earlier
            # start reads that text as an argument. It is an error to all starts if it is outside of quotes.
            refused = refused or ActionParseError(str(error), text)
    raise refused or ActionParseError("expected 'Action:' and an action after it", text)


def write_answer(actions: Sequence[Action]) -> str:
    """Return the answer with these actions and without a thought; points are in the policy's units."""
    return f"Action: {format_actions(actions)}"


def thought_of(answer: str) -> str:
    """Return the thought before an answer's action; empty without one."""
    return _ACTION.split(answer)[0].strip().removeprefix("Thought:").strip()


def map_points(action: Action, map_point: MapPoint) -> Action:
    """Return the action with `map_point` applied to its points."""
    match action:
        case Click(x, y) | LeftDouble(x, y) | RightSingle(x, y) | Hover(x, y):
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
        case Click(x, y) | LeftDouble(x, y) | RightSingle(x, y) | Hover(x, y) | Scroll(x, y):
            return ((x, y),)
        case Drag(x, y, end_x, end_y):
            return ((x, y), (end_x, end_y))
        case _:
            return ()


def _performed(actions: Sequence[Action | None]) -> tuple[Action, ...]:
    """Return the actions of an answer that are carried out; None in `actions` is an action without effect.

    A `wait`, `finished` or `call_user` replaces all other actions. An answer without any effect is a `wait`.
    """
    for action in actions:
        if isinstance(action, Wait | Finished | CallUser):
            return (action,)
    return tuple(action for action in actions if action is not None) or (Wait(),)


def _actions(text: str) -> Iterator[Action | None]:
    """Yield the actions of the text after `Action:`; None for an action without effect. Raises ValueError."""
    calls = _quoted_calls(text) or [_loose_call(one) for one in _split(text)]
    for name, arguments in calls:
        read = _READERS.get(name.rpartition(".")[2])
        try:
            yield None if read is None else read(arguments)
        except KeyError as missing:
            raise ValueError(f"{name}: expected the argument {missing}") from missing
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error


def _quoted_calls(text: str) -> list[tuple[str, Arguments]]:
    """Return name and arguments of each action; an empty list if arguments are not quoted as in Python."""
    calls: list[tuple[str, Arguments]] = []
    position = 0
    while position < len(text):
        call = _CALL.match(text, position)
        if call is None:
            return []
        arguments, position = _arguments(text, call.end())
        end = _END.match(text, position)
        if end is None:
            return []
        calls.append((call[1], arguments))
        position = end.end()
    return calls


def _arguments(text: str, position: int) -> tuple[Arguments, int]:
    """Return the quoted arguments that begin at `position`, without empty ones, and the position after them.

    Raises ValueError for an argument that occurs twice.
    """
    found: Arguments = {}
    while argument := _ARGUMENT.match(text, position):
        name = _ARGUMENT_NAMES.get(argument[1], argument[1])
        if name in found:
            raise ValueError(f"expected each argument once, got {name} twice")
        found[name] = _unescape(argument[2][1:-1])
        position = argument.end()
    return {name: value for name, value in found.items() if value}, position


def _split(text: str) -> list[str]:
    pieces = _BETWEEN.split(text)
    return [*(f"{piece})" for piece in pieces[:-1]), pieces[-1]]


def _loose_call(text: str) -> tuple[str, Arguments]:
    """Return name and arguments of one action. Its last bracket may be missing, and its content may contain
    unescaped quotes. Raises ValueError."""
    call = _CALL.match(text)
    if call is None:
        raise ValueError("expected an action like click(start_box='(84,120)')")
    written = text[call.end() :].rstrip()
    listed = written.removesuffix(")")
    content = _CONTENT.fullmatch(listed)
    if content is not None and _is_one_text(content[2]):
        return call[1], {"content": _unescape(content[2])}
    arguments, end = _arguments(f"{listed})", 0)
    if f"{listed})"[end:].strip() != ")":
        raise ValueError("expected arguments like name='value', each once, and nothing after the action")
    return call[1], arguments


def _is_one_text(content: str) -> bool:
    """Whether all of this can be one text although its quotes are not escaped, with no further action in it.

    If it is not, the text may still be quoted as in Python, which `_arguments` finds out.
    """
    return not _ACTION.search(content) and not _FURTHER.search(content)


def _unescape(escaped: str) -> str:
    """Resolve escapes; a backslash before any other character stays, as in C:\\Users."""
    return _ESCAPED.sub(lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), escaped)


def _point(box: str) -> Point:
    """Return the point of a box, or the middle of a box of four numbers. Raises ValueError."""
    plain = _BOX_MARKS.sub(" ", box).replace("(", " ").replace(")", " ").strip()
    written = [one.strip() for one in (plain.split(",") if "," in plain else plain.split())]
    if len(written) not in (2, 4) or not all(_NUMBER.fullmatch(one) for one in written):
        raise ValueError(f"expected a point like '(84,120)', got: {box!r}")
    numbers = [float(one) for one in written]
    return _pixel((numbers[0] + numbers[-2]) / 2), _pixel((numbers[1] + numbers[-1]) / 2)


def _pixel(value: float) -> int:
    return min(max(round(value), 0), MAX_COORDINATE)


def _keys(written: str) -> tuple[str, ...]:
    """Return the keys that a text names, each once, as the action grammar names them; others are left out."""
    parts = (part for name in written.split() for part in (name if name == "+" else name.split("+")))
    named = (key for part in parts for key in _key(part))
    return tuple(dict.fromkeys(key for key in named if is_key(key)))


def _key(written: str) -> tuple[str, ...]:
    """Return the keys to press for the written name of one key; a capital letter needs Shift, too."""
    if len(written) == 1 and written.isascii() and written.isupper():
        return "shift", written.lower()
    return (KEY_NAMES.get(written.lower(), written.lower()),)


def _hotkey(arguments: Arguments) -> Action | None:
    keys = _keys(arguments.get("key", arguments.get("hotkey", "")))
    return Hotkey(keys) if keys else None


def _press(arguments: Arguments) -> Action | None:
    keys = _keys(arguments.get("key", arguments.get("press", "")))
    return Hotkey(keys[-1:]) if keys else None


def _one_key(build: Callable[[str], Action]) -> Callable[[Arguments], Action | None]:
    def read(arguments: Arguments) -> Action | None:
        keys = _keys(arguments.get("key", arguments.get("press", "")))
        return build(keys[-1]) if keys else None

    return read


def _drag(arguments: Arguments) -> Action | None:
    if not {"start_box", "end_box"} <= set(arguments):
        return None
    return Drag(*_point(arguments["start_box"]), *_point(arguments["end_box"]))


def _scroll(arguments: Arguments) -> Action | None:
    written = arguments.get("direction", "").lower()
    direction = next((way for way in DIRECTIONS if way in written), None)
    if direction is None:
        return None
    box = arguments.get("start_box", "")
    return Scroll(*_point(box), direction) if box else ScrollHere(direction)


def _type(arguments: Arguments) -> Action | None:
    content = arguments.get("content", "")
    return Type(content) if content else None


_ARGUMENT_NAMES = {"point": "start_box", "start_point": "start_box", "end_point": "end_box"}
"""Newer names of arguments, mapped to the names in UI-TARS-1.5's prompt."""


def _at(build: Callable[[int, int], Action]) -> Callable[[Arguments], Action]:
    return lambda arguments: build(*_point(arguments["start_box"]))


_READERS: dict[str, Callable[[Arguments], Action | None]] = {
    "click": _at(Click),
    "left_single": _at(Click),
    "left_double": _at(LeftDouble),
    "right_single": _at(RightSingle),
    "hover": _at(Hover),
    "drag": _drag,
    "select": _drag,
    "hotkey": _hotkey,
    "press": _press,
    "keydown": _one_key(KeyDown),
    "keyup": _one_key(KeyUp),
    "release": _one_key(KeyUp),
    "type": _type,
    "scroll": _scroll,
    "wait": lambda _: Wait(),
    "finished": lambda _: Finished(),
    **dict.fromkeys(("call_user", "error_env", "infeasible"), lambda _: CallUser()),
}
"""By name of an action, the function that makes the action from its arguments; the function returns None if
the action has no effect. Only this project's own prompt has the name `infeasible`."""

_FURTHER = re.compile(
    rf"""['"] \s* \)
    (?: [ \t]* \n [ \t]* \n
    | [ \t]* \n \s* [A-Za-z_]+ \(
    | [;\s]* (?: {"|".join(_READERS)} ) [ \t]* \(
    | [;\s]* [A-Za-z_] [\w.]* [ \t]* \( [ \t]* [A-Za-z_]\w* [ \t]* = [ \t]* ['"]
    )""",
    re.VERBOSE,
)
"""Matches where a text and its action end and something else follows that is no part of the text.

It is a blank line, a call on a line of its own, or on the same line, also after `;`, an action of the table
or any call like `name(key='...')`. Other calls on the same line are code, such as `print('a'); print('b')`.
"""
