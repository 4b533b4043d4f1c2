"""Tiny checkpoints with the files and classes of well-known families of vision-language models.

A tiny checkpoint has random weights from a seed, a small byte-level tokenizer with the special tokens of the
family, the family's chat template and the files of its processors. So it loads like a real checkpoint, but
within a second. Tests, jobs on a laptop and measurements of engines start from tiny checkpoints; nothing is
downloaded. The families are in `dart.testing.tiny_families`.
"""

import json
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from dart.core.actions import GRAMMAR
from dart.policy.tokenizer import byte_level_tokenizer
from dart.policy.uitars import PROMPT, system_prompt

transformers_logging.disable_progress_bar()  # a bar per file would break the output of benchmarks and tests

TEXT_TOKENS = 503
"""Number of tokens for text: the 256 bytes and merged pairs that are frequent in the prompt. With the nine
special tokens of Qwen2.5-VL the vocabulary has 512 tokens."""

HIDDEN, VISION_HIDDEN, LAYERS, HEADS = 128, 64, 2, 2
"""Width of the language model, width of the vision tower, number of layers and number of attention heads of
every model.

They give sizes of attention heads that engines on the CPU support.
"""

INITIAL = 0.06
"""Standard deviation of the initial weights: large enough that different prompts get different answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The description of a family of vision-language models from which its tiny checkpoint is made."""

    special_tokens: tuple[str, ...]
    pad: str
    end: str
    ends: tuple[str, ...] = ()
    """Tokens that end an answer besides `end`."""
    begin: str | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    """Special tokens that the processor reads from attributes of the tokenizer, by the attribute's name."""
    chat_template: str
    configuration: Mapping[str, Any]
    """The content of `config.json` without the model type. A value that is a special token is replaced by its
    id. `text_config` holds only the values that differ from those of `text_layout`."""
    files: Mapping[str, Mapping[str, Any]]
    """Contents of the processors' files, by file name. Values that the processors' classes have as defaults
    may be left out."""


def make_tiny(path: Path, model_type: str, family: Family, seed: int = 0) -> None:
    """Write a tiny checkpoint into the folder `path`; the same seed gives the same weights."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer(family)
    tiny_model(model_type, family, tokenizer, seed).save_pretrained(path)
    tokenizer.save_pretrained(path)
    for name, content in family.files.items():
        (path / name).write_text(json.dumps(content, indent=1))


def tiny_tokenizer(family: Family) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer that is trained on the policy's prompt, so that the prompt has few
    tokens."""
    answers = [f"Action: {form.sample}" for name, form in GRAMMAR.items() if f"\n{name}(" in PROMPT]
    texts = [system_prompt(PROMPT, "image"), *answers * 4, string.printable]
    usual = {family.pad, family.end, family.begin, *family.named.values()}
    made = PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(texts, family.special_tokens, TEXT_TOKENS, 0),
        padding_side="left",
        clean_up_tokenization_spaces=False,
        pad_token=family.pad,
        eos_token=family.end,
        bos_token=family.begin,
        extra_special_tokens=[token for token in family.special_tokens if token not in usual],
        model_max_length=4096,
        **family.named,
    )
    made.chat_template = family.chat_template
    return made


def tiny_model(model_type: str, family: Family, tokenizer: PreTrainedTokenizerFast, seed: int) -> Any:
    """Return a model of the family, with random weights and less than a million parameters."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in family.special_tokens}
    config = {
        key: ids[value] if isinstance(value, str) else value for key, value in family.configuration.items()
    }
    config["text_config"] = text_layout(family, ids, len(tokenizer)) | config.get("text_config", {})
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(model_type, **config))
    _replace_zeros(model)
    model.generation_config = GenerationConfig(
        eos_token_id=[ids[token] for token in (family.end, *family.ends)] if family.ends else ids[family.end],
        pad_token_id=ids[family.pad],
        do_sample=True,
    )
    return model


@torch.no_grad()
def _replace_zeros(model: Any) -> None:
    """Give random values to weight matrices that are all zeros. Some families begin with zeros between the
    vision tower and the language model; images would then have no effect."""
    for weight in model.parameters():
        if weight.dim() > 1 and not weight.any():
            weight.normal_(0.0, INITIAL)


def text_layout(family: Family, ids: Mapping[str, int], vocabulary: int) -> dict[str, Any]:
    """Return the `text_config` of a tiny language model, with the keys that most families use.

    ids          id of each special token
    vocabulary   number of tokens of the tokenizer
    """
    return {
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 1,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "bos_token_id": ids[family.begin or family.pad],
        "eos_token_id": ids[family.end],
        "pad_token_id": ids[family.pad],
        "tie_word_embeddings": False,
        "initializer_range": INITIAL,
    }


SYSTEM = """\
{%- if messages[0]['role'] != 'system' -%}
<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif -%}
"""
"""Start of the chat template of Qwen2-VL and Qwen2.5-VL: the default system message, which is written if a
conversation has none."""

CHATML = """\
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' %}PICTURE
{%- else %}{{ part['text'] }}{% endif -%}
{%- endfor -%}
{%- endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""
"""A chat template that writes messages in ChatML. Replace PICTURE by the text that the family writes for an
image."""
