"""Layouts of Qwen2-VL, Qwen2.5-VL and Qwen3-VL for tiny checkpoints (`dart.testing.tiny_checkpoints`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dart.testing.tiny_checkpoints import (
    HEADS,
    HIDDEN,
    INITIAL,
    LAYERS,
    VISION_HIDDEN,
    Family,
    Ids,
    chatml,
    make_tiny,
)

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END, IMAGE, VIDEO = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
BOX_START, BOX_END = "<|box_start|>", "<|box_end|>"
SPECIAL_TOKENS = (PAD, START, END, BOX_START, BOX_END, VISION_START, VISION_END, IMAGE, VIDEO)

MERGE = 2
"""Patches per side of an image token."""

PICTURE = f"{VISION_START}{IMAGE}{VISION_END}"


def make_tiny_qwen(path: Path, seed: int = 0) -> None:
    """Write a checkpoint with the layout of Qwen2.5-VL into the folder `path`; the same seed gives the same
    weights."""
    make_tiny(path, "qwen2_5_vl", QWEN2_5, seed)


ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}


def _qwen2(ids: Ids) -> Mapping[str, Any]:
    vision = {
        "depth": LAYERS,
        "embed_dim": VISION_HIDDEN,
        "hidden_size": HIDDEN,
        "num_heads": HEADS,
        "mlp_ratio": 2,
    }
    return {"text_config": {"rope_parameters": ROPE}, "vision_config": vision, **_picture_ids(ids)}


def _qwen2_5(ids: Ids) -> Mapping[str, Any]:
    vision = _vision(14) | {"window_size": 112, "fullatt_block_indexes": [1]}
    return {"text_config": {"rope_parameters": ROPE}, "vision_config": vision, **_picture_ids(ids)}


def _qwen3(ids: Ids) -> Mapping[str, Any]:
    rope = ROPE | {"mrope_section": [12, 10, 10], "mrope_interleaved": True}
    vision = _vision(16) | {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    text = {"rope_parameters": rope, "head_dim": HIDDEN // HEADS}
    return {"text_config": text, "vision_config": vision, **_picture_ids(ids)}


def _vision(patch_px: int) -> dict[str, Any]:
    return {
        "depth": LAYERS,
        "hidden_size": VISION_HIDDEN,
        "intermediate_size": 2 * VISION_HIDDEN,
        "num_heads": HEADS,
        "out_hidden_size": HIDDEN,
        "patch_size": patch_px,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "initializer_range": INITIAL,
    }


def _picture_ids(ids: Ids) -> dict[str, Any]:
    return {
        "image_token_id": ids[IMAGE],
        "video_token_id": ids[VIDEO],
        "vision_start_token_id": ids[VISION_START],
        "vision_end_token_id": ids[VISION_END],
        "tie_word_embeddings": False,
    }


def _files(
    processor: str, video_processor: str, patch_px: int, mean: list[float], std: list[float]
) -> Mapping[str, Mapping[str, Any]]:
    """Written and not saved through the processors' classes: those of videos want torchvision."""
    token_area_px = (patch_px * MERGE) ** 2
    smallest, largest = 4 * token_area_px, 1280 * token_area_px
    common = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": mean,
        "image_std": std,
        "merge_size": MERGE,
        "min_pixels": smallest,
        "max_pixels": largest,
        "patch_size": patch_px,
        "processor_class": processor,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"shortest_edge": smallest, "longest_edge": largest},
        "temporal_patch_size": 2,
    }
    return {
        "preprocessor_config.json": {**common, "image_processor_type": "Qwen2VLImageProcessor"},
        "video_preprocessor_config.json": {**common, "video_processor_type": video_processor},
    }


OF_CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
"""Mean and standard deviation of pixels."""

SYSTEM = "You are a helpful assistant."

QWEN2 = Family(
    special_tokens=SPECIAL_TOKENS,
    pad=PAD,
    end=END,
    chat_template=chatml(PICTURE, SYSTEM),
    configuration=_qwen2,
    files=_files("Qwen2VLProcessor", "Qwen2VLVideoProcessor", 14, *OF_CLIP),
)

QWEN2_5 = Family(
    special_tokens=SPECIAL_TOKENS,
    pad=PAD,
    end=END,
    chat_template=chatml(PICTURE, SYSTEM),
    configuration=_qwen2_5,
    files=_files("Qwen2_5_VLProcessor", "Qwen2VLVideoProcessor", 14, *OF_CLIP),
)

QWEN3 = Family(
    special_tokens=SPECIAL_TOKENS,
    pad=PAD,
    end=END,
    ends=(PAD,),
    chat_template=chatml(PICTURE),
    configuration=_qwen3,
    files=_files("Qwen3VLProcessor", "Qwen3VLVideoProcessor", 16, [0.5] * 3, [0.5] * 3),
)
