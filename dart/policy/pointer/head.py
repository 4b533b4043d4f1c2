"""The pointer head of GUI-Actor, and its loss. Imports torch.

Source: Wu et al. 2025, arXiv 2506.03143, section 3.2. The weights have the names of the published
checkpoints, so published weights load into this head, and weights of this head load into GUI-Actor's code.
For reinforcement learning a position is a sample of the categorical distribution softmax(logits /
temperature) over patches: the patch's index and log-prob are recorded, and training scores the same index
(`dart.policy.sampling`).

Shapes: B samples, n pointers of a sample, m patches of the largest grid, d width of the language model.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD_NAME = "multi_patch_pointer_head"
"""Attribute under which a model has its head, and first part of the names of its weights in checkpoints."""

HEADS = 8

NEVER = -1e9
"""The logit of a patch or a token that is never sampled; finite, so that entropies stay numbers."""


class HeadMismatch(ValueError):
    """Weights of a pointer head do not fit the model; the message names the first wrong weight."""


class PointerHead(nn.Module):
    """Self-attention over patches, then one MLP for their keys and one for the query: 8 d^2 + 10 d weights.

    The attributes have the names of the published weights: `projection_enc` makes keys, `projection_dec`
    queries. There is no dropout: a patch is scored under the distribution from which it was sampled.
    """

    def __init__(self, size: int) -> None:
        """size   width d of the language model, a multiple of HEADS"""
        super().__init__()
        if size % HEADS:
            raise ValueError(f"expected a width that {HEADS} heads divide, got {size}")
        self.size = size
        self.self_attention = nn.MultiheadAttention(size, HEADS, batch_first=True)
        self.layer_norm = nn.LayerNorm(size)
        self.projection_enc = _mlp(size)
        self.projection_dec = _mlp(size)

    def forward(self, patches: Tensor, queries: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return float32 logits [B, n, m]; a softmax over them is the attention over patches.

        patches   [B, m, d], the patches of the newest screenshot as they enter the language model
        queries   [B, n, d], last hidden states at the pointer tokens
        mask      bool [B, m], true at patches and false at padding; None: no padding
        """
        return self.scores(self.keys(patches, mask), queries, mask)

    def scores(self, keys: Tensor, queries: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits of `forward` from keys [B, m, d] that `keys` has returned before."""
        logits: Tensor = self.projection_dec(queries) @ keys.transpose(1, 2)
        logits = logits.float() / math.sqrt(self.size)
        return logits if mask is None else logits.masked_fill(~mask[:, None, :], NEVER)

    def keys(self, patches: Tensor, mask: Tensor | None = None, context: Tensor | None = None) -> Tensor:
        """Return the keys [B, m, d] of patches; they do not depend on the query.

        mask      bool [B, m], true at patches and false at padding; None: no padding
        context   [B, c, d], vectors to which the patches attend, without padding; None: the patches attend to
                  one another, as in GUI-Actor
        """
        padding = None if mask is None or context is not None else ~mask
        context = patches if context is None else context
        seen, _ = self.self_attention(patches, context, context, key_padding_mask=padding, need_weights=False)
        keys: Tensor = self.projection_enc(self.layer_norm(patches + seen))
        return keys


def _mlp(size: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))


def load_head(weights: Mapping[str, Tensor], size: int) -> PointerHead:
    """Make a head from published weights or from weights that this project saved.

    weights   the head's weights by name, without the prefix HEAD_NAME
    size      width d of the language model

    Raises HeadMismatch when a weight is missing, unknown, or has another shape.
    """
    head = PointerHead(size)
    expected = {name: tuple(value.shape) for name, value in head.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    wrong = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    if wrong:
        name = wrong[0]
        raise HeadMismatch(
            f"{len(wrong)} weights of {HEAD_NAME} do not fit a model of width {size}; the first is {name}: "
            f"expected {expected.get(name, 'no such weight')}, got {found.get(name, 'no such weight')}; "
            "use a head that was made for this model"
        )
    head.load_state_dict(dict(weights))
    return head


# ---- the loss ----


def pointer_kl(logits: Tensor, targets: Tensor) -> Tensor:
    """Return KL(target || attention) in nats: the mean over pointers. Patches whose target is 0 add nothing.

    logits     [B, n, m]
    targets    [B, n, m], distributions over patches (`dart.policy.pointer.patches.patch_labels`)
    """
    surprise = torch.xlogy(targets, targets) - targets * F.log_softmax(logits.float(), -1)
    return surprise.sum(-1).mean()
