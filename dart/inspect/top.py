"""`dartrl top`: who does what now, redrawn in place, as `top` shows processes."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dart.inspect import live
from dart.inspect.snapshot import ActorRow, RunSnapshot
from dart.inspect.terminal_safe import Printable

MIB = 2**20

END_KEYS = (b"q", b"Q", b"\x04", b"")
"""Ctrl-D and the end of the input, too; Ctrl-C arrives as a signal."""

Wait = Callable[[float], bool]
"""Waits for so many seconds or until a person wants to end; whether that is so."""


class CpuShares:
    """How much of a processor each process used between two looks."""

    def __init__(self) -> None:
        self._before: dict[int, float] = {}
        self._taken_unix_s = 0.0

    def between(self, snapshot: RunSnapshot) -> Mapping[int, float]:
        """By pid, 1 for one whole processor; empty at the first look."""
        passed_s = snapshot.taken_unix_s - self._taken_unix_s
        shares = {
            actor.pid: (actor.cpu_s - self._before[actor.pid]) / passed_s
            for actor in snapshot.actors
            if actor.pid in self._before and passed_s > 0
        }
        self._before = {actor.pid: actor.cpu_s for actor in snapshot.actors if actor.pid}
        self._taken_unix_s = snapshot.taken_unix_s
        return shares


def screen(snapshot: RunSnapshot, shares: Mapping[int, float], *, rows_max: int) -> RenderableType:
    """The run's figures, and below them its actors: the unwell first, then who works hardest."""
    ordered = sorted(snapshot.actors, key=lambda actor: (actor.is_well, -shares.get(actor.pid, 0.0)))
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name in ("actor", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("restarts", "cpu", "memory", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("doing", no_wrap=True, overflow="ellipsis", ratio=1)
    for actor in ordered[:rows_max]:
        table.add_row(actor.name, live.state_text(actor), *_figures(actor, shares), live.doing(actor))
    left_out = len(ordered) - rows_max
    rest = [Text(f"and {left_out} more", style="dim")] if left_out > 0 else []
    return Group(live.head(snapshot), "", table, *rest)


def _figures(actor: ActorRow, shares: Mapping[int, float]) -> list[str]:
    share = shares.get(actor.pid)
    return [
        live.restarts(actor),
        "–" if share is None else f"{100 * share:.0f} %",
        f"{actor.rss_bytes / MIB:.0f} MiB" if actor.rss_bytes else "–",
        live.age(actor.age_s),
    ]


def watch(read: Callable[[], RunSnapshot], console: Console, wait: Wait, every_s: float) -> None:
    """Show the run again and again until a person ends it; what was shown last stays on the screen."""
    shares = CpuShares()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as view:
        while True:
            snapshot = read()
            rows_max = max(3, console.height - HEAD_LINES)
            drawn = screen(snapshot, shares.between(snapshot), rows_max=rows_max)
            view.update(Printable(drawn), refresh=True)
            if wait(every_s):
                return


HEAD_LINES = 12
"""Lines of the screen that are no actors."""


@contextmanager
def keys() -> Iterator[Wait]:
    """Read single keys while the block lasts, where the input is a terminal; just wait where it is not."""
    if not sys.stdin.isatty():
        yield _wait_without_keys
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


def _wait_without_keys(seconds: float) -> bool:
    time.sleep(seconds)
    return False
