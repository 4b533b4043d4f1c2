"""Suggestions for an unknown word: the known words that are spelt like it."""

import difflib
from collections.abc import Collection, Sequence


def near(word: str, known: Collection[str]) -> list[str]:
    """Return up to two known words that are spelt like `word`; those with its first letter come first."""
    close = difflib.get_close_matches(word, known, n=8, cutoff=0.55)
    return sorted(close, key=lambda one: one[:1] != word[:1])[:2]


def did_you_mean(candidates: Sequence[str]) -> str:
    """Return a text such as `; did you mean x or y?` that names the candidates; empty without candidates."""
    return f"; did you mean {' or '.join(candidates)}?" if candidates else ""
