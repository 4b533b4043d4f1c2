"""Listeners: callbacks that the main process of a run invokes as the run progresses."""

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

import structlog
from rich.console import Console

from dart.core.run_directory import RunPaths
from dart.inspect.formatting import counted
from dart.inspect.live import open_view
from dart.inspect.result import TrainResult, publish
from dart.inspect.snapshot import RunSnapshot
from dart.inspect.terminal_safe import printable
from dart.run.run_record import RunHistory


class RunListener:
    """A listener that only passes snapshots to the function `show`. Subclasses override its callbacks."""

    takes_hangups = False
    """Whether `hung_up` is called for a SIGHUP even if the process was started with SIGHUP ignored
    (`nohup`)."""

    serves_page = False
    """Whether the run serves a page if its configuration has `web.enabled`."""

    def __init__(self, show: Callable[[RunSnapshot], None] = lambda _: None, log: Any = None) -> None:
        self._show = show
        self.log = _SILENT_LOG if log is None else log
        """The structlog logger for events of the main process."""

    def found(self, found: RunHistory) -> None:
        """Called once if the run is resumed, with the state in which its last start left it."""

    def show(self, snapshot: RunSnapshot) -> None:
        """Called about every second with a snapshot, until the supervision tree has ended."""
        self._show(snapshot)

    def record_away(self, reason: str) -> None:
        """Called about every second in place of `show` while the record cannot be read."""

    def turn(self) -> None:
        """Called about every second until the supervision tree has ended, also while the record cannot be
        read and `show` is not called."""

    def stopping(self, number: int, deadline_s: float) -> None:
        """Called once when the first signal, with this number, has arrived and the run drains.

        deadline_s   seconds after which whatever has not ended is killed
        """

    def giving_back(self, found: Sequence[str], deadline_s: float) -> None:
        """Called before machines that environments have left are given back: those of an earlier start before
        the actors start, those of this one after the supervision tree has ended.

        found        the machines, one line for each place where they run
        deadline_s   longest time that this takes
        """
        for one in found:
            _print(f"giving back {one}; this takes at most {deadline_s:g} s")

    def gave_back(self, count: int, left: Sequence[str]) -> None:
        """Called after `giving_back`.

        count   number of machines that were given back
        left    machines that may still run, each with the reason and what to do
        """
        _print(f"gave back {counted(count, 'machine')}")
        for one in left:
            _print(f"may still run: {one}")

    def ended(self) -> None:
        """Called once when the supervision tree has ended, before the data are checked."""

    def concluded(self, result: TrainResult) -> None:
        """Called once after the data check, to write and show the result. A first signal does not stop it."""

    def hung_up(self) -> bool:
        """Called after a SIGHUP. Returns True if the run is to drain, as after SIGTERM."""
        return True


def _print(line: str) -> None:
    """Print a line on standard error; if that is closed, the work that the line is about still goes on."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr)


_SILENT_LOG = structlog.wrap_logger(
    None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
)
"""A logger that writes nothing: log lines would break a screen that is drawn in place."""


class ConsoleListener(RunListener):
    """The listener of `dartrl train`: draws a live view on standard error, prints the result on stdout."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._drawn = ExitStack()
        super().__init__(self._drawn.enter_context(open_view(Console(stderr=True))))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drawn.close()

    def ended(self) -> None:
        self._drawn.close()

    def concluded(self, result: TrainResult) -> None:
        publish(result, Console(), self._paths)
