"""The policy of a checkpoint, chosen by what its configuration says it is (a leaf: torch, transformers)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForImageTextToText

from dart.policy.base import Policy
from dart.policy.checkpoint import CheckpointError, named_errors
from dart.policy.checkpoint import load_codec as load_laptop_codec
from dart.policy.lora import LoraPolicy, with_adapter
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Codec
from dart.policy.small_policy import SmallPolicy
from dart.policy.vlm import VisionLanguagePolicy
from dart.policy.vlm_codec import load_vlm_codec

LAPTOP = "gui_policy"

WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")

NOT_COPIED = ("config.json", "generation_config.json", "state.json")
"""Of a checkpoint's files: these are written anew with its weights, the others as they were."""

MOST_BYTES = 64 * 2**20
"""A file larger than this is no tokenizer's and no processor's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlacement:
    """How a vision-language policy is held in memory."""

    device: str = "auto"
    """`auto`: the GPU where there is one."""
    precision: str = "float32"
    """`float32`, or `bfloat16`: computed in it. Weights that are trained stay float32, the others do not."""
    is_trained: bool = False
    gradient_checkpointing: bool = False
    """Activations are computed again in the backward pass instead of being kept."""
    lora_rank: int = 0
    """0: every weight is trained."""
    lora_alpha: float = 32.0
    """The adapter counts by alpha / rank."""
    seed: int = 0
    """Of the adapter's first weights."""


def load(
    folder: Path,
    reading: PromptSpec | None = None,
    holding: ModelPlacement | None = None,
    *,
    resume: Path | None = None,
) -> Policy:
    """The policy in `folder`, or what training made of it by the checkpoint in `resume`.

    Raises CheckpointError with the folder and the remedy.
    """
    reading, holding = reading or PromptSpec(), holding or ModelPlacement()
    if model_type(folder) == LAPTOP:
        return SmallPolicy(resume or folder)
    has_adapter = holding.is_trained and holding.lora_rank > 0
    weights = folder if has_adapter or resume is None else resume
    with named_errors(weights):
        codec = load_vlm_codec(folder, reading)
        module = _module(weights, holding)
        parts: dict[str, Any] = {
            "files": _files(folder),
            "answer_tokens": reading.answer_tokens,
            "is_autocast": holding.precision == "bfloat16",
        }
        if not has_adapter:
            return VisionLanguagePolicy(module, codec, **parts)
        adapted = with_adapter(module, holding.lora_rank, holding.lora_alpha, holding.seed, resume)
    return LoraPolicy(adapted, codec, **parts)


def load_codec(folder: Path, reading: PromptSpec | None = None) -> Codec:
    """The codec of the policy in `folder`, without its model. Raises CheckpointError."""
    if model_type(folder) == LAPTOP:
        return load_laptop_codec(folder)
    reading = reading or PromptSpec()
    with named_errors(folder):
        return load_vlm_codec(folder, reading)


def model_type(folder: Path) -> str:
    """What the checkpoint's configuration says it is. Raises CheckpointError."""
    with named_errors(folder):
        found = json.loads((folder / "config.json").read_text()).get("model_type")
    if not isinstance(found, str):
        raise CheckpointError(f"{folder}/config.json names no model_type; expected a transformers checkpoint")
    return found


def _module(folder: Path, holding: ModelPlacement) -> nn.Module:
    """The model alone, on its device. Only what is trained has float32 weights under bfloat16."""
    is_light = holding.precision == "bfloat16" and (not holding.is_trained or holding.lora_rank > 0)
    module = AutoModelForImageTextToText.from_pretrained(
        folder,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.bfloat16 if is_light else torch.float32,
    )
    module.to(device_of(holding.device))
    if not holding.is_trained:
        return module.eval().requires_grad_(False)  # type: ignore[no-any-return]
    if holding.gradient_checkpointing:
        _recompute_activations(module)
    return module.train()  # type: ignore[no-any-return]


def _recompute_activations(module: Any) -> None:
    """By its newer name where transformers has it; the older one warns there."""
    if hasattr(module, "activation_checkpointing_enable"):
        module.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    else:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def device_of(wanted: str) -> torch.device:
    """The device by its name in torch; `auto` is the GPU where there is one."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(wanted)


def _files(folder: Path) -> Mapping[str, bytes]:
    """Everything of a checkpoint that is neither weights nor written along with them."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file()
        and not path.name.endswith(WEIGHTS)
        and path.name not in NOT_COPIED
        and path.stat().st_size <= MOST_BYTES
    }
