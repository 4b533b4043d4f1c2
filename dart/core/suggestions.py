"""Suggestions for a word that is not known: the words that look like it."""

import difflib
from collections.abc import Collection, Sequence


def near(word: str, known: Collection[str]) -> list[str]:
    """Return up to two similar known words; those with the same first letter come first."""
    close = difflib.get_close_matches(word, known, n=8, cutoff=0.55)
    return sorted(close, key=lambda one: one[:1] != word[:1])[:2]


def did_you_mean(candidates: Sequence[str]) -> str:
    """Return `; did you mean x or y?` for candidates, and an empty text without any."""
    return f"; did you mean {' or '.join(candidates)}?" if candidates else ""
