"""`dartrl top`: the actors and what they do, redrawn in place as `top` does for processes."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from dart.inspect.actor_table import by_urgency
from dart.inspect.formatting import percent
from dart.inspect.live import fitted_header, header, lines_of
from dart.inspect.snapshot import ActorRow, RunSnapshot
from dart.inspect.tables import ACTIVITY, ACTOR, AGE, MEMORY, RESTARTS, STATE, Column, table
from dart.inspect.terminal_safe import Printable
from dart.store.errors import StoreBusy

END_KEYS = (b"q", b"Q", b"\x04", b"")
"""Input that ends the view: q, Q, Ctrl-D, end of input. Ctrl-C arrives as a signal instead."""

OTHER_LINES = 3
"""Lines of the screen besides figures and actors: an empty one, the headings, and the number of those left
out."""

Wait = Callable[[float], bool]
"""Waits for a number of seconds and returns False; returns True at once when the user presses an end key."""


def cpu_shares(before: RunSnapshot | None, now: RunSnapshot) -> dict[int, float]:
    """Return how much of one processor each process used between two snapshots, by pid; 1 is all of it.

    Empty without an earlier snapshot. A process that the earlier snapshot lacks is left out.
    """
    passed_s = now.taken_unix_s - before.taken_unix_s if before is not None else 0.0
    if before is None or passed_s <= 0:
        return {}
    used_s = {actor.pid: actor.cpu_s for actor in before.actors if actor.pid}
    return {
        actor.pid: (actor.cpu_s - used_s[actor.pid]) / passed_s for actor in now.actors if actor.pid in used_s
    }


def screen(
    snapshot: RunSnapshot,
    shares: Mapping[int, float],
    *,
    rows_max: int,
    head: RenderableType | None = None,
) -> RenderableType:
    """Draw the run's figures, and below them its actors: unwell actors first, then by processor time.

    head   the figures, drawn to fit a screen; None: they take the lines that they need
    """

    def cpu(actor: ActorRow) -> str | None:
        return percent(shares[actor.pid]) if actor.pid in shares else None

    unwell = [actor for actor in by_urgency(snapshot.actors) if not actor.is_well]
    well = [actor for actor in snapshot.actors if actor.is_well]
    ordered = [*unwell, *sorted(well, key=lambda actor: -shares.get(actor.pid, 0.0))]
    columns = (ACTOR, STATE, RESTARTS, Column("cpu", cpu, is_number=True), MEMORY, AGE, ACTIVITY)
    left_out = len(ordered) - rows_max
    rest = [Text(f"and {left_out} more", style="dim")] if left_out > 0 else []
    return Group(head or header(snapshot), "", table(ordered[:rows_max], columns), *rest)


def watch(read: Callable[[], RunSnapshot], console: Console, wait: Wait, every_s: float) -> None:
    """Show the run every `every_s` seconds until a key ends it; the last picture stays on the screen.

    While the record does not answer, the picture of before stays, with the reason above it. Raises StoreBusy
    if it does not answer the first time.
    """
    before: RunSnapshot | None = None
    drawn: RenderableType | None = None
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as view:
        while True:
            try:
                snapshot = read()
            except StoreBusy as busy:
                if drawn is None:
                    raise
                shown: RenderableType = Group(Text(f"not the present state: {busy}", style="bold red"), drawn)
            else:
                head = fitted_header(snapshot, console)
                rows_max = max(3, console.height - lines_of(head, console) - OTHER_LINES)
                shown = drawn = screen(snapshot, cpu_shares(before, snapshot), rows_max=rows_max, head=head)
                before = snapshot
            view.update(Printable(shown), refresh=True)
            if wait(every_s):
                return


@contextmanager
def keys() -> Iterator[Wait]:
    """Yield a function that waits. On a terminal, that function returns early when an end key is pressed."""
    if not sys.stdin.isatty():
        yield Event().wait  # nothing ever sets it
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield _wait_for_key
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _wait_for_key(seconds: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and os.read(sys.stdin.fileno(), 1) in END_KEYS
