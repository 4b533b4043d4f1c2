"""Training an adapter beside a frozen checkpoint (LoRA, Hu et al. 2021, arXiv 2106.09685), through peft.

The adapter sits on the linear layers of the language model; the vision tower stays frozen. A pointer head
is small and new, so all of its weights are trained. A saved checkpoint holds the adapter and names its base
policy (`dart.policy.adapter_files`). With `training.lora.publish = "merged"`, it instead holds the adapter
and the whole weights with the adapter merged in, so that engines load it like any other checkpoint.
The base policy of the KL term is the same model with its adapter switched off. If several processes share the
model, only one of them gets the weights to write.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dart.core.errors import UnavailableError
from dart.core.types import Step
from dart.policy.adapter_files import (
    ADAPTER_FOLDER,
    ADAPTER_WEIGHTS,
    BasePolicy,
    adapter_settings,
    fingerprint,
    write_base,
)
from dart.policy.base import Policy, Scorer
from dart.policy.pointer.head import HEAD_NAME
from dart.policy.protocols import Screen, UnsupportedCheckpoint
from dart.policy.sampling import AnswerScores
from dart.policy.vlm import VisionLanguagePolicy, write_files
from dart.policy.written_weights import write_model

LAYERS = (
    r".*(?:language_model|text_model)\..*\."
    r"(?:[qkvo]_proj|qkv_proj|gate_proj|up_proj|gate_up_proj|down_proj)"
)
"""Regular expression for the names of the linear layers of a language model, across model families."""

ADAPTER = "default"
ADAPTER_FILE = f"{ADAPTER_FOLDER}/{ADAPTER_WEIGHTS}"
"""Path of the adapter in a checkpoint. It is in a folder of its own, because engines read every file of
weights beside the configuration."""

FROZEN_COPY, TRAINED_COPY = ".original_module.", f".modules_to_save.{ADAPTER}."
"""Parts of the names that peft gives the weights of a pointer head: the frozen original weights, and the
copies that are trained."""

WRAPPED = "base_model.model."
"""Prefix that peft gives the name of every weight of a model with an adapter."""


def with_adapter(module: nn.Module, rank: int, alpha: float, seed: int, resume: Path | None) -> Any:
    """Return the model with an adapter added by peft; the weights that it trains are float32.

    seed     seed of the weights of a new adapter
    resume   checkpoint whose adapter is loaded; None: a new adapter, which does not change the output yet

    Raises UnavailableError when peft is not installed, UnsupportedCheckpoint when the adapter does not fit.
    """
    try:
        from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    except ModuleNotFoundError as missing:
        raise UnavailableError(
            "training.lora.rank needs the package peft, which is not installed: pip install 'dartrl[lora]', "
            "or set training.lora.rank = 0 to train every weight"
        ) from missing
    torch.manual_seed(seed)
    head = [HEAD_NAME] if hasattr(module, HEAD_NAME) else None  # a pointer head is trained whole
    adapted = get_peft_model(
        module, LoraConfig(r=rank, lora_alpha=alpha, target_modules=LAYERS, modules_to_save=head)
    )
    if head is not None:  # peft converts only the weights of its own layers to float32
        getattr(adapted.get_base_model(), HEAD_NAME).modules_to_save[ADAPTER].float()
    if resume is not None:
        file = resume / ADAPTER_FILE
        found = set_peft_model_state_dict(adapted, load_file(file))
        _refuse_other_layers(file, found)
    return adapted


def _refuse_other_layers(file: Path, found: Any) -> None:
    """Raise UnsupportedCheckpoint when an adapter lacks weights for the model, or has unknown ones.

    file    the adapter's file, for the message
    found   what peft returned when it loaded the adapter
    """
    missing = [name for name in found.missing_keys if ".lora_" in name]
    if missing or found.unexpected_keys:
        named = ", ".join([*missing, *found.unexpected_keys][:3])
        raise UnsupportedCheckpoint(
            f"the adapter {file} does not fit the policy: the adapter lacks {len(missing)} weights and has "
            f"{len(found.unexpected_keys)} unknown ones, such as {named}; use the base policy that the "
            "adapter was trained with"
        )


def with_shared_base(base: Policy, folder: Path) -> "LoraPolicy":
    """Return a policy that consists of `base` and of the adapter of the version in `folder`.

    The new policy shares the weights of the base, which do not change, so it needs memory for its adapter
    only. Other policies that share the base answer as before, also in other threads; the base itself must not
    compute meanwhile. Raises UnsupportedCheckpoint when the base is not a vision-language policy or the
    adapter does not fit.
    """
    if not isinstance(base, VisionLanguagePolicy):
        raise UnsupportedCheckpoint(
            f"{folder} holds an adapter of a vision-language policy, but the base policy is a "
            f"{type(base).__name__}: set training.policy to the policy that the adapter was trained with"
        )
    settings = adapter_settings(folder)
    own = base.copy_sharing_weights().module
    module = with_adapter(own, settings.rank, settings.alpha, 0, folder).eval().requires_grad_(False)
    return LoraPolicy(module, **base.parts())


class LoraPolicy(VisionLanguagePolicy):
    """A vision-language policy of which only the adapter and the pointer head, if any, are trained."""

    has_adapter = True

    base: Path | None = None
    """Folder of the base policy if `save` writes only the adapter; None: `save` writes merged weights too."""

    @property
    def saves_only_trained(self) -> bool:  # type: ignore[override]
        return self.base is not None

    @functools.cached_property
    def base_policy(self) -> BasePolicy:
        """The name and the hash of the base policy, computed at the first use. `base` must not be None."""
        assert self.base is not None
        return BasePolicy(name=str(self.base), sha256=fingerprint(self.base))

    def base_scorer(self) -> Scorer:
        """Return a scorer that uses the same weights with the adapter switched off: the base policy."""
        return self._score_without_adapter

    def _score_without_adapter(
        self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float
    ) -> AnswerScores:
        trained = self.trainable()
        with self.module.disable_adapter():
            for weight in trained:  # peft freezes them, and FSDP keeps what it finds in its first pass
                weight.requires_grad_(True)
            return self.score(steps, screens, temperature)

    def save(
        self, folder: Path, weights: Mapping[str, Tensor] | None = None, dtype: torch.dtype | None = None
    ) -> None:
        """Write the adapter in its own precision, and either the name of its base or the merged weights.

        `dtype` is the precision of the merged weights; None: the precision that they have.
        """
        held = self.module.state_dict() if weights is None else weights
        self._save_adapter(folder, held)
        if self.base is not None:
            write_base(folder, self.base_policy)
            return
        settings = self.module.peft_config[ADAPTER]
        plain = merged(held, settings.lora_alpha / settings.r)
        write_model(self.module.get_base_model(), folder, plain, dtype)
        write_files(self._files, folder)

    def _save_adapter(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write the adapter's weights and configuration in PEFT's format."""
        from peft import get_peft_model_state_dict

        adapter = get_peft_model_state_dict(self.module, dict(weights))
        (folder / ADAPTER_FOLDER).mkdir(exist_ok=True)
        self.module.peft_config[ADAPTER].save_pretrained(folder / ADAPTER_FOLDER)
        plain = {name: tensor.contiguous().cpu() for name, tensor in adapter.items()}
        save_file(plain, folder / ADAPTER_FILE, {"format": "pt"})


@torch.no_grad()
def merged(weights: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Return the weights of the model without an adapter, by their plain names, with the adapter merged in.

    Layers with an adapter become new tensors in main memory; `weights` does not change.

    weights   weights of the model with its adapter, by the names that peft gives them
    scale     factor of the adapter: alpha / rank
    """
    plain: dict[str, Tensor] = {}
    for name, weight in weights.items():
        layer, is_adapted, what = name.partition(".base_layer.")
        if ".lora_" in name or FROZEN_COPY in name:
            continue
        if is_adapted and what == "weight":
            rise, fall = (weights[f"{layer}.lora_{part}.{ADAPTER}.weight"].float() for part in "BA")
            # In main memory: a second copy of these weights would not fit beside them on a small GPU.
            weight = (weight.float() + scale * (rise @ fall)).to(weight.dtype).cpu()
        name = name.removeprefix(WRAPPED).replace(TRAINED_COPY, ".")
        plain[name.replace(".base_layer.", ".")] = weight
    return plain
