"""Actions as pyautogui code for the guest: what its protocol takes for mouse and keyboard. Pure.

Each call is one line of Python. The lines of one action are sent as one program that claims its number by
making a file before it does anything: a program that arrives a second time, by whatever retried it on the
way, ends there. It says how many lines it carried out.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

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
from dart.environments.browser_inputs import Call

LINE = "line"
"""Name of a call; its parameter is the code."""

NOTCHES = 5
"""Notches of one `Scroll`, as in UI-TARS."""

DRAG_S = 0.5
KEY_PAUSE_S = 0.02
PASTE_PAUSE_S = 0.3

OWNED_WITHIN_S = 10.0
"""What was copied is in the clipboard this soon. Copying ends earlier: a paste at once gives what was."""

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
def paste(text):
    import pyperclip
    nowhere, said = os.open(os.devnull, os.O_WRONLY), [os.dup(1), os.dup(2)]
    os.dup2(nowhere, 1), os.dup2(nowhere, 2)
    try:
        pyperclip.copy(text)
    finally:
        os.dup2(said[0], 1), os.dup2(said[1], 2)
    patience = time.monotonic() + {owned_within}
    while pyperclip.paste() != text:
        if time.monotonic() > patience:
            raise TimeoutError("the clipboard does not take what is copied")
        time.sleep(0.02)
    pyautogui.hotkey("ctrl", "v")
    time.sleep({pause})
done = 0
{lines}
print({said!r}, done)
"""

"""What the guest runs. Who owns the clipboard (xclip) goes on living, and the guest waits until nobody holds
the program's output any more: an owner that had it would hold up the answer until its deadline."""

CLAIMS = "~/.cache/dartrl-actions"
"""In the guest: one empty file for each action that arrived."""


def keyboard_calls(action: Action) -> list[Call]:
    """The lines that carry out ``action``; none for `Wait`, `Finished` and `CallUser`."""
    return [(LINE, {"code": code}) for code in _lines(action)]


def program(calls: Sequence[Call], number: str) -> str:
    """The program that carries out these lines once, under a number no other action of the machine has."""
    lines = "\n".join(f"{arguments['code']}\ndone += 1" for _, arguments in calls)
    return PROGRAM.format(
        folder=CLAIMS, number=number, lines=lines, said=SAID, pause=PASTE_PAUSE_S, owned_within=OWNED_WITHIN_S
    )


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
    """Runs of what a keyboard can type, and of what is pasted; '<', which pyautogui types as '>', alone."""
    for kind, run in groupby(content, _kind):
        if kind == "typed":
            yield _written("".join(run))
        elif kind == "pasted":
            yield f"paste({''.join(run)!r})"
        else:
            for _ in run:
                yield "pyautogui.press('enter')" if kind == "\n" else "pyautogui.hotkey('shift', ',')"


def _kind(character: str) -> str:
    if character in "<\n":
        return character
    return "typed" if character.isascii() else "pasted"


def _written(text: str) -> str:
    return f"pyautogui.write({text!r}, interval={KEY_PAUSE_S})"
