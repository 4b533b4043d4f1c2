"""The words of a data set's pages: written, read, and asked for the character at a place."""

from pathlib import Path

import pytest

from dart.core.boxes import Box
from dart.core.screenspot import GroundingDataError
from dart.grounding.words import Word, read_words, word_of, write_words

WORD = Word("Tab", Box(10, 20, 31.5, 30), (17.5, 24, 31.5))


def test_words_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_words(tmp_path, {"b.png": [WORD, WORD], "a.png": []})

    assert read_words(tmp_path) == {"a.png": [], "b.png": [WORD, WORD]}


def test_a_data_set_without_words_says_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(GroundingDataError, match=r"words\.jsonl.*collect it anew, with another --out"):
        read_words(tmp_path)


def test_a_word_of_a_page_has_its_box_and_the_ends_of_its_characters() -> None:
    assert word_of({"text": "Tab", "box": [10, 20, 31.5, 30], "ends": [17.5, 24, 31.5]}) == WORD


@pytest.mark.parametrize(
    ("x", "character"), [(9.9, ""), (10, "T"), (17.4, "T"), (17.5, "a"), (24, "b"), (31.4, "b"), (31.5, "")]
)
def test_a_word_says_which_character_is_at_a_place(x: float, character: str) -> None:
    assert WORD.character_at(x) == character
