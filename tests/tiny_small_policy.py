"""A small policy of a few thousand parameters, and screens of noise for it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from dart.policy.configuration import GuiPolicyConfig
from dart.policy.modeling import GuiPolicyModel, new_policy
from tests.pictures import png_of

SIZES: Mapping[str, Any] = MappingProxyType(
    {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "stem_channels": (4, 4, 4, 8),
        "pointer_size": 8,
    }
)


def tiny_small_policy(tokenizer: Tokenizer, seed: int = 0, **sizes: Any) -> GuiPolicyModel:
    """An untrained policy for this tokenizer; `sizes` are those that differ from SIZES."""
    values = {**SIZES, **sizes}
    return new_policy(GuiPolicyConfig(vocab_size=tokenizer.get_vocab_size(), **values), seed=seed)


def noise_png(seed: int, width: int = 160) -> bytes:
    """A picture of 210 rows with random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (210, width, 3), dtype=np.uint8)
    return png_of(Image.fromarray(pixels))
