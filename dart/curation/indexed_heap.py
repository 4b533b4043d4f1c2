"""A priority queue in which the rank of a key can be changed and a key can be removed, each in O(log n).

The implementation is a heap. A change leaves the old entry in the heap. Such outdated entries are skipped
when they reach the top, and all of them are removed when they are the majority.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, nsmallest
from typing import Any, Generic, TypeVar

K = TypeVar("K")

Rank = Any
"""Type of a rank: anything that can be compared with `<`. Keys of equal rank are ordered by the keys
themselves."""

SWEEP_FROM = 64
"""Outdated entries are removed only if there are more of them than this."""


class IndexedHeap(Generic[K]):
    """A priority queue of keys, each with a rank; the key of least rank is first."""

    def __init__(self) -> None:
        self._ranks: dict[K, Rank] = {}
        self._heap: list[tuple[Rank, K]] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, key: K) -> bool:
        return key in self._ranks

    def __iter__(self) -> Iterator[K]:
        return iter(self._ranks)

    def rank(self, key: K) -> Rank | None:
        """The rank of a key; None if the key is not in the queue."""
        return self._ranks.get(key)

    def put(self, key: K, rank: Rank) -> None:
        """Add a key with this rank, or change the rank of a key."""
        if self._ranks.get(key) != rank:
            self._ranks[key] = rank
            heappush(self._heap, (rank, key))
            self._sweep()

    def discard(self, key: K) -> None:
        """Remove a key if it is in the queue."""
        if self._ranks.pop(key, None) is not None:
            self._sweep()

    def set(self, key: K, rank: Rank | None) -> None:
        """Give a key this rank; None removes the key."""
        if rank is None:
            self.discard(key)
        else:
            self.put(key, rank)

    def first(self) -> K | None:
        """Return the key of least rank; None if the queue is empty."""
        while self._heap:
            rank, key = self._heap[0]
            if self._ranks.get(key) == rank:
                return key
            heappop(self._heap)
        return None

    def smallest(self, count: int) -> list[K]:
        """Return the `count` keys of least rank in order, or all if there are fewer. Takes O(n log count)."""
        return [key for _, key in nsmallest(count, self._entries())]

    def up_to(self, rank: Rank) -> list[K]:
        """Return the keys with at most this rank, in order. Takes O(log n) if there are none, else
        O(n log n)."""
        if self.first() is None or self._heap[0][0] > rank:
            return []
        return [key for _, key in sorted(entry for entry in self._entries() if entry[0] <= rank)]

    def _entries(self) -> list[tuple[Rank, K]]:
        return [(rank, key) for key, rank in self._ranks.items()]

    def _sweep(self) -> None:
        if len(self._heap) > SWEEP_FROM + 2 * len(self._ranks):
            self._heap = self._entries()
            heapify(self._heap)
