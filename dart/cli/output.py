"""How every command prints what it found: a table for people, JSON for programs.

JSON is stable: its keys are the fields of what the command read, with their units in their names. Tables may
change. Standard output holds the answer and nothing else.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from dart.inspect.terminal_safe import Printable, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

T = TypeVar("T")

WIDEST = 10_000
"""Columns of a table that is not fitted to a screen."""


class Format(StrEnum):
    """What a list is printed as."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"

    @property
    def is_data(self) -> bool:
        """For programs."""
        return self in (Format.JSON, Format.JSONL)


Output = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        help="table: fitted to the screen; wide: every column, nothing cut; "
        "json: everything as one value; jsonl: one object per line.",
    ),
]


def format_of(output: Format, *, as_json: bool) -> Format:
    """The format that two options ask for; `--json` wins."""
    return Format.JSON if as_json else output


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of a table."""

    name: str
    value: Callable[[T], "RenderableType | int | float | None"]
    """Text, a number, or None for a dash."""
    is_number: bool = False
    is_wide: bool = False
    """Only in the wide table."""
    folds: bool = False
    """A long text goes on below, instead of being cut."""
    width_max: int | None = None
    """Letters of it that the fitted table shows."""


def say(text: str, *, err: bool = False) -> None:
    """Print lines for a person: nothing in them steers the terminal."""
    typer.echo(printable(text), err=err)


def print_list(
    records: Sequence[T], columns: Iterable[Column[T]], output: Format, *, empty: str = ""
) -> None:
    """Print records, one to a row or to an object.

    empty   what a person is told instead of a table without rows
    """
    if output.is_data:
        print_data(records, output)
    elif records or not empty:
        print_fitted(table(records, columns, is_wide=output is Format.WIDE), output)
    else:
        say(empty)


def print_data(value: Any, output: Format) -> None:
    """One JSON value, or for JSONL a line for each of a list."""
    if output is Format.JSONL and isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            typer.echo(as_json(one))
    else:
        typer.echo(as_json(value))


def as_json(value: Any) -> str:
    """One line of JSON; a dataclass is an object of its fields, what JSON has no word for is text."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


def table(records: Iterable[T], columns: Iterable[Column[T]], *, is_wide: bool = False) -> "Table":
    """The records as rows."""
    from rich.table import Table

    shown = [column for column in columns if is_wide or not column.is_wide]
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for column in shown:
        drawn.add_column(
            column.name,
            justify="right" if column.is_number else "left",
            no_wrap=not column.folds,
            overflow="fold" if column.folds else "ellipsis",
            max_width=None if is_wide else column.width_max,
        )
    for record in records:
        drawn.add_row(*(_cell(column.value(record)) for column in shown))
    return drawn


def _cell(value: Any) -> "RenderableType":
    """Text is printed as it is: what actors and pages say may look like markup."""
    from rich.text import Text

    if value is None:
        return "–"
    return Text(printable(str(value))) if isinstance(value, str | int | float) else value


def print_fitted(drawn: "RenderableType", output: Format = Format.TABLE) -> None:
    """Print on the terminal's width; with no terminal, and when asked for all, as wide as it needs."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console()
    if output is Format.WIDE or not console.is_terminal:
        options = console.options.update(max_width=WIDEST)
        console.width = max(1, Measurement.get(console, options, drawn).maximum)
    console.print(Printable(drawn))
