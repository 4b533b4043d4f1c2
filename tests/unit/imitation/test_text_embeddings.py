"""Embeddings of short texts by their letters."""

import random

import numpy as np
import pytest

from dart.imitation.text_embeddings import FOLDED, TextEmbeddings, histogram

LETTERS = "abcdehilmnorstu"
WORDS = ["".join(random.Random(seed).choices(LETTERS, k=3 + seed % 5)) for seed in range(400)]


def test_a_histogram_says_which_characters_each_part_of_a_word_has() -> None:
    at = FOLDED.index
    whole, first, second = (slice(start, start + len(FOLDED)) for start in np.arange(3) * len(FOLDED))
    of_tabs = histogram("Tabs")

    assert set(of_tabs[whole].nonzero()[0]) == {at("t"), at("a"), at("b"), at("s")}
    assert set(of_tabs[first].nonzero()[0]) == {at("t"), at("a")}
    assert set(of_tabs[second].nonzero()[0]) == {at("b"), at("s")}
    assert (histogram("TABS") == of_tabs).all()
    assert not histogram("確定").any()


def test_words_with_common_letters_have_nearer_histograms_than_others() -> None:
    def common(one: str, other: str) -> float:
        return float((histogram(one) * histogram(other)).sum())

    assert common("cancel", "cancer") > common("cancel", "lancec") > common("cancel", "submit") == 0


def test_an_embedding_of_a_word_that_was_not_among_them_is_nearest_to_words_with_its_letters() -> None:
    embeddings = TextEmbeddings(WORDS, 16)
    for word in ("maleid", "tonest", "hurde"):
        assert word not in WORDS
        one_letter_less, none_in_common = word[:-1], "".join(sorted(set(LETTERS) - set(word)))[:6]
        near = embeddings.of(word) @ embeddings.of(one_letter_less)
        assert near > embeddings.of(word) @ embeddings.of(none_in_common) + 0.4


def test_texts_of_several_words_differ_by_one_character_and_by_the_order_of_their_words() -> None:
    embeddings = TextEmbeddings([*WORDS, *(f"tab {number}" for number in range(10))], 24)
    one = embeddings.of("tab 1")

    assert np.linalg.norm(one) == pytest.approx(1)
    assert 1 > one @ embeddings.of("tab 2") > one @ embeddings.of("sure")
    assert embeddings.of("hello there") @ embeddings.of("there hello") < 1


def test_a_text_without_a_known_character_has_no_embedding() -> None:
    embeddings = TextEmbeddings(WORDS, 16)

    assert not embeddings.of("確定").any()
    assert not embeddings.of("").any()
