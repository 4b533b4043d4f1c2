"""The words on the pages of a data set: what each says, and where it stands.

A data set has them in `words.jsonl`, a line for each screenshot, beside the annotations of its elements:
``{"img_filename": "<sha256>.png", "words": [["Submit", [10, 20, 52, 32], [17.5, ...]], ...]}``. A word's
box is [left, top, right, bottom]; the ends of its characters follow.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dart.core.boxes import Box
from dart.core.screenspot import GroundingDataError

WORDS = "words.jsonl"

READ_WORDS = (Path(__file__).parent / "words.js").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Word:
    """A word on a screenshot."""

    text: str
    box: Box
    """In pixels of the screenshot."""
    ends: tuple[float, ...]
    """Where each of its characters ends, in pixels from the left of the screenshot."""

    def character_at(self, x: float) -> str:
        """Return the character at x; empty if x is not in the word."""
        if not self.box.left <= x < self.box.right:
            return ""
        return next((one for one, end in zip(self.text, self.ends, strict=True) if x < end), "")


def word_of(read: Mapping[str, Any]) -> Word:
    """Convert a word that `words.js` has returned."""
    return Word(read["text"], Box(*read["box"]), tuple(read["ends"]))


def write_words(folder: Path, words: Mapping[str, Sequence[Word]]) -> None:
    """Write the words of screenshots, by the screenshots' file names, into the folder of a data set."""
    lines = [
        json.dumps({"img_filename": name, "words": [(one.text, _sides(one.box), one.ends) for one in shown]})
        for name, shown in sorted(words.items())
    ]
    (folder / WORDS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_words(folder: Path) -> dict[str, list[Word]]:
    """Return the words of the screenshots of a data set, by the screenshots' file names.

    Raises GroundingDataError if the data set has none.
    """
    file = folder / WORDS
    if not file.exists():
        raise GroundingDataError(
            f"expected words of pages in {file}, found no such file; the data is older, or for a policy that "
            "does not read: collect it anew, with another --out and without --demonstrations"
        )
    entries = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {
        entry["img_filename"]: [Word(text, Box(*box), tuple(ends)) for text, box, ends in entry["words"]]
        for entry in entries
    }


def _sides(box: Box) -> tuple[float, float, float, float]:
    return box.left, box.top, box.right, box.bottom
