"""Reading as a second task of pretraining: what the words of a page say, asked of the policy's own features.

Words are asked for at cells of the stem's map of 1/8:

- at each cell of a word its characters at four places of the cell, of the stem's features. They are what a
  small stem learns first; without them it learns no words in this time;
- near the middle of an element its text, and near the middle of any other word that word: its histogram of
  characters, of the features of words (`dart.policy.modeling.ReadingLayers`), and its embedding
  (`dart.imitation.text_embeddings`), of the first channels of the pointer's keys. Where an instruction names
  an element by its text, the first channels of the pointer's query are taught the same embedding
  (`dart.imitation.samples`), so that the pointer finds texts that it has never pointed at.

The heads are thrown away after training. docs/decisions/0042-letters-before-words.md has the figures.
"""

import random
import string
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dart.core.boxes import Box
from dart.core.screenspot import IMAGES, GroundingSample
from dart.grounding.words import Word
from dart.imitation.pointing import quoted
from dart.imitation.text_embeddings import HISTOGRAM_SIZE, TextEmbeddings, histogram
from dart.policy.codec import load_pixels
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyModel, Pointer
from dart.policy.protocols import Pixels

CELL_PX = 8
"""Width and height of a cell of the stem's map of 1/8."""

PLACES_PX = (0, 3, 5, 8)
"""Where characters are asked for, from the left of a cell."""

CHARACTERS = string.ascii_lowercase + string.digits + "#" + string.ascii_uppercase
"""Characters that are told apart at a place; 0 stands for all others, and for none."""

MOST_SHIFT_PX = 10
"""Largest shift of a page, so that letters are not learned at the places where pages have them."""

CHARACTER_WEIGHT, HISTOGRAM_WEIGHT = 0.5, 0.01
"""Weights of the losses about characters and histograms relative to the answer loss. The one about embeddings
has the weight 1."""

NEAR_PX = 12
"""Largest distance of a cell's middle from that of a text for the cell to be asked for the text. An element
is clicked at its middle, and the ends of a long text are out of sight from one another."""

TEXTS_FOR_EMBEDDINGS = 20_000
"""Number of texts of which the embeddings are made."""


class ReadingHeads(nn.Module):
    """What is asked of features during training, and thrown away after it."""

    def __init__(self, config: GuiPolicyConfig) -> None:
        super().__init__()
        self.characters = nn.Linear(config.stem_channels[2], len(PLACES_PX) * (1 + len(CHARACTERS)))
        self.histograms = nn.Linear(config.reading_channels[1], HISTOGRAM_SIZE)


@dataclass(frozen=True, slots=True)
class ReadingPage:
    """What a page says, and where."""

    image: Path
    words: Sequence[Word]
    named: Sequence[tuple[str, Box]]
    """Elements that their text tells from all others of the page, and their texts."""

    @property
    def texts(self) -> Iterator[tuple[str, Box]]:
        """Each text that is asked for as a whole: those of the named elements, and the words elsewhere."""
        yield from self.named
        for word in self.words:
            if not any(box.contains(*word.box.centre) for _, box in self.named):
                yield word.text, word.box


Cell = tuple[int, int, int]
"""Page, row and column."""


class Questions:
    """What is asked of a model's features about some pages, each shifted at random."""

    def __init__(self, pages: Sequence[ReadingPage], draw: random.Random) -> None:
        self.pixels: list[Pixels] = []
        self.characters: list[tuple[Cell, list[int]]] = []
        """The number of the character at each of PLACES_PX of a cell."""
        self.texts: list[tuple[Cell, str]] = []
        """The text whose middle is near the middle of a cell."""
        for page in pages:
            right, down = (draw.randint(-MOST_SHIFT_PX, MOST_SHIFT_PX) for _ in range(2))
            self.pixels.append(np.roll(load_pixels(page.image.read_bytes()), (down, right), (0, 1)))
            for word in page.words:
                for cell in self._cells(word.box.shifted(right, down)):
                    left = CELL_PX * cell[2] - right
                    places = [number_of(word.character_at(left + place)) for place in PLACES_PX]
                    self.characters.append((cell, places))
            for text, box in page.texts:
                moved = box.shifted(right, down)
                near = [cell for cell in self._cells(moved) if is_near(cell[2], moved)]
                self.texts += [(cell, text) for cell in near if histogram(text).any()]

    def _cells(self, box: Box) -> list[Cell]:
        """Return the cells on the middle line of a box of the newest page; none if the shift has cut it."""
        height, width, _ = self.pixels[-1].shape
        if not box.is_inside(width, height):
            return []
        return [(len(self.pixels) - 1, row, column) for row, column in cells_of(box)]


