"""Print new lines or events as they come, until Ctrl-C."""

import signal
from collections.abc import Callable, Sequence
from threading import Event
from typing import TypeVar

from dart.cli.output import Format

T = TypeVar("T")

FOLLOW_EVERY_S = 0.5


def follow_up(
    read_new: Callable[[], Sequence[T]], show: Callable[[Sequence[T]], None], every_s: float = FOLLOW_EVERY_S
) -> None:
    """Show what is new, again and again, until Ctrl-C, which is no failure.

    Ctrl-C is caught as a signal: a library might swallow an exception that is raised while it reads.
    """
    ended = Event()
    before = signal.signal(signal.SIGINT, lambda *_: ended.set())
    try:
        while not ended.wait(every_s):
            if new := read_new():
                show(new)
    finally:
        signal.signal(signal.SIGINT, before)


def line_by_line(output: Format) -> Format:
    """The format of an endless list: JSON becomes one value for each line."""
    return Format.JSONL if output is Format.JSON else output
