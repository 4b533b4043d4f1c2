"""Grounding by the language model's own attention, without new weights (GUI-AIMA, arXiv 2511.00810).

The attention map is the attention of the *anchor*, the last token of the prompt, to the patches: a weighted
mean over all heads of all layers. The weight of a head grows with the attention that the *visual-sink* tokens
pay to the patches in this head. Visual-sink tokens are the tokens of the instruction whose hidden states are
most similar to those of the patches, over all layers. Imports torch.

Shapes: L layers, H heads, T tokens, m patches.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

SINKS = 1
"""Number of visual-sink tokens."""

SMALLEST = 1e-12
"""Smaller attention is raised to this value, so that its log stays finite; no label is that small."""


@torch.no_grad()
def sink_tokens(states: Sequence[Tensor], queries: Tensor, patches: Tensor) -> Tensor:
    """Return the positions [k] of the visual-sink tokens among the query tokens, without gradients.

    states    hidden states [T, d] of every layer
    queries   positions [q] of the instruction's tokens
    patches   positions [m] of the patches
    """
    similarity = torch.stack(
        [
            (F.normalize(layer[queries].float(), dim=-1) @ F.normalize(layer[patches].float(), dim=-1).T).sum(
                -1
            )
            for layer in states
        ]
    ).sum(0)
    return queries[similarity.topk(min(SINKS, len(queries))).indices]


def merged_attention(attentions: Sequence[Tensor], anchor: int, patches: Tensor, sinks: Tensor) -> Tensor:
    """Return float32 logits [m] of the patches: the log of the anchor's attention, merged over all heads.

    attentions   attention [H, T, T] of every layer, rows attend to columns
    anchor       position of the anchor
    patches      positions [m] of the patches
    sinks        positions [k] of the visual-sink tokens
    """
    heads = torch.cat([layer.float() for layer in attentions])
    weights = heads[:, sinks][:, :, patches].sum((-1, -2)).softmax(0)
    merged = (weights[:, None] * heads[:, anchor, patches]).sum(0)
    return (merged / merged.sum().clamp_min(SMALLEST)).clamp_min(SMALLEST).log()
