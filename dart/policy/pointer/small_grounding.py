"""Grounding with the small policy: its pointer head, its own attention, or a head of coordinates.

The prompt is that of the policy's first step, followed by the beginning of an answer, `<click> <pointer>`.
All heads read the model at `<pointer>`. A screenshot of another size is resized to the policy's frame of
160x210 pixels. Points are fractions of the screen, so they do not depend on its size. Imports torch.

Shapes: B samples, T tokens, D width, m patches.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from dart.core.boxes import Box
from dart.policy.codec import GRID, fitted
from dart.policy.modeling import Block, GuiPolicyModel
from dart.policy.pointer.attention import merged_attention, sink_tokens
from dart.policy.pointer.model import INSTRUCTION, GroundingModel, MapModel, WarmUp
from dart.policy.pointer.patches import PatchGrid
from dart.policy.pointer.regions import Region
from dart.policy.pointer.settings import HeadSettings, write_settings
from dart.policy.protocols import Pixels
from dart.policy.sampling import pad_left
from dart.policy.small_policy import BASELINE_HEAD, SmallPolicy
from dart.policy.vocabulary import (
    ANSWER,
    FRAME_HEIGHT_PX,
    FRAME_WIDTH_PX,
    IMAGE,
    POINTER,
    X_BINS,
    Y_BINS,
    special_ids,
    step_token,
)

CLICK = "<click>"

ANSWER_START = (special_ids("pointer")[CLICK], special_ids("pointer")[POINTER])

AFTER_INSTRUCTION = 4
"""Number of tokens after the instruction: the step counter, `<answer>`, `<click>`, `<pointer>`."""

TOKEN_HEIGHT_PX = 16
"""Height, in pixels of the policy's frame, that one image token covers."""


