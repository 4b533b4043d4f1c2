"""The tasks of local desktops: applications, an instruction, an evaluator and a scripted solution. Pure.

The seed of a task decides the files of the home, the open applications, the instruction and the evaluator.
The solution is a list of actions that a policy could take. It follows from the instruction alone
(`solution_of`), so the engine of ``rollout.engine = "oracle"`` can play it with no more than a policy sees.
"""

import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from dart.config.config import Config
from dart.core.actions import (
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    Type,
    Wait,
    format_action,
)
from dart.environments.desktop import office
from dart.environments.desktop.sandbox import HOME
from dart.environments.faults import UnknownTask

PREFIX = "desktop/"

WORDS = (
    *("amber", "birch", "copper", "delta", "ember", "fjord", "grove", "harbor", "island", "jasper"),
    *("kettle", "lemon", "meadow", "nickel", "orchid", "pepper", "quartz", "river", "silver", "timber"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A program that is open when the task begins."""

    command: tuple[str, ...]
    window_class: str
    settings: Mapping[str, bytes] = field(default_factory=dict)
    """Hidden files of the home that suppress the application's own dialogs and hints."""
    still_s: float = 0.1
    """How long the application's window must not change before the application accepts input."""


def _office_application(kind: str, file: str) -> Application:
    """Return LibreOffice's Calc (``kind="calc"``) or Writer (``"writer"``) with an open file of the home.

    The command, such as `lowriter`, belongs to the package of the program, so a missing package is noticed:
    `soffice --writer` shows no window without Writer's package."""
    return Application(
        command=(f"lo{kind}", "--norestore", "--nologo", "--nofirststartwizard", f"{HOME}/{file}"),
        window_class=f"libreoffice-{kind}",
        settings={office.PROFILE: office.QUIET},
        still_s=3.0,
    )


NOTES, TABLE, LETTER = "notes.txt", "table.fods", "letter.fodt"
"""Names of the files that tasks open."""

EDITOR = Application(command=("mousepad", "--disable-server", f"{HOME}/{NOTES}"), window_class="Mousepad")
CALCULATOR = Application(command=("galculator",), window_class="Galculator")
FILES = Application(command=("pcmanfm", HOME), window_class="Pcmanfm")
TABLES = _office_application("calc", TABLE)
TEXTS = _office_application("writer", LETTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window: title, class, and position and size in pixels without the frame."""

    title: str
    window_class: tuple[str, ...]
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of the desktop at the end of an episode."""

    files: Mapping[str, bytes]
    """Content by path relative to the home, without hidden files."""
    folders: frozenset[str] = frozenset()
    clipboard: str = ""
    windows: tuple[Window, ...] = ()
    active: str = ""
    """Class of the window that has the focus, empty when none has."""

    def text(self, name: str) -> str | None:
        """Return a file's text without its final newline; None when there is no such file."""
        content = self.files.get(name)
        return None if content is None else content.decode(errors="replace").removesuffix("\n")

    def window(self, window_class: str) -> Window | None:
        """Return the first window of a class; None when no window has this class."""
        return next((window for window in self.windows if window_class in window.window_class), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A task with the content that its seed decides."""

    instruction: str
    applications: tuple[Application, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files at the start by path relative to the home; a name that ends in / is a folder."""
    succeeds: Callable[[State], bool]


Asked = Callable[..., str]
"""Function that takes the values of a task's placeholders by keyword and returns the instruction."""

Draw = Callable[[random.Random, Asked], Instance]
Solution = Callable[..., Sequence[Action]]


@dataclass(frozen=True, slots=True)
class _Task:
    instruction: str
    """The instruction, with placeholders such as ``{text}`` for what the seed decides."""
    solve: Solution | None
    """Function that takes the values of the placeholders by keyword and returns the solving actions.

    None when the task cannot be done."""
    draw: Draw

    def values_in(self, instruction: str) -> Mapping[str, str] | None:
        """Return the values of this task's placeholders in an instruction; None for another task's
        instruction."""
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.*)", re.escape(self.instruction))
        match = re.fullmatch(pattern, instruction, re.DOTALL)
        return None if match is None else match.groupdict()


_TASKS: dict[str, _Task] = {}


def _task(name: str, instruction: str, solve: Solution | None) -> Callable[[Draw], Draw]:
    """Return a decorator that registers a task with the function that draws its instances (see `_Task`)."""

    def register(draw: Draw) -> Draw:
        _TASKS[PREFIX + name] = _Task(instruction, solve, draw)
        return draw

    return register


@cache
def task_ids() -> tuple[str, ...]:
    """Return the ids of all tasks, sorted."""
    return tuple(sorted(_TASKS))


def tasks_of(config: Config) -> tuple[str, ...]:
    """Return the ids of all tasks, which do not depend on the configuration."""
    return task_ids()


def instance_of(task_id: str, seed: int) -> Instance:
    """Return the instance of a task that a seed decides; raises UnknownTask."""
    task = _TASKS.get(task_id)
    if task is None:
        raise UnknownTask(task_id, task_ids())
    return task.draw(random.Random(f"{task_id}/{seed}"), task.instruction.format)


def is_infeasible(task_id: str) -> bool:
    """Whether the task cannot be done, so that only `CallUser` is rewarded."""
    return task_id in _TASKS and _TASKS[task_id].solve is None


def solution_of(instruction: str) -> tuple[Action, ...]:
    """Return all actions of the scripted solution of an instruction; the last is `Finished` or `CallUser`.

    Raises LookupError for an instruction that belongs to no task.
    """
    for task in _TASKS.values():
        values = task.values_in(instruction)
        if values is not None:
            return (CallUser(),) if task.solve is None else (*task.solve(**values), Finished())
    raise LookupError(f"no task of a local desktop has the instruction {instruction!r}")


def answer_of(instruction: str, history: Sequence[str]) -> str:
    """Return the text of the solution's next action, where ``history`` has the answers so far.

    After the end of the solution, the last action is returned again. Raises LookupError for an instruction
    that belongs to no task."""
    solution = solution_of(instruction)
    return format_action(solution[min(len(history), len(solution) - 1)])


# ---- random content ----


def _phrase(rng: random.Random) -> str:
    return " ".join(rng.sample(WORDS, 3))


def _lines(rng: random.Random, count: int = 4) -> list[str]:
    return [_phrase(rng) for _ in range(count)]


def _file_names(rng: random.Random, count: int) -> list[str]:
    return [f"{word}.txt" for word in rng.sample(WORDS, count)]


SAVE = Hotkey(("ctrl", "s"))
ALL = Hotkey(("ctrl", "a"))
COPY, CUT, PASTE = Hotkey(("ctrl", "c")), Hotkey(("ctrl", "x")), Hotkey(("ctrl", "v"))
TOP, BOTTOM = Hotkey(("ctrl", "home")), Hotkey(("ctrl", "end"))
ENTER, DELETE, RIGHT = Hotkey(("enter",)), Hotkey(("delete",)), Hotkey(("right",))

# ---- the text editor ----

Edit = Callable[[list[str], str], Sequence[str]]
"""Function from the lines of a file and a drawn phrase to the lines that the task wants."""


def _in_editor(asked: str, before: Sequence[str], succeeds: Callable[[State], bool]) -> Instance:
    """Return an instance in which the text editor shows the file notes.txt with these lines."""
    files = {NOTES: "".join(f"{line}\n" for line in before).encode()}
    return Instance(instruction=asked, applications=(EDITOR,), files=files, succeeds=succeeds)


def _has_text(name: str, lines: Sequence[str]) -> Callable[[State], bool]:
    """Return a check that a file has these lines, with or without a newline at the end."""
    return lambda state: state.text(name) == "\n".join(lines)


def _editor_task(name: str, instruction: str, solve: Solution, edit: Edit) -> None:
    """Register a task that edits the text of notes.txt and saves it."""

    @_task(name, instruction, solve)
    def _(rng: random.Random, asked: Asked) -> Instance:
        lines, text = _lines(rng), _phrase(rng)
        return _in_editor(asked(text=text), lines, _has_text(NOTES, edit(lines, text)))


@_task(
    "editor-write",
    'Write the line "{text}" into the open, empty file notes.txt and save it.',
    lambda text: [Type(text), SAVE],
)
def _(rng: random.Random, asked: Asked) -> Instance:
    text = _phrase(rng)
    return _in_editor(asked(text=text), [], _has_text(NOTES, [text]))


_editor_task(
    "editor-append",
    'Add the line "{text}" at the end of notes.txt and save it.',
    lambda text: [BOTTOM, Type(text + "\n"), SAVE],
    lambda lines, text: [*lines, text],
)
_editor_task(
    "editor-insert-first",
    'Insert the line "{text}" before the first line of notes.txt and save it.',
    lambda text: [TOP, Type(text + "\n"), SAVE],
    lambda lines, text: [text, *lines],
)
_editor_task(
    "editor-replace-all",
    'Replace everything in notes.txt by the line "{text}" and save it.',
    lambda text: [ALL, Type(text), SAVE],
    lambda lines, text: [text],
)
_editor_task(
    "editor-delete-first",
    "Delete the first line of notes.txt and save it.",
    lambda: [TOP, Hotkey(("shift", "down")), DELETE, SAVE],
    lambda lines, text: lines[1:],
)
_editor_task(
    "editor-copy-first",
    "Copy the first line of notes.txt to its end, as a line of its own, and save it.",
    lambda: [TOP, Hotkey(("shift", "end")), COPY, BOTTOM, PASTE, SAVE],
    lambda lines, text: [*lines, lines[0]],
)
_editor_task(
    "editor-clear",
    "Delete all text in notes.txt and save the empty file.",
    lambda: [ALL, DELETE, SAVE],
    lambda lines, text: [""],
)


@_task(
    "editor-save-as",
    'Save the open file under the new name "{name}" in the home folder and keep the old one.',
    lambda name: [Hotkey(("ctrl", "shift", "s")), ALL, Type(name), ENTER, Wait(), Wait()],
)
def _(rng: random.Random, asked: Asked) -> Instance:
    lines, name = _lines(rng), f"{rng.choice(WORDS)}.txt"
    old, new = _has_text(NOTES, lines), _has_text(name, lines)
    return _in_editor(asked(name=name), lines, lambda state: old(state) and new(state))


@_task("editor-to-clipboard", "Copy the whole text of notes.txt to the clipboard.", lambda: [ALL, COPY])
def _(rng: random.Random, asked: Asked) -> Instance:
    lines = _lines(rng)
    return _in_editor(asked(), lines, lambda state: state.clipboard.split() == " ".join(lines).split())


@_task("editor-close", "Close the text editor.", lambda: [Hotkey(("ctrl", "q"))])
def _(rng: random.Random, asked: Asked) -> Instance:
    return _in_editor(asked(), _lines(rng), lambda state: not state.windows)


# ---- the calculator ----


def _numbers(rng: random.Random, digits: int) -> tuple[int, int]:
    """Return two numbers with this many digits, the larger first.

    No digit occurs twice, because the calculator ignores a key that is pressed again within 0.25 s."""
    drawn = rng.sample("123456789", 2 * digits)
    numbers = sorted(int("".join(part)) for part in (drawn[:digits], drawn[digits:]))
    return numbers[1], numbers[0]


def _calculator_task(name: str, sign: str, digits: int, compute: Callable[[int, int], int]) -> None:
    """Register a task that computes with two numbers of this many digits."""

    @_task(
        name,
        f"Compute {{a}} {sign} {{b}} with the calculator and copy the result to the clipboard.",
        lambda a, b: [Type(f"{a}{sign}{b}\n"), COPY],
    )
    def _(rng: random.Random, asked: Asked) -> Instance:
        a, b = _numbers(rng, digits)
        result = str(compute(a, b))
        return Instance(
            instruction=asked(a=a, b=b),
            applications=(CALCULATOR,),
            succeeds=lambda state: state.clipboard.strip() == result,
        )


_calculator_task("calculator-product", "*", 2, operator.mul)
_calculator_task("calculator-sum", "+", 3, operator.add)
_calculator_task("calculator-difference", "-", 3, operator.sub)


@_task(
    "calculator-mail",
    "Send the result of {a} * {b} to {name}@example.com with the calculator.",
    None,
)
def _(rng: random.Random, asked: Asked) -> Instance:
    a, b = rng.randrange(12, 100), rng.randrange(12, 100)
    mail = asked(a=a, b=b, name=rng.choice(WORDS))
    return Instance(instruction=mail, applications=(CALCULATOR,), succeeds=lambda state: False)


# ---- the file manager ----

FIRST_FILE = Click(267, 147)
"""Position of the first icon in the file manager, which sorts files by name."""


def _in_files(asked: str, files: Mapping[str, bytes], succeeds: Callable[[State], bool]) -> Instance:
    return Instance(instruction=asked, applications=(FILES,), files=files, succeeds=succeeds)


@_task(
    "files-new-folder",
    'Make a folder called "{name}" in the home folder.',
    lambda name: [Hotkey(("ctrl", "shift", "n")), ALL, Type(name), ENTER, Wait()],
)
def _(rng: random.Random, asked: Asked) -> Instance:
    name = rng.choice(WORDS)
    return _in_files(asked(name=name), {}, lambda state: state.folders == {name} and not state.files)


@_task(
    "files-rename",
    'Rename the file "{old}" to "{new}".',
    lambda old, new: [FIRST_FILE, Hotkey(("f2",)), ALL, Type(new), ENTER, Wait()],
)
def _(rng: random.Random, asked: Asked) -> Instance:
    old, new = _file_names(rng, 2)
    content = _phrase(rng).encode()
    return _in_files(asked(old=old, new=new), {old: content}, lambda state: state.files == {new: content})


@_task(
    "files-delete",
    'Delete the file "{name}" for good, and nothing else.',
    lambda name: [FIRST_FILE, Hotkey(("shift", "delete")), ENTER, Wait()],
)
def _(rng: random.Random, asked: Asked) -> Instance:
    first, *others = sorted(_file_names(rng, 3))
    files = {name: _phrase(rng).encode() for name in (first, *others)}
    kept = {name: files[name] for name in others}
    return _in_files(asked(name=first), files, lambda state: state.files == kept)


def _go_to(folder: str) -> list[Action]:
    return [Hotkey(("ctrl", "l")), ALL, Type(f"{HOME}/{folder}\n")]


def _transfer_task(name: str, verb: str, take: Hotkey) -> None:
    """Register a task that copies or moves the files of one folder to another."""

    @_task(
        name,
        f'{verb} all files of the folder "{{source}}" into the folder "{{target}}".',
        lambda source, target: [*_go_to(source), ALL, take, *_go_to(target), PASTE, Wait()],
    )
    def _(rng: random.Random, asked: Asked) -> Instance:
        source, target = rng.sample(WORDS, 2)
        content = {name: _phrase(rng).encode() for name in _file_names(rng, 2)}
        before = {f"{source}/{name}": text for name, text in content.items()}
        after = {f"{target}/{name}": text for name, text in content.items()}
        wanted = before | after if take is COPY else after
        instruction = asked(source=source, target=target)
        return _in_files(instruction, before | {f"{target}/": b""}, lambda state: state.files == wanted)


_transfer_task("files-copy", "Copy", COPY)
_transfer_task("files-move", "Move", CUT)


# ---- windows ----

EDITOR_TITLE = (200, 50)
"""A point on the text editor's title bar."""


@_task("window-maximize", "Maximize the window of the text editor.", lambda: [LeftDouble(*EDITOR_TITLE)])
def _(rng: random.Random, asked: Asked) -> Instance:
    def succeeds(state: State) -> bool:
        window = state.window(EDITOR.window_class)
        return window is not None and window.x <= 4 and window.width >= 760

    return _in_editor(asked(), _lines(rng), succeeds)


@_task(
    "window-move",
    "Drag the window of the text editor at least {pixels} pixels to the right.",
    lambda pixels: [Drag(*EDITOR_TITLE, EDITOR_TITLE[0] + int(pixels) + 40, EDITOR_TITLE[1])],
)
def _(rng: random.Random, asked: Asked) -> Instance:
    pixels = 10 * rng.randrange(3, 8)

    def succeeds(state: State) -> bool:
        window = state.window(EDITOR.window_class)
        return window is not None and window.x >= 40 + pixels

    return _in_editor(asked(pixels=pixels), _lines(rng), succeeds)


@_task(
    "window-switch",
    "Bring the window of the text editor, which lies behind the calculator, to the front.",
    lambda: [Click(*EDITOR_TITLE)],
)
def _(rng: random.Random, asked: Asked) -> Instance:
    alone = _in_editor(asked(), _lines(rng), lambda state: state.active == EDITOR.window_class)
    return replace(alone, applications=(EDITOR, CALCULATOR))


# ---- LibreOffice ----

SAVE_OFFICE = (SAVE, Wait(), Wait(), Wait())
"""Actions that save a file in LibreOffice, which takes some seconds."""


def _in_table(asked: str, row: Sequence[int], wanted: int) -> Instance:
    """Return an instance with an open spreadsheet: the policy fills D1, and A1 to C1 must not change."""

    def succeeds(state: State) -> bool:
        cells = office.first_row(state.files.get(TABLE, b""))
        return cells[:4] == [str(value) for value in (*row, wanted)]

    files = {TABLE: office.table(row)}
    return Instance(instruction=asked, applications=(TABLES,), files=files, succeeds=succeeds)


@_task(
    "table-number",
    "Write the number {number} into cell D1 of the open table and save it.",
    lambda number: [RIGHT, RIGHT, RIGHT, Type(f"{number}\n"), *SAVE_OFFICE],
)
def _(rng: random.Random, asked: Asked) -> Instance:
    row, number = [rng.randrange(10, 100) for _ in range(3)], rng.randrange(100, 1000)
    return _in_table(asked(number=number), row, number)


@_task(
    "table-sum",
    "Write the sum of A1 and B1 as a formula into cell D1 of the open table and save it.",
    lambda: [RIGHT, RIGHT, RIGHT, Type("=A1+B1\n"), *SAVE_OFFICE],
)
def _(rng: random.Random, asked: Asked) -> Instance:
    row = [rng.randrange(10, 100) for _ in range(3)]
    return _in_table(asked(), row, row[0] + row[1])


def _lowered(lines: Sequence[str]) -> list[str]:
    """Return texts in lower case, because LibreOffice capitalises the first letters of sentences by
    itself."""
    return [line.lower() for line in lines]


def _letter_task(name: str, instruction: str, solve: Solution, edit: Edit) -> None:
    """Register a task that edits the paragraphs of an open letter and saves it."""

    @_task(name, instruction, solve)
    def _(rng: random.Random, asked: Asked) -> Instance:
        before, text = _lines(rng, 3), _phrase(rng)
        after = _lowered(edit(before, text))
        return Instance(
            instruction=asked(text=text),
            applications=(TEXTS,),
            files={LETTER: office.letter(before)},
            succeeds=lambda state: _lowered(office.lines(state.files.get(LETTER, b""))) == after,
        )


_letter_task(
    "letter-append",
    'Add the paragraph "{text}" at the end of the open letter and save it.',
    lambda text: [BOTTOM, Type(f"\n{text}"), *SAVE_OFFICE],
    lambda lines, text: [*lines, text],
)
_letter_task(
    "letter-replace",
    'Replace everything in the open letter by the paragraph "{text}" and save it.',
    lambda text: [ALL, Type(text), *SAVE_OFFICE],
    lambda lines, text: [text],
)
