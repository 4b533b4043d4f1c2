"""Choice among numbered items with weights. Setting a weight and choosing an item each take O(log n).

The implementation is a binary tree of sums. A sum is always computed from its two parts, so the same weights
give the same choices, in whatever order they were set.
"""


class WeightedChoice:
    """Items from 0 to `count` - 1, each with a weight; at first all weights are 0."""

    def __init__(self, count: int) -> None:
        self._leaves = 1 << max(0, count - 1).bit_length()
        self._sums = [0.0] * (2 * self._leaves)
        """The tree: entry i is the sum of the entries 2 i and 2 i + 1. The last `_leaves` entries are the
        weights of the items."""

    def set(self, item: int, weight: float) -> None:
        """Set the weight of an item, at least 0."""
        node = self._leaves + item
        if self._sums[node] == weight:
            return
        self._sums[node] = weight
        while node > 1:
            node //= 2
            self._sums[node] = self._sums[2 * node] + self._sums[2 * node + 1]

    def at(self, fraction: float) -> int | None:
        """Return the item at a fraction, in [0, 1), of the total weight; None if the total weight is 0.

        The items share the interval [0, 1) in their order, each in proportion to its weight.
        """
        if self._sums[1] <= 0:
            return None
        left_over, node = fraction * self._sums[1], 1
        while node < self._leaves:
            left, right = self._sums[2 * node], self._sums[2 * node + 1]
            goes_right = right > 0 and left_over >= left
            left_over -= left if goes_right else 0.0
            node = 2 * node + goes_right
        return node - self._leaves
