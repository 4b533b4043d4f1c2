"""Following what is added: printed as it comes, until Ctrl-C."""

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
    """Show what is new, again and again; Ctrl-C is how a person ends it, and no failure.

    It is waited for as a signal: as an exception in the middle of a look, a library might keep it to itself.
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
    """What is endless cannot be one JSON value: it is one for each line."""
    return Format.JSONL if output is Format.JSON else output
