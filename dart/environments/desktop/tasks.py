"""The tasks of local desktops: applications, an instruction, an evaluator and a scripted solution. Pure.

The seed of a task decides the files of the home, the open applications, the instruction and the evaluator.
The solution is a list of actions that a policy could take. It is a function of the instruction alone, so the
oracle engine can play it with no more than a policy sees (`solution_of`).
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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

    name: str
    command: tuple[str, ...]
    window_class: str
    settings: Mapping[str, bytes] = field(default_factory=dict)
    """Hidden files of the home that suppress the application's own dialogs and hints."""
    still_s: float = 0.1
    """The application accepts input once its window did not change for this long."""


EDITOR = Application(name="mousepad", command=("mousepad", "--disable-server"), window_class="Mousepad")
CALCULATOR = Application(name="galculator", command=("galculator",), window_class="Galculator")
FILES = Application(name="pcmanfm", command=("pcmanfm", HOME), window_class="Pcmanfm")


SOFFICE = ("soffice", "--norestore", "--nologo", "--nofirststartwizard")
TABLES = Application(
    name="soffice-calc",
    command=(*SOFFICE, "--calc", f"{HOME}/table.fods"),
    window_class="libreoffice-calc",
    settings={office.PROFILE: office.QUIET},
    still_s=3.0,
)
TEXTS = Application(
    name="soffice-writer",
    command=(*SOFFICE, "--writer", f"{HOME}/letter.fodt"),
    window_class="libreoffice-writer",
    settings={office.PROFILE: office.QUIET},
    still_s=3.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window: its title, its class, and its place on the screen without the frame."""

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
        """Return the first window of a class; None without one."""
        return next((window for window in self.windows if window_class in window.window_class), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A task with the content that its seed decides."""

    instruction: str
    applications: tuple[Application, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files at the start by path relative to the home; a name that ends in / is a folder."""
    succeeds: Callable[[State], bool]


Draw = Callable[[random.Random], Instance]
Solution = Callable[..., Sequence[Action]]


@dataclass(frozen=True, slots=True)
class _Task:
    draw: Draw
    pattern: re.Pattern[str]
    solve: Solution


_TASKS: dict[str, _Task] = {}


def _task(name: str, pattern: str, solve: Solution) -> Callable[[Draw], Draw]:
    """Register a task: the function that draws an instance, the pattern of its instructions, and the function
    from the pattern's groups to the actions of its solution."""

    def register(draw: Draw) -> Draw:
        _TASKS[PREFIX + name] = _Task(draw, re.compile(pattern, re.DOTALL), solve)
        return draw

    return register


@cache
def task_ids() -> tuple[str, ...]:
    """Return the ids of all tasks, sorted."""
    return tuple(sorted(_TASKS))


def tasks_of(config: Config) -> tuple[str, ...]:
    """Return the ids of all tasks; they do not depend on the configuration."""
    return task_ids()


def instance_of(task_id: str, seed: int) -> Instance:
    """Return the task with the content of a seed; raises UnknownTask."""
    task = _TASKS.get(task_id)
    if task is None:
        raise UnknownTask(task_id, task_ids())
    return task.draw(random.Random(f"{task_id}/{seed}"))


def is_infeasible(task_id: str) -> bool:
    """Whether the right answer is to declare that the task cannot be done."""
    return task_id in INFEASIBLE


def solution_of(instruction: str) -> tuple[Action, ...]:
    """Return all actions of the scripted solution; the last one is `Finished` or `CallUser`.

    Raises LookupError for an instruction that belongs to no task.
    """
    for task_id, task in _TASKS.items():
        match = task.pattern.fullmatch(instruction)
        if match is not None:
            return (*task.solve(*match.groups()), CallUser() if is_infeasible(task_id) else Finished())
    raise LookupError(f"no task of a local desktop has the instruction {instruction!r}")


def answer_of(instruction: str, history: Sequence[str]) -> str:
    """Return the text of the solution's next action after the actions in ``history``; raises LookupError."""
    solution = solution_of(instruction)
    return format_action(solution[min(len(history), len(solution) - 1)])


# ---- random content ----


def _word(rng: random.Random) -> str:
    return rng.choice(WORDS)


def _phrase(rng: random.Random, words: int = 3) -> str:
    return " ".join(rng.sample(WORDS, words))


def _lines(rng: random.Random, count: int = 4) -> list[str]:
    return [_phrase(rng) for _ in range(count)]


def _editor(*files: str) -> Application:
    paths = tuple(f"{HOME}/{name}" for name in files)
    return Application(name=EDITOR.name, command=(*EDITOR.command, *paths), window_class=EDITOR.window_class)


def _in_editor(
    instruction: str, before: Sequence[str], succeeds: Callable[[State], bool], name: str = "notes.txt"
) -> Instance:
    """Return a task with one file open in the text editor."""
    text = "".join(f"{line}\n" for line in before)
    return Instance(
        instruction=instruction,
        applications=(_editor(name),),
        files={name: text.encode()},
        succeeds=succeeds,
    )


def _has_text(name: str, lines: Sequence[str]) -> Callable[[State], bool]:
    """Return a check that a file has these lines, with or without a newline at the end."""
    wanted = "\n".join(lines)
    return lambda state: state.text(name) == wanted


SAVE = Hotkey(("ctrl", "s"))
ALL = Hotkey(("ctrl", "a"))
COPY, CUT, PASTE = Hotkey(("ctrl", "c")), Hotkey(("ctrl", "x")), Hotkey(("ctrl", "v"))
TOP, BOTTOM = Hotkey(("ctrl", "home")), Hotkey(("ctrl", "end"))
ENTER, DELETE = Hotkey(("enter",)), Hotkey(("delete",))

# ---- the text editor ----


@_task(
    "editor-write",
    r'Write the line "(.*)" into the open, empty file notes\.txt and save it\.',
    lambda text: [Type(text), SAVE],
)
def _(rng: random.Random) -> Instance:
    text = _phrase(rng)
    asked = f'Write the line "{text}" into the open, empty file notes.txt and save it.'
    return _in_editor(asked, [], _has_text("notes.txt", [text]))


@_task(
    "editor-append",
    r'Add the line "(.*)" at the end of notes\.txt and save it\.',
    lambda text: [BOTTOM, Type(text + "\n"), SAVE],
)
def _(rng: random.Random) -> Instance:
    lines, text = _lines(rng), _phrase(rng)
    asked = f'Add the line "{text}" at the end of notes.txt and save it.'
    return _in_editor(asked, lines, _has_text("notes.txt", [*lines, text]))


@_task(
    "editor-insert-first",
    r'Insert the line "(.*)" before the first line of notes\.txt and save it\.',
    lambda text: [TOP, Type(text + "\n"), SAVE],
)
def _(rng: random.Random) -> Instance:
    lines, text = _lines(rng), _phrase(rng)
    asked = f'Insert the line "{text}" before the first line of notes.txt and save it.'
    return _in_editor(asked, lines, _has_text("notes.txt", [text, *lines]))


@_task(
    "editor-replace-all",
    r'Replace everything in notes\.txt by the line "(.*)" and save it\.',
    lambda text: [ALL, Type(text), SAVE],
)
def _(rng: random.Random) -> Instance:
    lines, text = _lines(rng), _phrase(rng)
    asked = f'Replace everything in notes.txt by the line "{text}" and save it.'
    return _in_editor(asked, lines, _has_text("notes.txt", [text]))


@_task(
    "editor-delete-first",
    r"Delete the first line of notes\.txt and save it\.",
    lambda: [TOP, Hotkey(("shift", "down")), DELETE, SAVE],
)
def _(rng: random.Random) -> Instance:
    lines = _lines(rng)
    asked = "Delete the first line of notes.txt and save it."
    return _in_editor(asked, lines, _has_text("notes.txt", lines[1:]))


@_task(
    "editor-copy-first",
    r"Copy the first line of notes\.txt to its end, as a line of its own, and save it\.",
    lambda: [TOP, Hotkey(("shift", "end")), COPY, BOTTOM, PASTE, SAVE],
)
def _(rng: random.Random) -> Instance:
    lines = _lines(rng)
    asked = "Copy the first line of notes.txt to its end, as a line of its own, and save it."
    return _in_editor(asked, lines, _has_text("notes.txt", [*lines, lines[0]]))


@_task(
    "editor-clear",
    r"Delete all text in notes\.txt and save the empty file\.",
    lambda: [ALL, DELETE, SAVE],
)
def _(rng: random.Random) -> Instance:
    asked = "Delete all text in notes.txt and save the empty file."
    return _in_editor(asked, _lines(rng), _has_text("notes.txt", [""]))


@_task(
    "editor-save-as",
    r'Save the open file under the new name "(.*)" in the home folder and keep the old one\.',
    lambda name: [Hotkey(("ctrl", "shift", "s")), ALL, Type(name), ENTER, Wait(), Wait()],
)
def _(rng: random.Random) -> Instance:
    lines, name = _lines(rng), f"{_word(rng)}.txt"
    asked = f'Save the open file under the new name "{name}" in the home folder and keep the old one.'

    def succeeds(state: State) -> bool:
        return all(_has_text(file, lines)(state) for file in ("notes.txt", name))

    return _in_editor(asked, lines, succeeds)


@_task(
    "editor-to-clipboard",
    r"Copy the whole text of notes\.txt to the clipboard\.",
    lambda: [ALL, COPY],
)
def _(rng: random.Random) -> Instance:
    lines = _lines(rng)
    asked = "Copy the whole text of notes.txt to the clipboard."
    return _in_editor(asked, lines, lambda state: state.clipboard.split() == " ".join(lines).split())


@_task("editor-close", r"Close the text editor\.", lambda: [Hotkey(("ctrl", "q"))])
def _(rng: random.Random) -> Instance:
    return _in_editor("Close the text editor.", _lines(rng), lambda state: not state.windows)


# ---- the calculator ----


def _numbers(rng: random.Random, digits: int) -> tuple[int, int]:
    """Return two numbers with this many digits, the larger first. No digit occurs twice, because the
    calculator ignores a key that is pressed again within a quarter of a second."""
    drawn = rng.sample("123456789", 2 * digits)
    numbers = sorted(int("".join(part)) for part in (drawn[:digits], drawn[digits:]))
    return numbers[1], numbers[0]


def _in_calculator(asked: str, result: int) -> Instance:
    return Instance(
        instruction=asked,
        applications=(CALCULATOR,),
        succeeds=lambda state: state.clipboard.strip() == str(result),
    )


def _computed(first: str, sign: str, second: str) -> Sequence[Action]:
    return [Type(f"{first}{sign}{second}\n"), COPY]


_COMPUTE = r"Compute (\d+) (\{}) (\d+) with the calculator and copy the result to the clipboard\."


@_task("calculator-product", _COMPUTE.format("*"), _computed)
def _(rng: random.Random) -> Instance:
    a, b = _numbers(rng, 2)
    asked = f"Compute {a} * {b} with the calculator and copy the result to the clipboard."
    return _in_calculator(asked, a * b)


@_task("calculator-sum", _COMPUTE.format("+"), _computed)
def _(rng: random.Random) -> Instance:
    a, b = _numbers(rng, 3)
    asked = f"Compute {a} + {b} with the calculator and copy the result to the clipboard."
    return _in_calculator(asked, a + b)


@_task("calculator-difference", _COMPUTE.format("-"), _computed)
def _(rng: random.Random) -> Instance:
    a, b = _numbers(rng, 3)
    asked = f"Compute {a} - {b} with the calculator and copy the result to the clipboard."
    return _in_calculator(asked, a - b)


# ---- the file manager ----

FIRST_FILE = Click(267, 147)
"""Position of the first icon in the file manager, which sorts files by name."""


def _in_files(asked: str, files: Mapping[str, bytes], succeeds: Callable[[State], bool]) -> Instance:
    return Instance(instruction=asked, applications=(FILES,), files=files, succeeds=succeeds)


@_task(
    "files-new-folder",
    r'Make a folder called "(.*)" in the home folder\.',
    lambda name: [Hotkey(("ctrl", "shift", "n")), ALL, Type(name), ENTER, Wait()],
)
def _(rng: random.Random) -> Instance:
    name = _word(rng)
    asked = f'Make a folder called "{name}" in the home folder.'
    return _in_files(asked, {}, lambda state: state.folders == {name} and not state.files)


@_task(
    "files-rename",
    r'Rename the file "(.*)" to "(.*)"\.',
    lambda old, new: [FIRST_FILE, Hotkey(("f2",)), ALL, Type(new), ENTER, Wait()],
)
def _(rng: random.Random) -> Instance:
    old, new = (f"{word}.txt" for word in rng.sample(WORDS, 2))
    content = _phrase(rng).encode()
    asked = f'Rename the file "{old}" to "{new}".'
    return _in_files(asked, {old: content}, lambda state: state.files == {new: content})


@_task(
    "files-delete",
    r'Delete the file "(.*)" for good, and nothing else\.',
    lambda name: [FIRST_FILE, Hotkey(("shift", "delete")), ENTER, Wait()],
)
def _(rng: random.Random) -> Instance:
    names = sorted(f"{word}.txt" for word in rng.sample(WORDS, 3))
    files = {name: _phrase(rng).encode() for name in names}
    asked = f'Delete the file "{names[0]}" for good, and nothing else.'
    kept = {name: content for name, content in files.items() if name != names[0]}
    return _in_files(asked, files, lambda state: state.files == kept)


def _go_to(folder: str) -> list[Action]:
    return [Hotkey(("ctrl", "l")), ALL, Type(f"{HOME}/{folder}\n")]


@_task(
    "files-copy",
    r'Copy all files of the folder "(.*)" into the folder "(.*)"\.',
    lambda source, target: [*_go_to(source), ALL, COPY, *_go_to(target), PASTE, Wait()],
)
def _(rng: random.Random) -> Instance:
    source, target = rng.sample(WORDS, 2)
    names = [f"{word}.txt" for word in rng.sample(WORDS, 2)]
    before = {f"{source}/{name}": _phrase(rng).encode() for name in names}
    copied = {f"{target}/{name}": before[f"{source}/{name}"] for name in names}
    asked = f'Copy all files of the folder "{source}" into the folder "{target}".'
    return _in_files(asked, {**before, f"{target}/": b""}, lambda state: state.files == before | copied)


@_task(
    "files-move",
    r'Move all files of the folder "(.*)" into the folder "(.*)"\.',
    lambda source, target: [*_go_to(source), ALL, CUT, *_go_to(target), PASTE, Wait()],
)
def _(rng: random.Random) -> Instance:
    source, target = rng.sample(WORDS, 2)
    names = [f"{word}.txt" for word in rng.sample(WORDS, 2)]
    content = {name: _phrase(rng).encode() for name in names}
    before = {f"{source}/{name}": content[name] for name in names}
    moved = {f"{target}/{name}": content[name] for name in names}
    asked = f'Move all files of the folder "{source}" into the folder "{target}".'
    return _in_files(asked, {**before, f"{target}/": b""}, lambda state: state.files == moved)


# ---- windows ----

EDITOR_TITLE, EDITOR_CLOSE = (200, 50), (674, 50)
"""Points on the text editor's title bar: one to drag it by, and its close button."""


@_task(
    "window-maximize",
    r"Maximize the window of the text editor\.",
    lambda: [LeftDouble(*EDITOR_TITLE)],
)
def _(rng: random.Random) -> Instance:
    def succeeds(state: State) -> bool:
        window = state.window(EDITOR.window_class)
        return window is not None and window.x <= 4 and window.width >= 760

    return _in_editor("Maximize the window of the text editor.", _lines(rng), succeeds)


@_task(
    "window-move",
    r"Drag the window of the text editor at least (\d+) pixels to the right\.",
    lambda pixels: [Drag(*EDITOR_TITLE, EDITOR_TITLE[0] + int(pixels) + 40, EDITOR_TITLE[1])],
)
def _(rng: random.Random) -> Instance:
    pixels = 10 * rng.randrange(3, 8)

    def succeeds(state: State) -> bool:
        window = state.window(EDITOR.window_class)
        return window is not None and window.x >= 40 + pixels

    asked = f"Drag the window of the text editor at least {pixels} pixels to the right."
    return _in_editor(asked, _lines(rng), succeeds)


@_task(
    "window-switch",
    r"Bring the window of the text editor, which lies behind the calculator, to the front\.",
    lambda: [Click(*EDITOR_TITLE)],
)
def _(rng: random.Random) -> Instance:
    asked = "Bring the window of the text editor, which lies behind the calculator, to the front."
    behind = _in_editor(asked, _lines(rng), lambda state: state.active == EDITOR.window_class)
    return Instance(
        instruction=asked,
        applications=(*behind.applications, CALCULATOR),
        files=behind.files,
        succeeds=behind.succeeds,
    )


# ---- LibreOffice ----

SAVE_OFFICE = (SAVE, Wait(), Wait(), Wait())
"""Actions that save a file in LibreOffice, which takes some seconds."""


def _in_table(asked: str, row: Sequence[int], column: int, wanted: int) -> Instance:
    """Return a task with an open sheet: one cell of its first row gets a value, the others keep theirs."""

    def succeeds(state: State) -> bool:
        content = state.files.get("table.fods", b"")
        values = [office.cell(content, 0, index) for index in range(len(row))]
        return office.cell(content, 0, column) == str(wanted) and all(
            value == str(before) for value, before in zip(values, row, strict=True)
        )

    files = {"table.fods": office.table([row])}
    return Instance(instruction=asked, applications=(TABLES,), files=files, succeeds=succeeds)


RIGHT = Hotkey(("right",))


@_task(
    "table-number",
    r"Write the number (\d+) into cell D1 of the open table and save it\.",
    lambda number: [RIGHT, RIGHT, RIGHT, Type(f"{number}\n"), *SAVE_OFFICE],
)
def _(rng: random.Random) -> Instance:
    row, number = [rng.randrange(10, 100) for _ in range(3)], rng.randrange(100, 1000)
    asked = f"Write the number {number} into cell D1 of the open table and save it."
    return _in_table(asked, row, 3, number)


@_task(
    "table-sum",
    r"Write the sum of A1 and B1 as a formula into cell D1 of the open table and save it\.",
    lambda: [RIGHT, RIGHT, RIGHT, Type("=A1+B1\n"), *SAVE_OFFICE],
)
def _(rng: random.Random) -> Instance:
    row = [rng.randrange(10, 100) for _ in range(3)]
    asked = "Write the sum of A1 and B1 as a formula into cell D1 of the open table and save it."
    return _in_table(asked, row, 3, row[0] + row[1])


def _lowered(lines: Sequence[str]) -> list[str]:
    """Ignore case, because LibreOffice capitalises the first letters of sentences by itself."""
    return [line.lower() for line in lines]


def _in_letter(asked: str, before: Sequence[str], after: Sequence[str]) -> Instance:
    return Instance(
        instruction=asked,
        applications=(TEXTS,),
        files={"letter.fodt": office.letter(before)},
        succeeds=lambda state: _lowered(office.lines(state.files.get("letter.fodt", b""))) == _lowered(after),
    )


@_task(
    "letter-append",
    r'Add the paragraph "(.*)" at the end of the open letter and save it\.',
    lambda text: [BOTTOM, Type(f"\n{text}"), *SAVE_OFFICE],
)
def _(rng: random.Random) -> Instance:
    before, text = _lines(rng, 3), _phrase(rng)
    asked = f'Add the paragraph "{text}" at the end of the open letter and save it.'
    return _in_letter(asked, before, [*before, text])


@_task(
    "letter-replace",
    r'Replace everything in the open letter by the paragraph "(.*)" and save it\.',
    lambda text: [ALL, Type(text), *SAVE_OFFICE],
)
def _(rng: random.Random) -> Instance:
    before, text = _lines(rng, 3), _phrase(rng)
    asked = f'Replace everything in the open letter by the paragraph "{text}" and save it.'
    return _in_letter(asked, before, [text])


# ---- infeasible tasks ----


@_task(
    "calculator-mail",
    r"Send the result of \d+ \* \d+ to \w+@example\.com with the calculator\.",
    list,
)
def _(rng: random.Random) -> Instance:
    a, b = rng.randrange(12, 100), rng.randrange(12, 100)
    asked = f"Send the result of {a} * {b} to {_word(rng)}@example.com with the calculator."
    return Instance(instruction=asked, applications=(CALCULATOR,), succeeds=lambda state: False)


INFEASIBLE = frozenset({f"{PREFIX}calculator-mail"})
"""Tasks on which only the declaration that they cannot be done is rewarded."""
