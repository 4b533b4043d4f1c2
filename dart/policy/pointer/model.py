"""Grounding models: a policy and the head by which it points, behind one interface. Imports torch.

A model makes logits over the patches of a screenshot for an instruction, with gradients. The two heads, the
pointer head of GUI-Actor and the attention of GUI-AIMA, differ only in how they make these logits: labels,
loss, regions and points are the same. A coordinate head is the baseline: it gives a point and no map.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dart.core.boxes import Box
from dart.policy.pointer.head import pointer_kl
from dart.policy.pointer.patches import PatchGrid, Weights, patch_labels
from dart.policy.pointer.regions import Region, decode_regions, verifier_candidates
from dart.policy.pointer.settings import HeadSettings
from dart.policy.protocols import Pixels

INSTRUCTION = "{instruction}"
"""Placeholder of the instruction in the text of a prompt."""

Point = tuple[float, float]
"""A point as fractions (x, y) of the screen's width and height."""


@dataclass(frozen=True, slots=True)
class AttentionMap:
    """A distribution over the patches of one screenshot."""

    attention: Weights
    """Probability of each patch, float32 [rows * columns]."""
    grid: PatchGrid

    def regions(self, k: int | None = None) -> list[Region]:
        """Return at most k regions of the map, the best first; None: all regions."""
        return decode_regions(self.attention, self.grid, k)

    def candidates(self) -> list[Point]:
        """Return the points that a verifier should score, the most likely first."""
        return verifier_candidates(self.attention, self.grid)


class GroundingModel(ABC):
    """A policy that finds the element that an instruction means. Only one thread may call it."""

    module: Any
    """The whole model with its head, an nn.Module."""
    settings: HeadSettings
    """Head, labels and prompt of the checkpoint."""
    prompt: str
    """The whole text that the model reads, with INSTRUCTION in place of the instruction; part of reports."""

    @abstractmethod
    def ground(self, image: Pixels, instruction: str, k: int) -> list[Region]:
        """Return one to k regions of the screenshot where the instruction's element may be, the best first.

        image   uint8 [H, W, 3]
        """

    def candidates(self, image: Pixels, instruction: str) -> list[Point]:
        """Return the points that a verifier should score, the most likely first."""
        return [region.centre for region in self.ground(image, instruction, 1)]

    @abstractmethod
    def loss(self, images: Sequence[Pixels], instructions: Sequence[str], boxes: Sequence[Box]) -> Tensor:
        """Return the mean loss of a batch in nats, with gradients.

        images         uint8 [H, W, 3] each
        instructions   one for each image
        boxes          box of the element that each instruction means, in fractions of its screen
        """

    @abstractmethod
    def warm_up(self) -> "WarmUp":
        """Return what the first stage of training changes: the head, and the rows of new tokens."""

    @abstractmethod
    def shown_size(self, image: Pixels) -> tuple[int, int]:
        """Return width and height in pixels of the image that the model sees for this screenshot."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write a checkpoint with the head into a fresh folder. Not atomic."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The weights that the warm-up stage trains."""

    weights: tuple[nn.Parameter, ...]
    """Weights that are trained whole."""
    rows: tuple[tuple[nn.Parameter, tuple[int, ...]], ...] = ()
    """Embedding matrices, and the rows of each that are trained; all other rows keep their values."""


class MapModel(GroundingModel):
    """A grounding model whose head gives a distribution over patches."""

    @abstractmethod
    def logits(self, images: Sequence[Pixels], instructions: Sequence[str]) -> tuple[Tensor, list[PatchGrid]]:
        """Return logits [B, m] over patches, padded to the largest grid, with gradients, and each grid."""

    @torch.no_grad()
    def attend(self, image: Pixels, instruction: str) -> AttentionMap:
        """Return the attention map of one screenshot, uint8 [H, W, 3], for one instruction."""
        logits, (grid,) = self.logits([image], [instruction])
        attention = logits[0, : grid.patches].float().softmax(-1)
        return AttentionMap(attention.cpu().numpy().astype(np.float32), grid)

    def ground(self, image: Pixels, instruction: str, k: int) -> list[Region]:
        return self.attend(image, instruction).regions(k)

    def candidates(self, image: Pixels, instruction: str) -> list[Point]:
        return self.attend(image, instruction).candidates()

    def loss(self, images: Sequence[Pixels], instructions: Sequence[str], boxes: Sequence[Box]) -> Tensor:
        """Return the mean over samples of KL(label || attention)."""
        logits, grids = self.logits(images, instructions)
        targets = torch.zeros(logits.shape)
        for row, (box, grid) in enumerate(zip(boxes, grids, strict=True)):
            targets[row, : grid.patches] = torch.from_numpy(patch_labels(box, grid, self.settings.labels))
        return pointer_kl(logits[:, None], targets[:, None].to(logits.device))
