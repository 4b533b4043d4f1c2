"""Callbacks that the main process invokes as a run progresses."""

import logging
from collections.abc import Callable
from typing import Any

import structlog

from dart.inspect.result import TrainResult
from dart.inspect.snapshot import RunSnapshot
from dart.run.recovery import RunHistory


class RunListener:
    """A listener that gets snapshots and does nothing else; subclasses override the other callbacks."""

    takes_hangups = False
    """Whether a SIGHUP may do something else than drain (`drains_at_hangup`)."""

    serves_page = False
    """Whether the run has a web page, if its configuration enables it."""

    def __init__(self, show: Callable[[RunSnapshot], None] = lambda _: None, log: Any = None) -> None:
        self._show = show
        self.log = _silent_log() if log is None else log
        """The log for events of the main process."""

    def found(self, found: RunHistory) -> None:
        """Called once when a run is resumed, with what its earlier part left."""

    def show(self, snapshot: RunSnapshot) -> None:
        """Called about every second until the tree has ended."""
        self._show(snapshot)

    def stopping(self, number: int) -> None:
        """Called once when the first signal arrives and the run drains."""

    def ended(self) -> None:
        """Called once when the tree has ended, before the data are checked and the report is written."""

    def concluded(self, result: TrainResult) -> None:
        """Called once after the checks, to write and show the result; a first signal does not stop it."""

    def drains_at_hangup(self) -> bool:
        """Whether the SIGHUP that arrived drains the run, as SIGTERM does; if not, `hung_up` is called."""
        return True

    def hung_up(self) -> None:
        """Called after each SIGHUP that does not drain."""


def _silent_log() -> Any:
    """A logger that writes nothing: log lines would break a screen that is drawn in place."""
    return structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
