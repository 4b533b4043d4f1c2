"""Attention of a vision tower over many windows at once. Imports torch and transformers.

The vision towers of the Qwen-VL family attend within windows. In most layers of Qwen2.5-VL a window has 64
patches, and a screenshot of full HD has 180 windows. Without the library flash-attn, transformers computes
the attention of one window after the other. Here windows of equal length are one batch, in one call of
torch's `scaled_dot_product_attention`. The result is the same, apart from rounding.
"""

import inspect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

BY_LENGTH = "flash_by_length"
"""Name of this implementation. transformers gives whole windows only to a name that contains `flash`."""

WINDOWS = "cu_seqlens"
"""Name of the argument by which transformers tells a layer the limits of its windows."""


def attend_by_length(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None = None,
    *,
    cu_seq_lens_q: Tensor,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend within windows of T patches in all; returns [1, T, heads, D].

    query, key, value   [1, heads, T, D]
    cu_seq_lens_q       first patch of each window, and T at the end
    """
    lengths = tuple(length for length in cu_seq_lens_q.diff().tolist() if length)
    if len(set(lengths)) == 1:  # nothing has to be sorted, and nothing copied
        return _attended([query, key, value], lengths[0], scaling, dropout).unsqueeze(0), None
    groups, places = _order(lengths, query.device)
    parts = [
        _attended([one.index_select(2, rows) for one in (query, key, value)], length, scaling, dropout)
        for length, rows in groups
    ]
    return torch.cat(parts).index_select(0, places).unsqueeze(0), None


def _attended(inputs: Sequence[Tensor], length: int, scaling: float | None, dropout: float) -> Tensor:
    """Attend within consecutive windows of this length; [1, heads, T, D] each to [T, heads, D]."""
    _, heads, patches, size = inputs[0].shape
    shape = (heads, patches // length, length, size)
    query, key, value = (one.reshape(shape).transpose(0, 1) for one in inputs)
    attended = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scaling)
    return attended.transpose(1, 2).flatten(0, 1)


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # kept between calls: a tensor made in inference mode could not be trained with
def _order(lengths: tuple[int, ...], device: torch.device) -> tuple[tuple[tuple[int, Tensor], ...], Tensor]:
    """Return the patches of the windows of each length, and where each patch is after they are joined."""
    patches = torch.split(torch.arange(sum(lengths)), list(lengths))
    groups = {
        length: torch.cat([window for window in patches if len(window) == length])
        for length in sorted(set(lengths))
    }
    places = torch.cat([*groups.values()]).argsort()
    return tuple((length, rows.to(device)) for length, rows in groups.items()), places.to(device)


def attend_windows_together(module: Any) -> None:
    """Make the vision tower of a model use `attend_by_length` if all its attention is in windows.

    A tower with fewer key heads than query heads keeps its attention.
    """
    vision = getattr(module.config, "vision_config", None)
    limits = [
        (one, parameter)
        for one in module.modules()
        if (parameter := inspect.signature(one.forward).parameters.get(WINDOWS))
    ]
    is_windowed = limits and all(
        parameter.default is parameter.empty and getattr(one, "num_key_value_groups", 1) == 1
        for one, parameter in limits
    )
    if is_windowed and vision is not None and vision._attn_implementation == "sdpa":
        vision._attn_implementation = BY_LENGTH


AttentionInterface.register(BY_LENGTH, attend_by_length)
