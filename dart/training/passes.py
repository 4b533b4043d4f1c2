"""The plan of an update: which samples are in which mini-batch, and which rank runs them in which pass. Pure.

Every rank makes the whole plan from the same batch, and then reads, decodes and scores its own part only.

Samples with a common prefix stay in one mini-batch, because the small policy computes a prefix once for all
samples of a pass that share it. Apart from that, mini-batches are random, drawn with the run's seed
(docs/decisions/0032-trainer-passes.md). Each rank gets consecutive samples of a mini-batch, that is, whole
trajectories where possible: successive steps show mostly the same screenshots, so few ranks have to process
each screenshot.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Pass(Generic[T]):
    """The items of one forward and backward pass of one rank."""

    items: Sequence[T]
    counts: bool
    """Whether the results of this pass count. A rank with fewer passes than others repeats a pass without
    counting its results, because each collective operation needs all ranks."""


def split_evenly(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Split items in order into at most `parts` non-empty runs whose lengths differ by at most one."""
    parts = min(parts, len(items))
    edges = [round(index * len(items) / parts) for index in range(parts + 1)]
    return [items[low:high] for low, high in pairwise(edges)]


def minibatches(keys: Sequence[Hashable | None], parts: int, chance: Random) -> list[list[int]]:
    """Split sample numbers at random into at most `parts` mini-batches whose sizes differ by at most one.

    keys   for each sample, a key of the prefix that it shares with others; None: it shares nothing. Samples
           with equal keys are in one mini-batch, except for at most one key at each of the edges between two
           mini-batches

    Every order of the keys is equally likely, and every order of the samples with one key. The numbers in a
    mini-batch are in the order of the samples.
    """
    sharing: dict[Hashable, list[int]] = {}
    for number in chance.sample(range(len(keys)), len(keys)):
        key = keys[number]
        sharing.setdefault(("alone", number) if key is None else ("key", key), []).append(number)
    units = list(sharing.values())
    chance.shuffle(units)
    return [sorted(part) for part in split_evenly(list(chain.from_iterable(units)), parts)]


def shares(costs: Sequence[int], count: int) -> list[range]:
    """Split item numbers in order into `count` runs of about equal cost; some are empty if items are few."""
    sums = list(accumulate(costs, initial=0))
    middles = [(low + high) / 2 for low, high in pairwise(sums)]
    edges = [bisect_right(middles, sums[-1] * index / count) for index in range(count)]
    return [range(low, high) for low, high in pairwise([*edges, len(costs)])]


def passes_of_rank(passes: Sequence[Sequence[Sequence[T]]], index: int) -> list[Pass[T]]:
    """Return the passes of the rank `index`. Every rank gets the same number of passes.

    passes   for each rank, its passes with their items; at least one rank has a pass
    """
    own = passes[index]
    repeated = (own or next(filter(None, passes)))[-1]
    missing = max(map(len, passes)) - len(own)
    return [Pass(items, True) for items in own] + [Pass(repeated, False)] * missing


def micro_batches(
    items: Sequence[T], size: int, budget: int, tokens: Callable[[T], int]
) -> Iterator[Sequence[T]]:
    """Split items in order into micro-batches.

    size     most items of a micro-batch
    budget   most tokens of a micro-batch, padding to its longest item included; 0: no limit. A longer item
             gets a micro-batch of its own
    tokens   function that returns the number of tokens of an item
    """
    start = longest = 0
    for index, item in enumerate(items):
        longest = max(longest, tokens(item)) if budget else 0
        count = index - start
        if count and (count == size or (count + 1) * longest > budget > 0):
            yield items[start:index]
            start, longest = index, tokens(item) if budget else 0
    if items:
        yield items[start:]
