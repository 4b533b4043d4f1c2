"""Whoever sits by a run in its main process: is shown how it stands and told what happens to all of it."""

import logging
from collections.abc import Callable
from typing import Any

import structlog

from dart.inspect.result import TrainResult
from dart.inspect.snapshot import RunSnapshot
from dart.run.recovery import RunHistory


class RunListener:
    """One that only looks."""

    takes_hangups = False
    """Whether SIGHUP can mean something else than to end (`drains_at_hangup`)."""

    serves_page = False
    """Whether the page of the run is served beside it, if its configuration says so."""

    def __init__(self, show: Callable[[RunSnapshot], None] = lambda _: None, log: Any = None) -> None:
        self._show = show
        self.log = _silent_log() if log is None else log
        """Where events of the main process are logged."""

    def found(self, found: RunHistory) -> None:
        """Once, when a run is taken up: what its earlier part left."""

    def show(self, snapshot: RunSnapshot) -> None:
        """About every second, until the tree has ended."""
        self._show(snapshot)

    def stopping(self, number: int) -> None:
        """Once, when a first signal has come and the run drains."""

    def ended(self) -> None:
        """Once, when the tree has ended; its data are checked and its report is written after that."""

    def concluded(self, result: TrainResult) -> None:
        """Once, when all is checked: the place to write and show what came of it. No first signal ends it."""

    def drains_at_hangup(self) -> bool:
        """Whether the SIGHUP that has come drains the run, as SIGTERM does; else `hung_up` is called."""
        return True

    def hung_up(self) -> None:
        """After each SIGHUP that does not drain."""


def _silent_log() -> Any:
    """A screen that is drawn in place has no room for lines."""
    return structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