class SmallGrounding(GroundingModel):
    """Base class of the grounding models of the small policy."""

    module: GuiPolicyModel

    def __init__(self, policy: SmallPolicy, settings: HeadSettings) -> None:
        self.policy = policy
        self.module = policy.module
        self.settings = settings
        self.prompt = f"{IMAGE} {INSTRUCTION} {step_token(0)} {ANSWER} {CLICK} {POINTER}"

    def inputs(self, images: Sequence[Pixels], instructions: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Return token ids and mask [B, T], padding first, and pixels uint8 [B, 3, H, W]."""
        prompts = [
            [*self.policy.codec.encode_prompt(instruction, ()), *ANSWER_START] for instruction in instructions
        ]
        ids, valid = pad_left(prompts, self.module.config.pad_token_id)
        pixels = torch.stack([torch.from_numpy(fitted(image)) for image in images])
        return ids, valid, pixels.permute(0, 3, 1, 2)

    def shown_size(self, image: Pixels) -> tuple[int, int]:
        return FRAME_WIDTH_PX, FRAME_HEIGHT_PX

    def save(self, folder: Path) -> None:
        self.policy.save(folder)
        write_settings(folder, self.settings)

    @abstractmethod
    def warm_up(self) -> WarmUp: ...

    def _new_rows(self) -> tuple[tuple[nn.Parameter, tuple[int, ...]], ...]:
        table: nn.Parameter = self.module.embed.weight  # type: ignore[assignment]
        return ((table, (ANSWER_START[1],)),)


class SmallPointer(SmallGrounding, MapModel):
    """The small policy with GUI-Actor's head on patches of 8 px."""

    def logits(self, images: Sequence[Pixels], instructions: Sequence[str]) -> tuple[Tensor, list[PatchGrid]]:
        ids, valid, pixels = self.inputs(images, instructions)
        out = self.module(ids, valid, pixels, logits_to_keep=1)
        return out.pointer[:, -1], [GRID] * len(images)

    def warm_up(self) -> WarmUp:
        return WarmUp(tuple(self.module.pointer.parameters()), self._new_rows())


class SmallAttention(SmallGrounding, MapModel):
    """The small policy with GUI-AIMA's attention over image tokens, each 16 px high and 32 px wide."""

    def logits(self, images: Sequence[Pixels], instructions: Sequence[str]) -> tuple[Tensor, list[PatchGrid]]:
        ids, valid, pixels = self.inputs(images, instructions)
        with recorded_layers(self.module) as layers:
            self.module(ids, valid, pixels, logits_to_keep=1)
        attentions = layers.attentions(_seen(valid, len(ANSWER_START)))
        rows = [
            self._merged(ids[row], int(valid[row].sum()), [one[row] for one in attentions], layers.row(row))
            for row in range(len(ids))
        ]
        return torch.stack(rows), [self._grid()] * len(images)

    def _merged(self, ids: Tensor, length: int, attentions: list[Tensor], states: list[Tensor]) -> Tensor:
        """Return the log of the merged attention [m] of one sample (`merged_attention`).

        ids          the sample's tokens [T], padding first
        length       number of the sample's tokens without padding
        attentions   attention [H, T, T] of each layer
        states       outputs [T, D] of each layer
        """
        patches = (ids == self.module.config.image_token_id).nonzero().flatten()
        instruction = length - self.module.config.image_tokens - AFTER_INSTRUCTION
        last = len(ids) - AFTER_INSTRUCTION
        queries = torch.arange(last - instruction, last)
        return merged_attention(attentions, len(ids) - 1, patches, sink_tokens(states, queries, patches))

    def _grid(self) -> PatchGrid:
        rows, columns = self.module.config.grid
        return PatchGrid(rows, columns, covered_height=FRAME_HEIGHT_PX / (rows * TOKEN_HEIGHT_PX))

    def warm_up(self) -> WarmUp:
        return WarmUp(())


class RecordedLayers:
    """What the model's layers computed in one forward pass."""

    def __init__(self, heads: int) -> None:
        self._heads = heads
        self.projections: list[Tensor] = []
        """Queries, keys and values [B, T, 3 D] of each layer."""
        self.states: list[Tensor] = []
        """Outputs [B, T, D] of each layer."""

    def row(self, row: int) -> list[Tensor]:
        """Return the outputs [T, D] of each layer for one sample."""
        return [layer[row] for layer in self.states]

    def attentions(self, seen: Tensor) -> list[Tensor]:
        """Return the attention [B, H, T, T] of each layer, computed again from its queries and keys.

        seen   bool [B, 1, T, T], true where a row attends to a column
        """
        return [self._attention(layer, seen) for layer in self.projections]

    def _attention(self, projections: Tensor, seen: Tensor) -> Tensor:
        batch, length, width = projections.shape
        parts = projections.view(batch, length, 3, self._heads, width // 3 // self._heads)
        query, key, _ = parts.permute(2, 0, 3, 1, 4)
        scores: Tensor = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        return scores.masked_fill(~seen, -torch.inf).softmax(-1)


@contextmanager
def recorded_layers(module: GuiPolicyModel) -> Iterator[RecordedLayers]:
    """Record what the model's layers compute within the block, which makes one forward pass."""
    layers = RecordedLayers(module.config.num_attention_heads)
    hooks: list[RemovableHandle] = []
    for layer in module.layers:
        assert isinstance(layer, Block)
        hooks.append(layer.qkv.register_forward_hook(lambda _, __, out: layers.projections.append(out)))
        hooks.append(layer.register_forward_hook(lambda _, __, out: layers.states.append(out[0])))
    try:
        yield layers
    finally:
        for hook in hooks:
            hook.remove()


def _seen(valid: Tensor, answer_tokens: int) -> Tensor:
    """Return which tokens attend to which, bool [B, 1, T, T]: prompt tokens to the whole prompt, answer
    tokens to all earlier tokens, and each token, also padding, to itself."""
    length = valid.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    causal[: length - answer_tokens, : length - answer_tokens] = True
    itself = torch.eye(length, dtype=torch.bool)
    return (causal & valid[:, None, None, :]) | itself


class CoordinateHead(nn.Module):
    """Predicts a bin for x, and a bin for y given the bin of x, both from one hidden state."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.x = nn.Linear(size, X_BINS)
        self.chosen_x = nn.Embedding(X_BINS, size)
        self.y = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, Y_BINS))

    def forward(self, hidden: Tensor, x: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return logits [B, X_BINS] and [B, Y_BINS].

        hidden   [B, D]
        x        int64 [B], the bin of x on which y depends; None: the most likely one
        """
        of_x = self.x(hidden)
        chosen = of_x.argmax(-1) if x is None else x
        return of_x, self.y(hidden + self.chosen_x(chosen))


class SmallCoordinates(SmallGrounding):
    """The baseline: coordinates in bins of 4 px, predicted from the hidden state at `<pointer>`."""

    def __init__(self, policy: SmallPolicy, settings: HeadSettings, head: CoordinateHead) -> None:
        super().__init__(policy, settings)
        self.module.add_module(BASELINE_HEAD, head)
        self._head = head

    def ground(self, image: Pixels, instruction: str, k: int) -> list[Region]:
        """Return one region: the cell of the most likely bins, with its probability as the score."""
        with torch.no_grad():
            of_x, of_y = (
                logits[0].softmax(-1) for logits in self._head(self._hidden([image], [instruction]))
            )
        x, y = int(of_x.argmax()), int(of_y.argmax())
        cell = PatchGrid(Y_BINS, X_BINS).centre(y * X_BINS + x)
        return [Region(cell, float(of_x[x] * of_y[y]), (y * X_BINS + x,))]

    def loss(self, images: Sequence[Pixels], instructions: Sequence[str], boxes: Sequence[Box]) -> Tensor:
        """Return the mean of KL(label || prediction) in nats, summed over x and y.

        The labels are uniform over the bins that a box covers. y is predicted given the x of the box's
        centre.
        """
        wide = torch.stack([_bins(box.left, box.right, X_BINS) for box in boxes])
        high = torch.stack([_bins(box.top, box.bottom, Y_BINS) for box in boxes])
        centre = torch.tensor([min(int(box.centre[0] * X_BINS), X_BINS - 1) for box in boxes])
        of_x, of_y = self._head(self._hidden(images, instructions), centre)
        return _mean_kl(of_x, wide) + _mean_kl(of_y, high)

    def _hidden(self, images: Sequence[Pixels], instructions: Sequence[str]) -> Tensor:
        """Return the last hidden states [B, D] at `<pointer>`."""
        found: list[Tensor] = []
        hook = self.module.norm.register_forward_hook(lambda _, __, out: found.append(out))
        try:
            self.module(*self.inputs(images, instructions), logits_to_keep=1)
        finally:
            hook.remove()
        return found[0][:, -1]

    def warm_up(self) -> WarmUp:
        return WarmUp(tuple(self._head.parameters()), self._new_rows())


def _bins(low: float, high: float, bins: int) -> Tensor:
    """Return the uniform distribution over those of `bins` equal parts of [0, 1] that overlap [low, high]."""
    edges = torch.arange(bins + 1) / bins
    covered = ((edges[1:] > low) & (edges[:-1] < high)).float()
    return covered / covered.sum()


def _mean_kl(logits: Tensor, targets: Tensor) -> Tensor:
    return F.kl_div(logits.log_softmax(-1), targets, reduction="batchmean")
