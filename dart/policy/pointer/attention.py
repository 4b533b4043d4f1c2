"""Grounding by the language model's own attention, without new weights (GUI-AIMA, arXiv 2511.00810).

In every layer and head, the anchor token attends to the patches. Heads count by how much the *visual-sink*
tokens attend to the patches in them: those query tokens whose hidden states are the most similar to the
patches' over all layers. Imports torch.

Shapes: L layers, H heads, T tokens, m patches.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

SINKS = 1
"""Number of visual-sink tokens."""

SMALLEST = 1e-12
"""Attention below which a log would be minus infinity; no label is that small."""


@torch.no_grad()
def sink_tokens(states: Sequence[Tensor], queries: Tensor, patches: Tensor, sinks: int = SINKS) -> Tensor:
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
    return queries[similarity.topk(min(sinks, len(queries))).indices]


def merged_attention(attentions: Sequence[Tensor], anchor: int, patches: Tensor, sinks: Tensor) -> Tensor:
    """Return the log of the merged distribution over patches [m], float32, as logits of the patches.

    attentions   [H, T, T] of every layer, rows attend to columns
    anchor       position of the token that stands for the place
    patches      positions [m]
    sinks        positions [k] of the visual-sink tokens
    """
    heads = torch.cat([layer.float() for layer in attentions])
    weights = heads[:, sinks][:, :, patches].sum((-1, -2)).softmax(0)
    merged = (weights[:, None] * heads[:, anchor, patches]).sum(0)
    return (merged / merged.sum().clamp_min(SMALLEST)).clamp_min(SMALLEST).log()
