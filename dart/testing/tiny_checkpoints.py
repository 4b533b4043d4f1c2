"""Tiny checkpoints with the layouts of well-known families: what loads the real ones loads them, in no time.

Random weights of a fixed seed, a small byte-level tokenizer with the special tokens of the family, its chat
template and the files of its processors. Tests, the runs on a laptop and the measurements of engines start
from them; nothing is downloaded. Imitation or training gives them something to say. The families are in
`dart.testing.tiny_families`, those of Qwen in `dart.testing.tiny_qwen`.
"""

import json
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from dart.core.actions import GRAMMAR
from dart.policy.tokenizer import byte_level_tokenizer
from dart.policy.uitars import PROMPT, system_prompt

transformers_logging.disable_progress_bar()  # a bar per file would break whatever is printed beside it

TEXT_TOKENS = 503
"""256 bytes, and the most frequent pairs of the prompt: with the nine special tokens of Qwen2.5-VL 512."""

HIDDEN, VISION_HIDDEN, LAYERS, HEADS = 128, 64, 2, 2
"""Head dimensions are those that CPU builds of engines support."""

INITIAL = 0.06
"""Standard deviation of the first weights: answers differ from each other then."""

Ids = Mapping[str, int]
"""Token ids by what the tokens are written as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What is different about one family."""

    special_tokens: tuple[str, ...]
    pad: str
    end: str
    ends: tuple[str, ...] = ()
    """Further tokens that end an answer."""
    begin: str | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    """Special tokens by the names under which its processor asks the tokenizer for them."""
    chat_template: str
    configuration: Callable[[Ids], Mapping[str, Any]]
    """Its `config.json`, without the model type; `text_config` on top of `text_layout`."""
    files: Mapping[str, Mapping[str, Any]]
    """Of its processors, by name."""


def make_tiny(path: Path, model_type: str, family: Family, seed: int = 0) -> None:
    """Write the checkpoint into the folder `path`; the same seed gives the same weights."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer(family)
    tiny_model(model_type, family, tokenizer, seed).save_pretrained(path)
    tokenizer.save_pretrained(path)
    for name, content in family.files.items():
        (path / name).write_text(json.dumps(content, indent=1))


def tiny_tokenizer(family: Family) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer that writes the policy's prompt with few tokens."""
    answers = [f"Action: {form.sample}" for form in GRAMMAR.values()]
    texts = [system_prompt(PROMPT, "image"), *answers * 4, string.printable]
    usual = {family.pad, family.end, family.begin, *family.named.values()}
    made = byte_level_tokenizer(
        texts,
        family.special_tokens,
        TEXT_TOKENS,
        0,
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
    """A model of less than a million parameters."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in family.special_tokens}
    config = dict(family.configuration(ids))
    config["text_config"] = text_layout(family, ids, len(tokenizer)) | config.get("text_config", {})
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(model_type, **config))
    _open_eyes(model)
    model.generation_config = GenerationConfig(
        eos_token_id=[ids[token] for token in (family.end, *family.ends)] if family.ends else ids[family.end],
        pad_token_id=ids[family.pad],
        do_sample=True,
    )
    return model


@torch.no_grad()
def _open_eyes(model: Any) -> None:
    """Some families begin with zeros between what sees and what speaks: blind until they are trained."""
    for weight in model.parameters():
        if weight.dim() > 1 and not weight.any():
            weight.normal_(0.0, INITIAL)


def text_layout(family: Family, ids: Ids, vocabulary: int) -> dict[str, Any]:
    """Of a decoder, as most families name its parts."""
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


def chatml(picture: str, system: str = "") -> str:
    """A chat template with the messages of ChatML, in which a picture is written as `picture`.

    system   what is said first where the conversation says nothing of the kind
    """
    said = (
        "{%- if messages[0]['role'] != 'system' -%}\n<|im_start|>system\n" + system + "<|im_end|>\n"
        "{% endif -%}\n"
    )
    return (said if system else "") + CHATML.replace("PICTURE", picture)


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
