"""Callbacks that the main process invokes as a run progresses, and those of `dartrl train`."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import structlog
from rich.console import Console

from dart.core.run_directory import RunPaths
from dart.inspect.live import open_view
from dart.inspect.result import TrainResult, publish
from dart.inspect.snapshot import RunSnapshot
from dart.run.run_record import RunHistory


class RunListener:
    """A listener that hands snapshots to `show` and does nothing else; subclasses override its callbacks."""

    takes_hangups = False
    """Whether a SIGHUP calls `hung_up`, which may do something other than drain."""

    serves_page = False
    """Whether the run has a web page, if its configuration enables it."""

    def __init__(self, show: Callable[[RunSnapshot], None] = lambda _: None, log: Any = None) -> None:
        self._show = show
        self.log = _SILENT_LOG if log is None else log
        """The log for events of the main process."""

    def found(self, found: RunHistory) -> None:
        """Called once when a run is resumed, with the state that its earlier part left."""

    def show(self, snapshot: RunSnapshot) -> None:
        """Called about every second until the tree has ended."""
        self._show(snapshot)

    def stopping(self, number: int) -> None:
        """Called once when the first signal arrives and the run drains."""

    def ended(self) -> None:
        """Called once when the tree has ended, before the data are checked and the report is written."""

    def concluded(self, result: TrainResult) -> None:
        """Called once after the checks, to write and show the result; a first signal does not stop it."""

    def hung_up(self) -> bool:
        """Called after each SIGHUP; returns whether it drains the run, as SIGTERM does."""
        return True


_SILENT_LOG = structlog.wrap_logger(
    None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
)
"""A logger that writes nothing: log lines would break a screen that is drawn in place."""


class ConsoleListener(RunListener):
    """Draws on standard error while the tree is up, and prints the result on standard output."""

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
