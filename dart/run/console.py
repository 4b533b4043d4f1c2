"""The listener of `dartrl train`: a live view of the run, then its result."""

from contextlib import ExitStack
from typing import Self

from rich.console import Console

from dart.core.run_directory import RunPaths
from dart.inspect.live import open_view
from dart.inspect.result import TrainResult, publish
from dart.run.listener import RunListener


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
