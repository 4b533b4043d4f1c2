"""How every command prints its result: a table for people, JSON for programs.

The form of JSON is stable: its keys are the names of the result's fields, which include their units. The form
of tables may change. A command writes only its result to standard output.
"""

import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from enum import StrEnum
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dart.inspect.tables import Column, table
from dart.inspect.terminal_safe import Printable, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dart.config.config import Config

T = TypeVar("T")

FOLLOW_EVERY_S = 0.5

WIDEST = 10_000
"""Width limit, in characters, of a table that is not fitted to a screen."""


class Format(StrEnum):
    """The formats in which a command can print its result."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"

    @property
    def is_data(self) -> bool:
        """Whether the format is meant for programs: JSON or JSONL."""
        return self in (Format.JSON, Format.JSONL)


Output = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        help="table: fitted to the width of the terminal; wide: every column, nothing shortened; "
        "json (or --json): the whole result as one value; jsonl: one object per line.",
    ),
]


def say(text: str, *, err: bool = False) -> None:
    """Print text for a person. Control characters become visible, so they have no effect on the terminal."""
    typer.echo(printable(text), err=err)


def say_left_out(config: "Config") -> None:
    """Say on standard error which tasks of a run give no result, and why."""
    from dart.preflight.left_out_tasks import left_out_lines

    for line in left_out_lines(config):
        say(line, err=True)


def print_list(
    records: Sequence[T], columns: Iterable[Column[T]], output: Format, *, empty: str = ""
) -> None:
    """Print records: as a table with one row each, or as JSON with one object each.

    empty   text that is printed if there are no records; "": print the header of the table
    """
    if output.is_data:
        print_data(records, output)
    elif records or not empty:
        print_fitted(table(records, columns, is_wide=output is Format.WIDE), output)
    else:
        say(empty)


def print_data(value: Any, output: Format) -> None:
    """Print a value as one line of JSON or, in the format JSONL, each element of a list as one line."""
    if output is Format.JSONL and isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            typer.echo(as_json(one))
    else:
        typer.echo(as_json(value))


def as_json(value: Any) -> str:
    """Return a value as one line of JSON. Dataclasses become objects; other unknown types become strings."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


def print_fitted(drawn: "RenderableType", output: Format = Format.TABLE) -> None:
    """Print a table, fitted to the width of the terminal.

    Without a terminal, and in the wide format, the table has its full width.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = Console()
    if output is Format.WIDE or not console.is_terminal:
        options = console.options.update(max_width=WIDEST)
        console.width = max(1, Measurement.get(console, options, drawn).maximum)
    console.print(Printable(drawn))


@contextmanager
def until_interrupted() -> Iterator[Event]:
    """Yield an event that Ctrl-C sets while the block lasts, instead of raising KeyboardInterrupt.

    A library in which KeyboardInterrupt is raised might swallow the exception.
    """
    ended = Event()
    before = signal.signal(signal.SIGINT, lambda *_: ended.set())
    try:
        yield ended
    finally:
        signal.signal(signal.SIGINT, before)


def follow_up(
    ended: Event,
    read_new: Callable[[], Sequence[T]],
    show: Callable[[Sequence[T]], None],
    every_s: float = FOLLOW_EVERY_S,
) -> None:
    """Every `every_s` seconds, read new items and show them, until `ended` is set (`until_interrupted`)."""
    while not ended.wait(every_s):
        if new := read_new():
            show(new)


def line_by_line(output: Format) -> Format:
    """Return the format for a list that is printed piece by piece: JSONL instead of JSON, else `output`."""
    return Format.JSONL if output is Format.JSON else output
