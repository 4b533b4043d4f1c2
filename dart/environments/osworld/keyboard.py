"""Actions as pyautogui code, which the guest runs to move the mouse and press keys. Pure.

The lines of one action are sent as one program, those of a long text as several. Before it does anything, a
program checks the owner of the machine (`dart.environments.osworld.machine_owner`), and creates a file whose
name is its number; a program that arrives a second time finds the file and ends.
The last line that a program prints is the number of executed lines.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

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
from dart.environments.osworld.machine_owner import READS_OWNER, TAKEN

NOTCHES = 5
"""Wheel notches of one `Scroll`, as in UI-TARS."""

DRAG_S = 0.5
KEY_PAUSE_S = 0.02
PASTE_PAUSE_S = 0.3

OWNED_WITHIN_S = 10.0
"""Longest wait until a copied text is in the clipboard. The function that copies returns earlier, and an
immediate paste would paste the old text."""

KEY_MOST_S, PASTE_MOST_S, CALL_MOST_S = 0.04, 1.0, 0.2
"""How long a typed character, a pasted text and any other call of pyautogui may take, in seconds."""

PROGRAM_MOST_S = 60.0
"""How long one program may take. The guest's server kills a command after 120 s."""

TYPED_MOST = 1000
"""Number of characters that one line types at most."""

KEY_NAMES = {"meta": "win"}
"""pyautogui's names of keys, where they differ from the names in the action grammar."""

DONE_PREFIX = "dartrl carried out"
"""Beginning of a program's last line of output."""

PROGRAM = """
import os, time
{reads_owner}
if {owner!r} not in ("", owner):
    raise RuntimeError({taken!r})
claims = os.path.expanduser({folder!r})
os.makedirs(claims, exist_ok=True)
os.close(os.open(claims + "/{number}", os.O_CREAT | os.O_EXCL))
import pyautogui
pyautogui.FAILSAFE = False
def copied(text):
    import pyperclip
    null, streams = os.open(os.devnull, os.O_WRONLY), [os.dup(1), os.dup(2)]
    os.dup2(null, 1), os.dup2(null, 2)
    try:
        pyperclip.copy(text)
    finally:
        os.dup2(streams[0], 1), os.dup2(streams[1], 2)
        for opened in (null, *streams):
            os.close(opened)
    patience = time.monotonic() + {owned_within}
    while pyperclip.paste() != text:
        if time.monotonic() > patience:
            raise TimeoutError("the copied text did not arrive in the clipboard")
        time.sleep(0.02)
def paste(text):
    copied(text)
    pyautogui.hotkey("ctrl", "v")
    time.sleep({pause})
done = 0
{lines}
print({done_prefix!r}, done)
"""
"""Template of the program that the guest runs. The process that owns the clipboard (xclip) outlives the
program. This process must not inherit the program's output, or the guest would respond only after the
end of this process."""

CLAIMS = "~/.cache/dartrl-actions"
"""Folder in the guest with one empty file for each program that arrived."""


def program(lines: Iterable[str], number: str, owner: str = "") -> str:
    """Return the program that executes these lines once.

    number   no other program of the machine has it
    owner    the number that the machine's owner must have; empty for any machine

    With another owner the program executes nothing and ends with the error `TAKEN`."""
    return PROGRAM.format(
        reads_owner=READS_OWNER,
        owner=owner,
        taken=TAKEN,
        folder=CLAIMS,
        number=number,
        lines="\n".join(f"{line}\ndone += 1" for line in lines),
        done_prefix=DONE_PREFIX,
        pause=PASTE_PAUSE_S,
        owned_within=OWNED_WITHIN_S,
    )


def seconds_of(line: str) -> float:
    """Return how long a line of `keyboard_lines` may take in the guest."""
    if line.startswith("pyautogui.write("):
        return CALL_MOST_S + KEY_MOST_S * len(line)
    return PASTE_MOST_S if line.startswith("paste(") else CALL_MOST_S


def parts_of(lines: Iterable[str]) -> Iterator[list[str]]:
    """Divide lines, in their order, among programs that take at most about `PROGRAM_MOST_S`."""
    part, part_s = list[str](), 0.0
    for line in lines:
        if part and part_s + seconds_of(line) > PROGRAM_MOST_S:
            yield part
            part, part_s = [], 0.0
        part.append(line)
        part_s += seconds_of(line)
    if part:
        yield part


def copying_line(text: str) -> str:
    """Return a line for `program` that copies a text, and raises an error if the clipboard does not get
    it."""
    return f"copied({text!r})"


def lines_done(output: str) -> int | None:
    """Return the number of lines that a program executed; None when it did not reach its end."""
    for line in reversed(output.splitlines()):
        head, _, count = line.strip().rpartition(" ")
        if head == DONE_PREFIX and count.isdigit():
            return int(count)
    return None


def keyboard_lines(action: Action) -> Iterator[str]:
    """Yield the lines of Python that perform ``action``; none for `Wait`, `Finished` and `CallUser`."""
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
            yield f"pyautogui.hotkey({', '.join(repr(KEY_NAMES.get(key, key)) for key in keys)})"
        case KeyDown(key):
            yield f"pyautogui.keyDown({KEY_NAMES.get(key, key)!r})"
        case KeyUp(key):
            yield f"pyautogui.keyUp({KEY_NAMES.get(key, key)!r})"
        case Hover(x, y):
            yield f"pyautogui.moveTo({x}, {y})"
        case Type(content):
            yield from _typed(content)
        case Scroll(x, y, direction):
            turn, notches = _turn(direction)
            yield f"pyautogui.{turn}({notches}, x={x}, y={y})"
        case ScrollHere(direction):
            turn, notches = _turn(direction)
            yield f"pyautogui.{turn}({notches})"
        case Wait() | Finished() | CallUser():
            return


def _turn(direction: str) -> tuple[str, int]:
    """Return the name of pyautogui's function that turns the wheel, and the signed number of notches."""
    turn = "scroll" if direction in ("up", "down") else "hscroll"
    return turn, NOTCHES if direction in ("up", "right") else -NOTCHES


def _typed(content: str) -> Iterator[str]:
    """Yield the lines that enter a text: runs of ASCII characters are typed, runs of others are pasted.

    A newline and '<', which pyautogui types as '>', have lines of their own."""
    for kind, run in groupby(content, _kind):
        if kind == "typed":
            text = "".join(run)
            for start in range(0, len(text), TYPED_MOST):
                yield f"pyautogui.write({text[start : start + TYPED_MOST]!r}, interval={KEY_PAUSE_S})"
        elif kind == "pasted":
            yield f"paste({''.join(run)!r})"
        else:
            for _ in run:
                yield "pyautogui.press('enter')" if kind == "\n" else "pyautogui.hotkey('shift', ',')"


def _kind(character: str) -> str:
    if character in "<\n":
        return character
    return "typed" if character.isascii() else "pasted"
