"""Loading the vision-language policy of a checkpoint with transformers. Imports torch and transformers."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoModelForImageTextToText, GenerationConfig
from transformers.utils import logging as transformers_logging

from dart.policy.base import Policy
from dart.policy.load import named_errors
from dart.policy.lora import LoraPolicy, with_adapter
from dart.policy.placement import DTYPES, ModelPlacement, device_of
from dart.policy.prompt_spec import PromptSpec
from dart.policy.vision_attention import attend_windows_together
from dart.policy.vlm import VisionLanguagePolicy
from dart.policy.vlm_codec import load_vlm_codec
from dart.policy.vlm_pointer import attach_head, expect_head
from dart.policy.vlm_processor import load_config

transformers_logging.disable_progress_bar()  # a bar per checkpoint would break the live view and the logs

WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")

NOT_COPIED = ("config.json", "state.json")
"""Files of a checkpoint, besides weights, that each saved version writes anew; the other files are copied."""

MOST_BYTES = 64 * 2**20
"""Size of the largest file that `save` copies. Files of tokenizers and processors are smaller."""


def load_vlm(folder: Path, prompt_spec: PromptSpec, placement: ModelPlacement, resume: Path | None) -> Policy:
    """Load the vision-language policy in `folder`, or a later version of it; see `dart.policy.load.load`."""
    has_adapter = placement.is_trained and placement.lora_rank > 0
    weights = folder if has_adapter or resume is None else resume
    with named_errors(weights):
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


def _module(folder: Path, placement: ModelPlacement) -> nn.Module:
    """Load the model onto its device. Frozen weights get the precision of the computation.

    The model has none of the checkpoint's settings for `generate`, such as a repetition penalty: a setting
    that changes logits would come before `Draw`, and answers would come from another distribution than
    training scores. Saved versions have them, as a copy of the file.

    Each weight is read directly to the device. Otherwise every rank and engine of a machine with GPUs would
    hold the whole model in main memory while it loads."""
    is_frozen = not placement.is_trained or placement.lora_rank > 0
    precision = placement.precision if is_frozen else placement.weight_precision
    module, found = AutoModelForImageTextToText.from_pretrained(
        folder,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=DTYPES[precision],
        device_map={"": device_of(placement.device)},
        output_loading_info=True,
    )
    _refuse_missing_weights(found["missing_keys"], found["unexpected_keys"])
    module.generation_config = GenerationConfig()
    attend_windows_together(module)
    _switch_dropout_off(module)
    if not placement.is_trained:
        return module.eval().requires_grad_(False)  # type: ignore[no-any-return]
    return module.train()  # type: ignore[no-any-return]


def _refuse_missing_weights(missing: Collection[str], unknown: Collection[str]) -> None:
    """Raise ValueError when the files of a checkpoint lack weights of its model.

    transformers only logs a warning, and gives such weights random values, in each process others.

    unknown   names of weights in the files that the model does not have
    """
    if missing:
        others = f", and hold {len(unknown)} of other names, such as {min(unknown)}" if unknown else ""
        raise ValueError(
            f"its files lack {len(missing)} weights of its model, such as {min(missing)}{others}"
        )


def _switch_dropout_off(module: nn.Module) -> None:
    """Set every dropout of a model to 0, whatever its configuration says.

    A trained model is in training mode, which gradient checkpointing needs. With dropout, each pass would
    score the same answer differently, and none of them as the engine that sampled it.
    """
    for part in module.modules():
        for name in [one for one in vars(part) if "dropout" in one]:
            if isinstance(getattr(part, name), float):
                setattr(part, name, 0.0)
        if isinstance(part, nn.Dropout):
            part.p = 0.0


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
