"""Families of vision-language models for tiny checkpoints (`dart.testing.tiny_checkpoints`).

The Qwen families resize a screenshot to a whole number of image tokens. The other families cut a screenshot
into tiles, or resize it to a fixed size. Each of them has its own tokens for the position of a tile. This
command writes a tiny checkpoint of a family into the folder `tiny`:

    python -m dart.testing.tiny_families idefics3 tiny
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dart.testing.tiny_checkpoints import (
    CHATML,
    HEADS,
    HIDDEN,
    INITIAL,
    LAYERS,
    SYSTEM,
    VISION_HIDDEN,
    Family,
    make_tiny,
)

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
QWEN_IMAGE, QWEN_VIDEO = "<|image_pad|>", "<|video_pad|>"
IMAGE, VIDEO = "<image>", "<video>"

VISION = {
    "hidden_size": VISION_HIDDEN,
    "intermediate_size": 2 * VISION_HIDDEN,
    "initializer_range": INITIAL,
}
"""Settings that the vision towers of all families share."""


# ---- Qwen2-VL, Qwen2.5-VL, Qwen3-VL: any size in whole image tokens ----

MERGE = 2
"""Number of patches along each side of the square of patches that becomes one image token."""

ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}

QWEN_TOKENS: Mapping[str, Any] = {
    "image_token_id": QWEN_IMAGE,
    "video_token_id": QWEN_VIDEO,
    "vision_start_token_id": VISION_START,
    "vision_end_token_id": VISION_END,
    "tie_word_embeddings": False,
}
QWEN: Mapping[str, Any] = {
    "special_tokens": (
        *(PAD, START, END, "<|box_start|>", "<|box_end|>"),
        *(VISION_START, VISION_END, QWEN_IMAGE, QWEN_VIDEO),
    ),
    "pad": PAD,
    "end": END,
}
QWEN_CHAT = CHATML.replace("PICTURE", f"{VISION_START}{QWEN_IMAGE}{VISION_END}")


def _qwen_vision(patch_px: int) -> dict[str, Any]:
    return {
        **VISION,
        "depth": LAYERS,
        "num_heads": HEADS,
        "out_hidden_size": HIDDEN,
        "patch_size": patch_px,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
    }


CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
"""Mean and standard deviation of pixels, as Qwen2-VL and Qwen2.5-VL normalise images."""


def _qwen_files(processor: str, video_processor: str, patch_px: int) -> Mapping[str, Mapping[str, Any]]:
    """Return the contents of the files of the image processor and the video processor, by file name.

    The files contain every value, because vLLM has other defaults than the processors' classes. They are not
    written by these classes, because the class for videos needs torchvision.
    """
    mean, std = (CLIP_MEAN, CLIP_STD) if patch_px == 14 else ([0.5] * 3, [0.5] * 3)
    token_area_px = (patch_px * MERGE) ** 2
    smallest, largest = 4 * token_area_px, 1280 * token_area_px
    common = {
        "min_pixels": smallest,
        "max_pixels": largest,
        "size": {"shortest_edge": smallest, "longest_edge": largest},
        "patch_size": patch_px,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "processor_class": processor,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": mean,
        "image_std": std,
        "resample": 3,
        "rescale_factor": 1 / 255,
    }
    return {
        "preprocessor_config.json": {**common, "image_processor_type": "Qwen2VLImageProcessor"},
        "video_preprocessor_config.json": {**common, "video_processor_type": video_processor},
    }


QWEN2 = Family(
    **QWEN,
    chat_template=SYSTEM + QWEN_CHAT,
    configuration={
        **QWEN_TOKENS,
        "text_config": {"rope_parameters": ROPE},
        "vision_config": {
            "depth": LAYERS,
            "embed_dim": VISION_HIDDEN,
            "hidden_size": HIDDEN,
            "num_heads": HEADS,
            "mlp_ratio": 2,
        },
    },
    files=_qwen_files("Qwen2VLProcessor", "Qwen2VLVideoProcessor", 14),
)

QWEN2_5 = Family(
    **QWEN,
    chat_template=SYSTEM + QWEN_CHAT,
    configuration={
        **QWEN_TOKENS,
        "text_config": {"rope_parameters": ROPE},
        "vision_config": {**_qwen_vision(14), "window_size": 112, "fullatt_block_indexes": [1]},
    },
    files=_qwen_files("Qwen2_5_VLProcessor", "Qwen2VLVideoProcessor", 14),
)

QWEN3 = Family(
    **QWEN,
    ends=(PAD,),
    chat_template=QWEN_CHAT,
    configuration={
        **QWEN_TOKENS,
        "text_config": {
            "rope_parameters": {**ROPE, "mrope_section": [12, 10, 10], "mrope_interleaved": True},
            "head_dim": HIDDEN // HEADS,
        },
        "vision_config": {
            **_qwen_vision(16),
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0],
        },
    },
    files=_qwen_files("Qwen3VLProcessor", "Qwen3VLVideoProcessor", 16),
)


def make_tiny_qwen(path: Path, seed: int = 0) -> None:
    """Write a checkpoint with the layout of Qwen2.5-VL into the folder `path`; the same seed gives the same
    weights."""
    make_tiny(path, "qwen2_5_vl", QWEN2_5, seed)


# ---- families with tiles or one size ----

TILE_PX, PATCH_PX = 56, 14
"""Side in pixels of a tile, which is the image that the vision tower gets, and of each of its 16 patches."""

SQUARE = {"height": TILE_PX, "width": TILE_PX}

TILE_VISION = {
    **VISION,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "image_size": TILE_PX,
    "patch_size": PATCH_PX,
}


def _processors(
    image_processor: str, processor: str, images: Mapping[str, Any], **settings: Any
) -> Mapping[str, Mapping[str, Any]]:
    """Return the contents of the files of an image processor and of the processor that uses it, by file name.

    image_processor, processor   class names
    images                       settings of the image processor
    settings                     settings of the processor
    """
    return {
        "preprocessor_config.json": {
            "image_processor_type": image_processor,
            "processor_class": processor,
            "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
            "resample": 3,
            **images,
        },
        "processor_config.json": {"processor_class": processor, **settings},
    }


# ---- Idefics3: rows and columns of tiles, each with a name, and the whole image after them ----

BEGIN_OF_TEXT, END_OF_UTTERANCE = "<|begin_of_text|>", "<end_of_utterance>"
AROUND, WHOLE = "<fake_token_around_image>", "<global-img>"
PLACES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5))

IDEFICS3 = Family(
    special_tokens=(PAD, BEGIN_OF_TEXT, "<|end_of_text|>", END_OF_UTTERANCE, IMAGE, AROUND, WHOLE, *PLACES),
    pad=PAD,
    begin=BEGIN_OF_TEXT,
    end="<|end_of_text|>",
    ends=(END_OF_UTTERANCE,),
    chat_template="""\
{{ bos_token }}{% for message in messages %}{{ message['role'].capitalize() }}\
{% if message['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}\
{% for part in message['content'] %}\
{% if part['type'] == 'text' %}{{ part['text'] }}{% elif part['type'] == 'image' %}<image>{% endif %}\
{% endfor %}<end_of_utterance>
{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}""",
    configuration={
        "vision_config": TILE_VISION,
        "image_token_id": IMAGE,
        "scale_factor": 2,
        "tie_word_embeddings": False,
    },
    files=_processors(
        "Idefics3ImageProcessor",
        "Idefics3Processor",
        {"size": {"longest_edge": 2 * TILE_PX}, "max_image_size": {"longest_edge": TILE_PX}},
        image_seq_len=4,
    ),
)


# ---- InternVL: as many tiles as fit its sides best, and the whole image after them ----

TILES = "<IMG_CONTEXT>"
IMG_START, IMG_END = "<img>", "</img>"

INTERNVL = Family(
    special_tokens=(PAD, START, END, IMG_START, IMG_END, TILES, VIDEO),
    pad=PAD,
    end=END,
    named={
        "start_image_token": IMG_START,
        "end_image_token": IMG_END,
        "context_image_token": TILES,
        "video_token": VIDEO,
    },
    chat_template=CHATML.replace("PICTURE", f"{TILES}\n"),
    configuration={
        "vision_config": TILE_VISION,
        "image_token_id": TILES,
        "image_seq_length": 4,
        "tie_word_embeddings": False,
    },
    files=_processors(
        "GotOcr2ImageProcessor",
        "InternVLProcessor",
        {"crop_to_patches": True, "max_patches": 6, "size": SQUARE},
        image_seq_length=4,
    ),
)


# ---- Gemma 3: one size for all images, with line ends around them; users and answers alternate ----

GEMMA_PAD, GEMMA_END, GEMMA_BEGIN = "<pad>", "<eos>", "<bos>"
TURN, TURN_END = "<start_of_turn>", "<end_of_turn>"
PICTURE_START, PICTURE_END, SOFT = "<start_of_image>", "<end_of_image>", "<image_soft_token>"

GEMMA3 = Family(
    special_tokens=(
        *(GEMMA_PAD, GEMMA_END, GEMMA_BEGIN, TURN, TURN_END),
        *(PICTURE_START, PICTURE_END, SOFT),
    ),
    pad=GEMMA_PAD,
    end=GEMMA_END,
    ends=(TURN_END,),
    begin=GEMMA_BEGIN,
    named={"boi_token": PICTURE_START, "eoi_token": PICTURE_END, "image_token": SOFT},
    chat_template="""\
{{ bos_token }}{%- for message in messages -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
{%- endif -%}
{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\\n' }}
{%- if message['content'] is string -%}{{ message['content'] }}
{%- else -%}{%- for part in message['content'] -%}
{%- if part['type'] == 'image' -%}{{ '<start_of_image>' }}{%- else -%}{{ part['text'] }}{%- endif -%}
{%- endfor -%}{%- endif -%}
{{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
""",
    configuration={
        "text_config": {
            "tie_word_embeddings": True,
            "head_dim": HIDDEN // HEADS,
            "query_pre_attn_scalar": HIDDEN // HEADS,
        },
        "vision_config": {**TILE_VISION, "vision_use_head": False},
        "mm_tokens_per_image": 4,
        "boi_token_index": PICTURE_START,
        "eoi_token_index": PICTURE_END,
        "image_token_index": SOFT,
        "tie_word_embeddings": True,
    },
    files=_processors("Gemma3ImageProcessor", "Gemma3Processor", {"size": SQUARE}, image_seq_length=4),
)


# ---- LLaVA-OneVision: tiles without their padding, and a token at the end of each line ----

GRID = [[rows * TILE_PX, columns * TILE_PX] for rows in (1, 2) for columns in (1, 2)]

LLAVA_ONEVISION = Family(
    special_tokens=(PAD, START, END, IMAGE, VIDEO),
    pad=PAD,
    end=END,
    chat_template=CHATML.replace("PICTURE", f"{IMAGE}\n"),
    configuration={
        "vision_config": {**TILE_VISION, "vision_use_head": False},
        "image_token_index": IMAGE,
        "video_token_index": VIDEO,
        "image_grid_pinpoints": GRID,
        "tie_word_embeddings": False,
    },
    files=_processors(
        "LlavaOnevisionImageProcessor",
        "LlavaOnevisionProcessor",
        {"image_grid_pinpoints": GRID, "size": SQUARE},
        num_image_tokens=(TILE_PX // PATCH_PX) ** 2,
        vision_feature_select_strategy="full",
    ),
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "qwen2_vl": QWEN2,
        "qwen2_5_vl": QWEN2_5,
        "qwen3_vl": QWEN3,
        "idefics3": IDEFICS3,
        "internvl": INTERNVL,
        "gemma3": GEMMA3,
        "llava_onevision": LLAVA_ONEVISION,
    }
)
"""Every family, by its value of `model_type` in config.json."""


def main() -> None:
    """Run the command `python -m dart.testing.tiny_families`: write a tiny checkpoint."""
    parser = argparse.ArgumentParser(
        description="Write a tiny checkpoint with random weights and the layout of a well-known family.",
        epilog="python -m dart.testing.tiny_families qwen2_5_vl tiny",
    )
    parser.add_argument("family", choices=sorted(FAMILIES), help="the model type, as config.json names it")
    parser.add_argument("folder", type=Path, help="folder to write the checkpoint to")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random weights")
    options = parser.parse_args()
    make_tiny(options.folder, options.family, FAMILIES[options.family], options.seed)


if __name__ == "__main__":
    main()
