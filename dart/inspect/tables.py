"""Tables for the terminal, and the columns of actors that `top`, `status` and `actors list` share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dart.inspect.formatting import DASH, activity, age, size, state_text
from dart.inspect.terminal_safe import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from dart.inspect.snapshot import ActorRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of a table."""

    name: str
    value: Callable[[T], "RenderableType | int | float | None"]
    """Returns what the cell shows for one record: text, a number, or None for a dash."""
    is_number: bool = False
    is_wide: bool = False
    """Whether only the wide table has this column."""
    folds: bool = False
    """Whether a long text is wrapped onto further lines; otherwise it is cut."""
    width_max: int | None = None
    """Largest width of the column in characters; the wide table ignores it."""


def table(records: Iterable[T], columns: Iterable[Column[T]], *, is_wide: bool = False) -> "Table":
    """Draw a table for the terminal, with a row for each record.

    A table that is too wide cuts its longest texts. Numbers are cut only if that is not enough.
    """
    from rich.table import Table

    shown = [column for column in columns if is_wide or not column.is_wide]
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for column in shown:
        drawn.add_column(
            _cell(column.name, column),
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number,  # rich narrows the other columns first, the widest before all
            overflow="fold" if column.folds else "ellipsis",
            max_width=None if is_wide else column.width_max,
        )
    for record in records:
        drawn.add_row(*(_cell(column.value(record), column) for column in shown))
    return drawn


def _cell(value: Any, column: Column[Any]) -> "RenderableType":
    """Make a table cell of a value. Text is shown literally, even if it looks like markup of rich."""
    from rich.text import Text

    value = DASH if value is None else value
    cell = Text(printable(str(value))) if isinstance(value, str | int | float) else value
    if isinstance(cell, Text) and not column.folds:
        cell.no_wrap, cell.overflow = True, "ellipsis"
    return cell


# ---- columns of actors ----

STATE_STYLES = {
    "running": "green",
    "running, not ready": "yellow",
    "running, suspended": "bold red",
    "running, gone": "bold red",
    "starting": "cyan",
    "backoff": "yellow",
    "failed": "bold red",
    "quarantined": "bold magenta",
}


def styled_state(actor: "ActorRow") -> "Text":
    """Return the state of an actor as coloured text, red for a running actor that gives no sign of life."""
    from rich.text import Text

    text = state_text(actor)
    return Text(text, style="bold red" if actor.is_silent else STATE_STYLES.get(text, ""))


ACTOR: "Column[ActorRow]" = Column("actor", lambda row: row.name)
STATE: "Column[ActorRow]" = Column("state", styled_state)
RESTARTS: "Column[ActorRow]" = Column(
    "restarts", lambda row: f"{row.restarts_in_window}/{row.restarts}" if row.restarts else "", is_number=True
)
"""Restarts such as `2/7`: 2 in the window of the supervisor's restart budget, 7 in all. Empty for none."""
AGE: "Column[ActorRow]" = Column("age", lambda row: age(row.age_s), is_number=True)
MEMORY: "Column[ActorRow]" = Column(
    "memory", lambda row: size(row.rss_bytes) if row.rss_bytes else None, is_number=True
)
ACTIVITY: "Column[ActorRow]" = Column("doing", activity)
