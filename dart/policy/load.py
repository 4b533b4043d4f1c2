"""Loading the policy of a checkpoint, chosen by the model type in its configuration. Imports torch."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoModelForImageTextToText

from dart.core.errors import UnavailableError
from dart.policy.adapter_files import base_of, why_no_policy
from dart.policy.base import Policy
from dart.policy.lora import LoraPolicy, with_adapter
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Codec
from dart.policy.small_policy import SmallPolicy
from dart.policy.small_policy import load_codec as load_small_codec
from dart.policy.vision_attention import attend_windows_together
from dart.policy.vlm import VisionLanguagePolicy
from dart.policy.vlm_codec import load_vlm_codec
from dart.policy.vlm_pointer import attach_head, expect_head
from dart.policy.vlm_processor import load_config

SMALL_POLICY = "gui_policy"

WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")

NOT_COPIED = ("config.json", "generation_config.json", "state.json")
"""Files of a checkpoint, besides weights, that each saved version writes anew; the other files are copied."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""The torch dtype of each precision that the run's configuration can name."""

MOST_BYTES = 64 * 2**20
"""Size of the largest file that `save` copies. Files of tokenizers and processors are smaller."""


class CheckpointError(UnavailableError):
    """A folder holds no policy checkpoint, or a damaged one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlacement:
    """Where and in which precision a vision-language policy is loaded, and whether it is trained."""

    device: str = "auto"
    """Name of a torch device; `auto`: the GPU if there is one, else the CPU."""
    precision: str = "float32"
    """Precision of the computation: `float32` or `bfloat16`."""
    weight_precision: str = "float32"
    """Precision of trained weights, their gradients and AdamW's running means. Frozen weights have
    `precision`, an adapter has float32."""
    is_trained: bool = False
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass instead of storing them."""
    lora_rank: int = 0
    """Rank of the adapter; 0: every weight is trained."""
    lora_alpha: float = 32.0
    """The adapter is scaled by alpha / rank."""
    publishes_adapter: bool = False
    """Whether a saved version holds only the adapter and the name of its base policy. If not, a saved version
    holds the weights with the adapter merged in, too."""
    seed: int = 0
    """Seed of the adapter's initial weights."""


def load(
    folder: Path,
    prompt_spec: PromptSpec | None = None,
    placement: ModelPlacement | None = None,
    *,
    resume: Path | None = None,
) -> Policy:
    """Load the policy in `folder`, or a later version of this policy from the checkpoint `resume`.

    folder        checkpoint of the base policy
    prompt_spec   prompt settings of a vision-language policy; None: the defaults
    placement     None: the defaults of ModelPlacement
    resume        checkpoint of a version that was trained from `folder`; None: load the base policy

    Raises CheckpointError, or UnsupportedCheckpoint for a model that cannot be a policy.
    """
    prompt_spec, placement = prompt_spec or PromptSpec(), placement or ModelPlacement()
    is_small = model_type(folder) == SMALL_POLICY
    has_adapter = placement.is_trained and placement.lora_rank > 0 and not is_small
    weights = folder if has_adapter or resume is None else resume
    with named_errors(weights):
        if is_small:
            return SmallPolicy(weights)
        codec = load_vlm_codec(folder, prompt_spec)
        if codec.pointer is not None:
            expect_head(load_config(folder))
        module = _module(weights, placement)
        if codec.pointer is not None:
            attach_head(module, weights)
        parts: dict[str, Any] = {
            "files": _files(folder),
            "answer_tokens": prompt_spec.context.answer_tokens,
            "is_autocast": placement.precision == "bfloat16",
        }
        adapted = module
        if has_adapter:
            adapted = with_adapter(module, placement.lora_rank, placement.lora_alpha, placement.seed, resume)
        if placement.is_trained and placement.gradient_checkpointing:
            _recompute_activations(module)
        if not has_adapter:
            return VisionLanguagePolicy(module, codec, **parts)
    policy = LoraPolicy(adapted, codec, **parts)
    policy.base = folder if placement.publishes_adapter else None
    return policy


def load_codec(folder: Path, prompt_spec: PromptSpec | None = None) -> Codec:
    """Load the codec of the policy in `folder`, without its model.

    Raises CheckpointError, or UnsupportedCheckpoint for a model that cannot be a policy.
    """
    is_small = model_type(folder) == SMALL_POLICY
    with named_errors(folder):
        return load_small_codec(folder) if is_small else load_vlm_codec(folder, prompt_spec or PromptSpec())


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn the errors of loading a checkpoint into `CheckpointError`, which names the folder and the
    remedy."""
    if (base := base_of(path)) is not None and not (path / "config.json").is_file():
        raise CheckpointError(why_no_policy(path, base))
    if not (path / "config.json").is_file():
        raise CheckpointError(
            f"expected a policy checkpoint in {path}, found no config.json: name the folder of a "
            f"transformers checkpoint, or make the small policy with `dartrl pretrain --out {path}`"
        )
    try:
        yield
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        if "trust_remote_code" in str(error):
            raise CheckpointError(
                f"the checkpoint in {path} needs code from its own folder (auto_map), which is never run; "
                "use a checkpoint that transformers loads with its own classes"
            ) from error
        raise CheckpointError(
            f"the checkpoint in {path} is damaged: {error}; use another one or rebuild it"
        ) from error


def model_type(folder: Path) -> str:
    """Return the model type of a checkpoint's configuration. Raises CheckpointError."""
    with named_errors(folder):
        found = json.loads((folder / "config.json").read_text()).get("model_type")
    if not isinstance(found, str):
        raise CheckpointError(f"{folder}/config.json names no model_type; expected a transformers checkpoint")
    return found


def _module(folder: Path, placement: ModelPlacement) -> nn.Module:
    """Load the model onto its device. Frozen weights get the precision of the computation.

    Each weight is read directly to the device. Otherwise every rank and engine of a machine with GPUs would
    hold the whole model in main memory while it loads."""
    is_frozen = not placement.is_trained or placement.lora_rank > 0
    precision = placement.precision if is_frozen else placement.weight_precision
    module = AutoModelForImageTextToText.from_pretrained(
        folder,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=DTYPES[precision],
        device_map={"": device_of(placement.device)},
    )
    attend_windows_together(module)
    if not placement.is_trained:
        return module.eval().requires_grad_(False)  # type: ignore[no-any-return]
    return module.train()  # type: ignore[no-any-return]


def _recompute_activations(module: Any) -> None:
    """Switch on gradient checkpointing by the method that this version of transformers has for it.

    For a model with an adapter, call this function after the adapter is added: peft, too, makes the inputs of
    a model with checkpointing require gradients. Only the reentrant kind needs that, and with it a frozen
    vision tower takes part in the backward pass.
    """
    if hasattr(module, "activation_checkpointing_enable"):
        module.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    else:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    module.disable_input_require_grads()


def device_of(wanted: str) -> torch.device:
    """Return the torch device with this name; `auto` is the GPU if there is one, else the CPU."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(wanted)


def _files(folder: Path) -> Mapping[str, bytes]:
    """Return the files that every saved version copies, such as the tokenizer's, as contents by name."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file()
        and not path.name.endswith(WEIGHTS)
        and path.name not in NOT_COPIED
        and path.stat().st_size <= MOST_BYTES
    }
