"""A tiny checkpoint with the layout of Qwen2.5-VL: what loads the real ones loads it, in no time.

Random weights of a fixed seed, an untied output head, a small byte-level tokenizer with the special tokens
and the chat template of the family, and the files of its processors. Tests, the runs on a laptop and the
measurements of engines start from it; nothing is downloaded. Imitation or training gives it something to say.
"""

import json
import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.utils import logging as transformers_logging

from dart.environments.actions import GRAMMAR
from dart.policy.uitars import PROMPT

transformers_logging.disable_progress_bar()  # a bar per file would break whatever is printed beside it

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END, IMAGE, VIDEO = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
BOX_START, BOX_END = "<|box_start|>", "<|box_end|>"
SPECIAL_TOKENS = (PAD, START, END, BOX_START, BOX_END, VISION_START, VISION_END, IMAGE, VIDEO)

TEXT_TOKENS = 503
"""256 bytes, and the most frequent pairs of the prompt: with the special tokens 512."""

PATCH_PX, MERGE = 14, 2
MIN_AREA_PX = 4 * (PATCH_PX * MERGE) ** 2
MAX_AREA_PX = 1280 * (PATCH_PX * MERGE) ** 2

CHAT_TEMPLATE = """\
{%- if messages[0]['role'] != 'system' -%}
<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>
{%- else %}{{ part['text'] }}{% endif -%}
{%- endfor -%}
{%- endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""
"""ChatML with pictures, as the family writes it."""


def make_tiny_qwen(path: Path, seed: int = 0) -> None:
    """Write the checkpoint into the folder `path`; the same seed gives the same weights."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, seed).save_pretrained(path)
    tokenizer.save_pretrained(path)
    _write_processors(path)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE that writes the prompt short; digits stay single, as in the family."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_TOKENS + len(SPECIAL_TOKENS),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    answers = [f"Action: {form.sample}" for form in GRAMMAR.values()]
    tokenizer.train_from_iterator([PROMPT, *answers * 4, string.printable], trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        extra_special_tokens=[token for token in SPECIAL_TOKENS if token not in (PAD, END)],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
    made.chat_template = CHAT_TEMPLATE
    return made


def tiny_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Any:
    """A model of some 0.6 million parameters: head dimensions are those CPU builds of engines support."""
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(_configuration(tokenizer))
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model


def _configuration(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
        "bos_token_id": ids[PAD],
        "eos_token_id": ids[END],
        "pad_token_id": ids[PAD],
        "tie_word_embeddings": False,
        "initializer_range": 0.06,
    }
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": 128,
        "patch_size": PATCH_PX,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [1],
        "initializer_range": 0.06,
    }
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids[IMAGE],
        video_token_id=ids[VIDEO],
        vision_start_token_id=ids[VISION_START],
        vision_end_token_id=ids[VISION_END],
        tie_word_embeddings=False,
    )


def _write_processors(path: Path) -> None:
    """Written and not saved through the processors' classes: those of videos want torchvision."""
    common = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "merge_size": MERGE,
        "min_pixels": MIN_AREA_PX,
        "max_pixels": MAX_AREA_PX,
        "patch_size": PATCH_PX,
        "processor_class": "Qwen2_5_VLProcessor",
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"shortest_edge": MIN_AREA_PX, "longest_edge": MAX_AREA_PX},
        "temporal_patch_size": 2,
    }
    for name, kind in (
        ("preprocessor_config.json", {"image_processor_type": "Qwen2VLImageProcessor"}),
        ("video_preprocessor_config.json", {"video_processor_type": "Qwen2VLVideoProcessor"}),
    ):
        (path / name).write_text(json.dumps({**common, **kind}, indent=1))
