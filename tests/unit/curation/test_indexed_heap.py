"""The index behaves like a sorted dict, and forgets what was taken out."""

from random import Random

import pytest

from dart.curation.indexed_heap import IndexedHeap


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_sorting(seed: int) -> None:
    chance, index, plain = Random(seed), IndexedHeap[int](), dict[int, tuple[int, int]]()
    for _ in range(500):
        key = chance.randrange(30)
        if chance.random() < 0.3:
            index.discard(key)
            plain.pop(key, None)
        else:
            plain[key] = (chance.randrange(10), key)
            index.put(key, plain[key])
        order = sorted(plain, key=lambda one: plain[one])
        assert index.first() == (order[0] if order else None)
        assert index.smallest(3) == order[:3]
        assert index.up_to((4, 100)) == [one for one in order if plain[one] <= (4, 100)]
        assert len(index) == len(plain)


def test_a_rank_that_came_back_counts_once() -> None:
    index = IndexedHeap[str]()
    for rank in (1, 2, 1):
        index.put("a", rank)
    index.put("b", 3)
    assert index.smallest(5) == ["a", "b"]


def test_what_has_no_rank_is_out() -> None:
    index = IndexedHeap[str]()
    index.set("a", 1)
    assert "a" in index
    index.set("a", None)
    assert list(index) == []


def test_its_size_is_that_of_what_is_in_it() -> None:
    index = IndexedHeap[int]()
    for number in range(10_000):
        index.put(number % 7, number)
    assert len(index._heap) < 100
