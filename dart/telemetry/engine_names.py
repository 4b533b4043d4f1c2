"""The names of a run's engines. Their number can change during the run (`dartrl scale rollouts=N`)."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import overload

from actors.board import Board
from dart.telemetry.board_gauges import Gauge

OWNER = "weight_sync"
"""The actor whose gauge shows the number of engines. It reads this number from the record."""


@lru_cache(maxsize=64)
def engine_names(count: int) -> tuple[str, ...]:
    """Return the names of `count` rollout actors, `rollout-0` and so on."""
    return tuple(f"rollout-{index}" for index in range(count))


class EngineNames(Sequence[str]):
    """The names of the engines that the run has now, as a sequence that reads the board at each use.

    at_start   names to use until weight_sync shows a number of engines on the board
    """

    def __init__(self, board: Board, at_start: Sequence[str]) -> None:
        self._board = board
        self._at_start = tuple(at_start)

    def _now(self) -> tuple[str, ...]:
        slot = self._board.find(OWNER)
        count = 0 if slot is None else self._board.gauge(slot, Gauge.ENGINES)
        return engine_names(count) if count else self._at_start

    def __len__(self) -> int:
        return len(self._now())

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._now()[index]
