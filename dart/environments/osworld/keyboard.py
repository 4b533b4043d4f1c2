"""Actions as pyautogui code for the guest: what its protocol takes for mouse and keyboard. Pure.

Each call is one line of Python. The lines of one action are sent as one program that claims its number by
making a file before it does anything: a program that arrives a second time, by whatever retried it on the
way, ends there. It says how many lines it carried out.
"""

from collections.abc import Iterator, Sequence

from dart.environments.actions import (
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
from dart.environments.inputs import Call

LINE = "line"
"""Name of a call; its parameter is the code."""

NOTCHES = 5
"""Notches of one `Scroll`, as in UI-TARS."""

DRAG_S = 0.5
KEY_PAUSE_S = 0.02
PASTE_PAUSE_S = 0.3

KEY_NAMES = {"meta": "win"}
"""pyautogui's word for a key where it is not ours."""

SAID = "dartrl carried out"
"""How a program's last word begins."""

PROGRAM = """
import os, time
claims = os.path.expanduser({folder!r})
os.makedirs(claims, exist_ok=True)
os.close(os.open(claims + "/{number}", os.O_CREAT | os.O_EXCL))
import pyautogui
pyautogui.FAILSAFE = False
done = 0
{lines}
print({said!r}, done)
"""

CLAIMS = "~/.cache/dartrl-actions"
"""In the guest: one empty file for each action that arrived."""


def keyboard_calls(action: Action) -> list[Call]:
    """The lines that carry out ``action``; none for `Wait`, `Finished` and `CallUser`."""
    return [(LINE, {"code": code}) for code in _lines(action)]


def program(calls: Sequence[Call], number: str) -> str:
    """The program that carries out these lines once, under a number no other action of the machine has."""
    lines = "\n".join(f"{arguments['code']}\ndone += 1" for _, arguments in calls)
    return PROGRAM.format(folder=CLAIMS, number=number, lines=lines, said=SAID)


def carried_out(output: str) -> int | None:
    """How many lines a program says it carried out; None when it did not come to its end."""
    for line in reversed(output.splitlines()):
        head, _, count = line.strip().rpartition(" ")
        if head == SAID and count.isdigit():
            return int(count)
    return None


def _lines(action: Action) -> Iterator[str]:
    match action:
        case Click(x, y):
            yield f"pyautogui.click({x}, {y})"
        case LeftDouble(x, y):
            yield f"pyautogui.doubleClick({x}, {y})"
        case RightSingle(x, y):
            yield f"pyautogui.rightClick({x}, {y})"
        case Drag(x, y, end_x, end_y):
            yield f"pyautogui.moveTo({x}, {y})"
            yield f"pyautogui.dragTo({end_x}, {end_y}, duration={DRAG_S}, button='left')"
        case Hotkey(keys):
            names = ", ".join(repr(KEY_NAMES.get(key, key)) for key in keys)
            yield f"pyautogui.hotkey({names})"
        case Type(content):
            yield from _typed(content)
        case Scroll(x, y, direction):
            turn = "scroll" if direction in ("up", "down") else "hscroll"
            notches = NOTCHES if direction in ("up", "right") else -NOTCHES
            yield f"pyautogui.{turn}({notches}, x={x}, y={y})"
        case Wait() | Finished() | CallUser():
            return


def _typed(content: str) -> Iterator[str]:
    """Runs of what a keyboard can type; '<', which pyautogui types as '>', and the rest by themselves."""
    run = ""
    for character in content:
        if character.isascii() and character not in "<\n":
            run += character
            continue
        if run:
            yield _written(run)
            run = ""
        if character == "\n":
            yield "pyautogui.press('enter')"
        elif character == "<":
            yield "pyautogui.hotkey('shift', ',')"
        else:
            yield (
                f"import pyperclip; pyperclip.copy({character!r}); pyautogui.hotkey('ctrl', 'v'); "
                f"time.sleep({PASTE_PAUSE_S})"
            )
    if run:
        yield _written(run)


def _written(text: str) -> str:
    return f"pyautogui.write({text!r}, interval={KEY_PAUSE_S})"
