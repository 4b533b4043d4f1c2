"""Mini-batches, the shares of ranks, and passes."""

from collections import Counter
from random import Random

import pytest

from dart.training.passes import micro_batches, minibatches, passes_of_rank, shares, split_evenly


def test_micro_batches_keep_order_and_lose_nothing() -> None:
    assert [list(chunk) for chunk in micro_batches(range(7), 3, 0, lambda _: 1)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]
    assert list(micro_batches([], 3, 0, lambda _: 1)) == []


def test_micro_batches_stay_within_their_tokens_when_they_are_padded() -> None:
    lengths = [2, 3, 5, 5, 9, 40, 1, 1]
    found = [list(chunk) for chunk in micro_batches(lengths, 4, 12, lambda length: length)]
    assert found == [[2, 3], [5, 5], [9], [40], [1, 1]]
    assert [length for chunk in found for length in chunk] == lengths


@pytest.mark.parametrize(("items", "parts", "sizes"), [(10, 3, [3, 4, 3]), (2, 4, [1, 1]), (5, 1, [5])])
def test_minibatches_are_as_even_as_can_be(items: int, parts: int, sizes: list[int]) -> None:
    got = split_evenly(range(items), parts)
    assert [len(part) for part in got] == sizes
    assert [item for part in got for item in part] == list(range(items))


def keys_of(*sizes: int) -> list[str]:
    return [f"prefix {unit}" for unit, size in enumerate(sizes) for _ in range(size)]


@pytest.mark.parametrize("seed", range(20))
def test_a_prefix_is_cut_only_at_the_edges_of_minibatches_and_these_stay_even(seed: int) -> None:
    keys = keys_of(8, 8, 8, 8, *(1,) * 31, 3, 2)
    parts = minibatches(keys, 4, Random(seed))
    assert sorted(number for part in parts for number in part) == list(range(len(keys)))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    homes = Counter(key for part in parts for key in {keys[number] for number in part})
    assert sum(count - 1 for count in homes.values()) <= len(parts) - 1


def test_minibatches_follow_the_seed_and_every_sample_is_as_likely_in_each() -> None:
    keys = [*keys_of(8, 1, 1, 1, 1), None, None, None, None]
    assert minibatches(keys, 2, Random(3)) == minibatches(keys, 2, Random(3))
    drawn = [minibatches(keys, 2, Random(seed))[0] for seed in range(2000)]
    times = Counter(number for part in drawn for number in part)
    assert all(times[number] / len(drawn) == pytest.approx(0.5, abs=0.05) for number in range(len(keys)))


def test_samples_that_share_nothing_are_shuffled_one_by_one() -> None:
    drawn = {tuple(minibatches([None] * 4, 2, Random(seed))[0]) for seed in range(200)}
    assert drawn == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}


def test_one_minibatch_is_the_batch_in_its_order() -> None:
    assert minibatches(keys_of(2, 3), 1, Random(0)) == [[0, 1, 2, 3, 4]]
    assert minibatches([None, None], 5, Random(0)) in ([[0], [1]], [[1], [0]])


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([1, 1, 1, 1], [[0, 1], [2, 3]]),
        ([5, 1, 1, 1, 1, 1], [[0], [1, 2, 3, 4, 5]]),
        ([1, 1, 1, 9], [[0, 1, 2], [3]]),
        ([7], [[0], []]),
    ],
)
def test_ranks_get_neighbours_of_about_equal_cost(costs: list[int], expected: list[list[int]]) -> None:
    assert [list(share) for share in shares(costs, 2)] == expected


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_no_share_is_larger_than_its_part_by_more_than_one_item(count: int) -> None:
    draw = Random(count)
    costs = [draw.randint(1, 50) for _ in range(60)]
    found = shares(costs, count)
    assert [number for share in found for number in share] == list(range(60))
    assert all(sum(costs[n] for n in share) <= sum(costs) / count + max(costs) for share in found)


def test_every_rank_makes_as_many_passes_and_each_item_counts_once() -> None:
    passes = [[["a", "b"], ["c"]], [["d"]], []]
    planned = [passes_of_rank(passes, index) for index in range(3)]
    assert [[(one.items, one.counts) for one in rank] for rank in planned] == [
        [(["a", "b"], True), (["c"], True)],
        [(["d"], True), (["d"], False)],
        [(["c"], False), (["c"], False)],
    ]
