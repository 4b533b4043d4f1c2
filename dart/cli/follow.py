"""Following what is added: printed as it comes, until Ctrl-C."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from dart.cli.output import Format

T = TypeVar("T")

FOLLOW_EVERY_S = 0.5


def follow_up(read_new: Callable[[], Sequence[T]], show: Callable[[Sequence[T]], None]) -> None:
    """Show what is new, again and again; Ctrl-C is how a person ends it, and no failure."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if new := read_new():
                show(new)
            time.sleep(FOLLOW_EVERY_S)


def line_by_line(output: Format) -> Format:
    """What is endless cannot be one JSON value: it is one for each line."""
    return Format.JSONL if output is Format.JSON else output
