"""Whoever sits by a run in its main process: is shown how it stands and told what happens to all of it."""

from collections.abc import Callable

from dart.control.found import Found
from dart.observe.snapshot import RunSnapshot


class Attendant:
    """One that only looks."""

    takes_hangups = False
    """Whether SIGHUP means to read the configuration anew; else it ends the process, as ever."""

    def __init__(self, show: Callable[[RunSnapshot], None] = lambda _: None) -> None:
        self._show = show

    def found(self, found: Found) -> None:
        """Once, when a run is taken up: what its earlier part left."""

    def show(self, snapshot: RunSnapshot) -> None:
        """About every second, until the tree has ended."""
        self._show(snapshot)

    def stopping(self, number: int) -> None:
        """Once, when a first signal has come and the run drains."""

    def ended(self) -> None:
        """Once, when the tree has ended; its data are checked and its report is written after that."""

    def hung_up(self) -> None:
        """After each SIGHUP."""