class ReadingLessons:
    """Pages of which some are read in each update."""

    def __init__(self, model: GuiPolicyModel, pages: Sequence[ReadingPage], count: int, seed: int) -> None:
        """count   how many pages are read in an update"""
        self.heads = ReadingHeads(model.config)
        self._model = model
        self._pages = pages
        self._count = count
        self._draw = random.Random(seed)
        texts = [text for page in pages for text, _ in page.texts if histogram(text).any()]
        some = self._draw.choices(texts, k=TEXTS_FOR_EMBEDDINGS)
        self._embeddings = TextEmbeddings(some, model.config.reading_channels[2])

    def named(self, texts: Sequence[str]) -> Tensor:
        """Return the embeddings of texts, float32 [B, size]; zeros for empty ones."""
        return torch.from_numpy(np.stack([self._embeddings.of(text) for text in texts]))

    def read(self) -> str:
        """Add the gradient of the reading loss of the next pages; return the loss as text."""
        asked = Questions(self._draw.choices(self._pages, k=self._count), self._draw)
        loss = reading_loss(self._model, self.heads, asked, self._embeddings)
        loss.backward()  # type: ignore[no-untyped-call]
        return f"reading {loss:.3f}"


def reading_pages(
    words: Mapping[Path, Mapping[str, Sequence[Word]]], samples: Sequence[GroundingSample]
) -> list[ReadingPage]:
    """Return the pages of some data sets.

    words     the words of each data set (`read_words`), by its folder
    samples   the samples of all of them
    """
    named: defaultdict[Path, list[tuple[str, Box]]] = defaultdict(list)
    for sample in samples:
        if text := quoted(sample):
            named[sample.image].append((text, sample.box))
    return [
        ReadingPage(folder / IMAGES / name, shown, named[folder / IMAGES / name])
        for folder, of_pages in words.items()
        for name, shown in of_pages.items()
    ]


def reading_loss(
    model: GuiPolicyModel, heads: ReadingHeads, asked: Questions, embeddings: TextEmbeddings
) -> Tensor:
    """Return the weighted sum of the losses about characters, histograms and embeddings; 0 if nothing is
    asked."""
    _, eighth, _ = model.stem(torch.from_numpy(np.stack(asked.pixels)).permute(0, 3, 1, 2))
    assert isinstance(model.pointer, Pointer)
    words, said = model.pointer.read(eighth)
    loss: Tensor = eighth.sum() * 0.0
    if asked.characters:
        cells, characters = zip(*asked.characters, strict=True)
        scores = heads.characters(_at(eighth, cells)).unflatten(1, (len(PLACES_PX), -1)).transpose(1, 2)
        loss = loss + CHARACTER_WEIGHT * F.cross_entropy(scores, torch.tensor(characters))
    if asked.texts:
        cells, texts = zip(*asked.texts, strict=True)
        wanted = torch.from_numpy(np.stack([histogram(text) for text in texts]))
        of_histograms = F.binary_cross_entropy_with_logits(heads.histograms(_at(words, cells)), wanted)
        wanted = torch.from_numpy(np.stack([embeddings.of(text) for text in texts]))
        likeness = F.cosine_similarity(_at(said, cells), wanted)
        loss = loss + HISTOGRAM_WEIGHT * HISTOGRAM_SIZE * of_histograms + 1 - likeness.mean()
    return loss


def _at(features: Tensor, cells: Sequence[Cell]) -> Tensor:
    """Return the features [B, C, H, W] at N cells, as [N, C]."""
    page, row, column = torch.tensor(cells).T
    return features[page, :, row, column]


def is_near(column: int, box: Box) -> bool:
    """Return whether the middle of a column of cells is near that of a box."""
    return abs(CELL_PX * (column + 0.5) - box.centre[0]) <= NEAR_PX


def cells_of(box: Box) -> list[tuple[int, int]]:
    """Return row and column of the cells on the middle line of a word, less such as it covers by little."""
    row = max(0, round((box.centre[1] - CELL_PX / 2) / CELL_PX))
    first = max(0, round((box.left - 2) / CELL_PX))
    last = max(first, int((box.right - 6) // CELL_PX))
    return [(row, column) for column in range(first, last + 1)]


def number_of(character: str) -> int:
    """Return the number of a character, from 1 on; 0 for one that is not told apart, and for none."""
    return CHARACTERS.find(character) + 1 if character else 0
