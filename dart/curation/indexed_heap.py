"""An index that knows its first keys: O(log n) to put, take out and read, memory for what is in it.

A heap whose outdated entries are skipped when they come up, and swept out when they are the majority.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K")

Rank = Any
"""Anything that can be compared; of equal ranks the one that was put first comes first."""

SWEEP_FROM = 64
"""Smaller heaps are left alone."""


class IndexedHeap(Generic[K]):
    """Keys, each with a rank; the least rank is first."""

    def __init__(self) -> None:
        self._ranked: dict[K, tuple[Rank, int]] = {}
        self._heap: list[tuple[Rank, int, K]] = []
        self._put = 0

    def __len__(self) -> int:
        return len(self._ranked)

    def __contains__(self, key: K) -> bool:
        return key in self._ranked

    def __iter__(self) -> Iterator[K]:
        return iter(self._ranked)

    def rank(self, key: K) -> Rank | None:
        """The rank of a key; None when it is not in."""
        known = self._ranked.get(key)
        return None if known is None else known[0]

    def put(self, key: K, rank: Rank) -> None:
        """Add a key, or give it another rank."""
        known = self._ranked.get(key)
        if known is not None and known[0] == rank:
            return
        self._put += 1
        self._ranked[key] = (rank, self._put)
        heappush(self._heap, (rank, self._put, key))
        self._sweep()

    def discard(self, key: K) -> None:
        """Take a key out if it is in."""
        if self._ranked.pop(key, None) is not None:
            self._sweep()

    def set(self, key: K, rank: Rank | None) -> None:
        """Put it with this rank, or take it out where there is none."""
        if rank is None:
            self.discard(key)
        else:
            self.put(key, rank)

    def first(self) -> K | None:
        """The key of least rank; None when there is none."""
        while self._heap:
            if self._is_current(self._heap[0]):
                return self._heap[0][2]
            heappop(self._heap)
        return None

    def smallest(self, count: int) -> list[K]:
        """The first keys in order, as many as there are."""
        return self._taken_while(lambda found, rank: found < count)

    def up_to(self, rank: Rank) -> list[K]:
        """The keys with at most this rank, in order."""
        return self._taken_while(lambda found, other: bool(other <= rank))

    def _taken_while(self, wanted: Any) -> list[K]:
        taken: list[tuple[Rank, int, K]] = []
        while self.first() is not None and wanted(len(taken), self._heap[0][0]):
            taken.append(heappop(self._heap))
        for entry in taken:
            heappush(self._heap, entry)
        return [key for _, _, key in taken]

    def _is_current(self, entry: tuple[Rank, int, K]) -> bool:
        rank, put, key = entry
        return self._ranked.get(key) == (rank, put)

    def _sweep(self) -> None:
        if len(self._heap) > SWEEP_FROM + 2 * len(self._ranked):
            self._heap = [(rank, put, key) for key, (rank, put) in self._ranked.items()]
            heapify(self._heap)
