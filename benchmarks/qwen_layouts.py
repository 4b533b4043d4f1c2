"""Checkpoints with random weights in the layout of Qwen2.5-VL, from tiny to 7 B."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, Qwen2_5_VLConfig

from dart.policy.placement import device_of
from dart.testing.tiny_families import make_tiny_qwen

VOCABULARY = 151_936

VISION = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
"""Of every published Qwen2.5-VL (its config.json)."""

SHAPE = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)

LAYOUTS = {
    "tiny": (),
    "0.5b": (896, 4864, 24, 14, 2),
    "3b": (2048, 11008, 36, 16, 2),
    "7b": (3584, 18944, 28, 28, 4),
}
"""Of the language model: Qwen2.5-0.5B, and Qwen2.5-VL in its two smaller sizes."""


def make_layout(name: str, folder: Path) -> None:
    """A checkpoint of this layout with random weights, in bfloat16 where it is large."""
    make_tiny_qwen(folder)
    if name == "tiny":
        return
    described = AutoConfig.from_pretrained(folder, trust_remote_code=False).to_dict()
    text = dict(zip(SHAPE, LAYOUTS[name], strict=True))
    half = text["hidden_size"] // text["num_attention_heads"] // 2
    turned = half * 3 // 8
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [half - 2 * turned, turned, turned]}
    more = {"vocab_size": VOCABULARY, "max_position_embeddings": 32768, "rope_parameters": rope}
    described["text_config"] |= {**text, **more}
    del described["text_config"]["layer_types"]  # one for each layer: made anew
    described["vision_config"] |= {**VISION, "out_hidden_size": text["hidden_size"]}
    config = Qwen2_5_VLConfig.from_dict(described)
    with device_of("auto"):
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
