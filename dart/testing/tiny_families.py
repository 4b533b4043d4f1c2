"""The layouts of families that cut a screenshot into tiles or look at it in one size, for tiny checkpoints
(`dart.testing.tiny_checkpoints`): each spells a picture out in its own way.

    python -m dart.testing.tiny_families idefics3 tiny
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
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
from dart.testing.tiny_qwen import END, PAD, QWEN2, QWEN2_5, QWEN3, START

TILE_PX, PATCH_PX = 56, 14
"""Sides of the pictures that the vision tower looks at, and of the patches it makes of them: 16."""


def _vision(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": VISION_HIDDEN,
        "intermediate_size": 2 * VISION_HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "image_size": TILE_PX,
        "patch_size": PATCH_PX,
        "initializer_range": INITIAL,
    } | more


def _pictures(kind: str, processor: str, **more: Any) -> dict[str, Any]:
    """A `preprocessor_config.json`."""
    return {
        "image_processor_type": kind,
        "processor_class": processor,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 3,
        "rescale_factor": 1 / 255,
    } | more


# ---- Idefics3: rows and columns of tiles, each with a name, and the whole picture after them ----

BEGIN_OF_TEXT, END_OF_UTTERANCE, IMAGE = "<|begin_of_text|>", "<end_of_utterance>", "<image>"
AROUND, WHOLE = "<fake_token_around_image>", "<global-img>"
PLACES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5))


def _idefics3(ids: Ids) -> Mapping[str, Any]:
    return {
        "vision_config": _vision(),
        "image_token_id": ids[IMAGE],
        "scale_factor": 2,
        "tie_word_embeddings": False,
    }


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
    configuration=_idefics3,
    files={
        "preprocessor_config.json": _pictures(
            "Idefics3ImageProcessor",
            "Idefics3Processor",
            do_image_splitting=True,
            do_pad=True,
            size={"longest_edge": 2 * TILE_PX},
            max_image_size={"longest_edge": TILE_PX},
        ),
        "processor_config.json": {"processor_class": "Idefics3Processor", "image_seq_len": 4},
    },
)


# ---- InternVL: as many tiles as fit its sides best, and the whole picture after them ----

TILES = "<IMG_CONTEXT>"
IMG_START, IMG_END = "<img>", "</img>"


def _internvl(ids: Ids) -> Mapping[str, Any]:
    return {
        "vision_config": _vision(),
        "image_token_id": ids[TILES],
        "image_seq_length": 4,
        "tie_word_embeddings": False,
    }


INTERNVL = Family(
    special_tokens=(PAD, START, END, IMG_START, IMG_END, TILES, "<video>"),
    pad=PAD,
    end=END,
    named={
        "start_image_token": IMG_START,
        "end_image_token": IMG_END,
        "context_image_token": TILES,
        "video_token": "<video>",
    },
    chat_template=chatml(f"{TILES}\n"),
    configuration=_internvl,
    files={
        "preprocessor_config.json": _pictures(
            "GotOcr2ImageProcessor",
            "InternVLProcessor",
            crop_to_patches=True,
            min_patches=1,
            max_patches=6,
            size={"height": TILE_PX, "width": TILE_PX},
        ),
        "processor_config.json": {"processor_class": "InternVLProcessor", "image_seq_length": 4},
    },
)


# ---- Gemma 3: one size for all, with line ends around it; users and answers alternate ----

GEMMA_PAD, GEMMA_END, GEMMA_BEGIN = "<pad>", "<eos>", "<bos>"
TURN, TURN_END = "<start_of_turn>", "<end_of_turn>"
PICTURE_START, PICTURE_END, SOFT = "<start_of_image>", "<end_of_image>", "<image_soft_token>"


def _gemma3(ids: Ids) -> Mapping[str, Any]:
    return {
        "text_config": {
            "tie_word_embeddings": True,
            "head_dim": HIDDEN // HEADS,
            "query_pre_attn_scalar": HIDDEN // HEADS,
        },
        "vision_config": _vision(vision_use_head=False),
        "mm_tokens_per_image": 4,
        "boi_token_index": ids[PICTURE_START],
        "eoi_token_index": ids[PICTURE_END],
        "image_token_index": ids[SOFT],
        "tie_word_embeddings": True,
    }


GEMMA3 = Family(
    special_tokens=(
        GEMMA_PAD,
        GEMMA_END,
        GEMMA_BEGIN,
        TURN,
        TURN_END,
        PICTURE_START,
        PICTURE_END,
        SOFT,
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
    configuration=_gemma3,
    files={
        "preprocessor_config.json": _pictures(
            "Gemma3ImageProcessor", "Gemma3Processor", size={"height": TILE_PX, "width": TILE_PX}
        ),
        "processor_config.json": {"processor_class": "Gemma3Processor", "image_seq_length": 4},
    },
)


# ---- LLaVA-OneVision: tiles without what was added to fill them, and a token at the end of each line ----

GRID = [[rows * TILE_PX, columns * TILE_PX] for rows in (1, 2) for columns in (1, 2)]


def _llava_onevision(ids: Ids) -> Mapping[str, Any]:
    return {
        "vision_config": _vision(vision_use_head=False),
        "image_token_index": ids[IMAGE],
        "video_token_index": ids["<video>"],
        "image_grid_pinpoints": GRID,
        "tie_word_embeddings": False,
    }


LLAVA_ONEVISION = Family(
    special_tokens=(PAD, START, END, IMAGE, "<video>"),
    pad=PAD,
    end=END,
    chat_template=chatml(f"{IMAGE}\n"),
    configuration=_llava_onevision,
    files={
        "preprocessor_config.json": _pictures(
            "LlavaOnevisionImageProcessor",
            "LlavaOnevisionProcessor",
            do_pad=True,
            image_grid_pinpoints=GRID,
            size={"height": TILE_PX, "width": TILE_PX},
        ),
        "processor_config.json": {
            "processor_class": "LlavaOnevisionProcessor",
            "num_image_tokens": (TILE_PX // PATCH_PX) ** 2,
            "vision_feature_select_strategy": "full",
        },
    },
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
"""By model type."""


def main() -> None:
    """Write a tiny checkpoint."""
    parser = argparse.ArgumentParser(
        description="Write a tiny checkpoint with random weights and the layout of a well-known family.",
        epilog="python -m dart.testing.tiny_families qwen2_5_vl tiny",
    )
    parser.add_argument("family", choices=sorted(FAMILIES), help="the model type, as config.json names it")
    parser.add_argument("folder", type=Path, help="where to write it")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other weights")
    options = parser.parse_args()
    make_tiny(options.folder, options.family, FAMILIES[options.family], options.seed)


if __name__ == "__main__":
    main()
