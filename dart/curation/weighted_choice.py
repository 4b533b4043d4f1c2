"""Numbered items with weights, and the item at a fraction of all weight, each in O(log n). Pure.

The implementation is a binary tree of sums. A sum is always computed from its two parts, so equal weights
give equal choices, in whatever order they were set.
"""


class WeightedChoice:
    """Items from 0 to `count` - 1, each with a weight; at first all weights are 0."""

    def __init__(self, count: int) -> None:
        self._leaves = 1 << max(0, count - 1).bit_length()
        self._sums = [0.0] * (2 * self._leaves)
        """The sum of node i is that of nodes 2 i and 2 i + 1; the leaves are the items."""

    def set(self, item: int, weight: float) -> None:
        """Give an item this weight, at least 0."""
        node = self._leaves + item
        if self._sums[node] == weight:
            return
        self._sums[node] = weight
        while node > 1:
            node //= 2
            self._sums[node] = self._sums[2 * node] + self._sums[2 * node + 1]

    def at(self, fraction: float) -> int | None:
        """The item at `fraction` of all weight, in [0, 1), in the order of items; None without any weight."""
        if self._sums[1] <= 0:
            return None
        left_over, node = fraction * self._sums[1], 1
        while node < self._leaves:
            left, right = self._sums[2 * node], self._sums[2 * node + 1]
            goes_right = right > 0 and left_over >= left
            left_over -= left if goes_right else 0.0
            node = 2 * node + goes_right
        return node - self._leaves
