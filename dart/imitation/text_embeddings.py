"""Embeddings of short texts by their letters, in which texts that were never seen have their place.

The pyramidal histogram of characters (PHOC) of a word says which characters are in each half, third, ... of
it. Words with the same letters have near histograms. An image of a word and its text can both be taught this
histogram, so they meet in one space (Almazán et al. 2014, "Word Spotting and Recognition with Embedded
Attributes", sections 3 and 4). Here a text of several words counts as one, with gaps.
"""

import string
from collections.abc import Sequence
from functools import cache

import numpy as np

Vector = np.ndarray[tuple[int], np.dtype[np.float32]]

FOLDED = string.ascii_lowercase + string.digits + "#"
"""Characters of a histogram, in which capital letters count as small ones."""

PARTS = (1, 2, 3, 4, 5)
"""Into how many equal parts the levels of a histogram divide a text."""

LEAST_DEVIATION = 0.05
"""Entries of histograms that vary less are scaled as if they varied so much."""

HISTOGRAM_SIZE = len(FOLDED) * sum(PARTS)


@cache
def histogram(text: str) -> Vector:
    """Return the pyramidal histogram of characters of a text: zeros and ones, float32 [HISTOGRAM_SIZE].

    A character belongs to each part that holds at least half of it.
    """
    found, first, width = np.zeros(HISTOGRAM_SIZE, np.float32), 0, 1 / max(1, len(text))
    for parts in PARTS:
        for place, character in enumerate(text.lower()):
            for part in range(parts if character in FOLDED else 0):
                begin, end = max(place * width, part / parts), min((place + 1) * width, (part + 1) / parts)
                if end - begin >= 0.5 * width:
                    found[first + part * len(FOLDED) + FOLDED.index(character)] = 1
        first += parts * len(FOLDED)
    return found


class TextEmbeddings:
    """The principal components of the histograms of some texts, scaled to equal variance.

    Each entry of the histograms is scaled to equal variance before, too. Otherwise rare characters, such as
    the digits that tell tabs apart, would be left out.

    texts   more texts than the embeddings have dimensions
    """

    def __init__(self, texts: Sequence[str], size: int) -> None:
        found = np.stack([histogram(text) for text in texts])
        self._mean = found.mean(0)
        scale = np.maximum(found.std(0), LEAST_DEVIATION)
        _, spread, components = np.linalg.svd((found - self._mean) / scale, full_matrices=False)
        self._projection = (components[:size] / spread[:size, None]).T / scale[:, None]
        self._known: dict[str, Vector] = {}

    def of(self, text: str) -> Vector:
        """Return the embedding of a text, float32 [size], of length 1.

        It is zero if the histogram has no character of the text.
        """
        if text not in self._known:
            found = histogram(text)
            place = (found - self._mean) @ self._projection * found.any()
            self._known[text] = (place / max(float(np.linalg.norm(place)), 1e-9)).astype(np.float32)
        return self._known[text]
