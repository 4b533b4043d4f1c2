"""Training a few weights beside a frozen checkpoint (LoRA, Hu et al. 2021, arXiv 2106.09685), by peft.

The adapter sits on the linear layers of the language model; the vision tower stays as it is. A checkpoint
that is saved has the adapter added to the weights, so that engines load it like any other, and the adapter
itself, for training to go on from. The base policy of the KL term is the same model without its adapter.
Where several processes hold a part of the model each, one of them is given all weights to write.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dart.core.errors import UnavailableError
from dart.core.types import Step
from dart.policy.base import Scorer
from dart.policy.protocols import Screen
from dart.policy.sampling import AnswerScores
from dart.policy.vlm import VisionLanguagePolicy, write_files

LAYERS = (
    r".*(?:language_model|text_model)\..*\."
    r"(?:[qkvo]_proj|qkv_proj|gate_proj|up_proj|gate_up_proj|down_proj)"
)
"""The linear layers of a language model, by the names that families give it and them."""

ADAPTER = "default"
ADAPTER_FILE = "adapter/weights.safetensors"
"""In a folder of its own: engines read every file of weights beside the configuration."""

WRAPPED = "base_model.model."
"""Begins the name of every weight of a model with an adapter."""


def with_adapter(module: nn.Module, rank: int, alpha: float, seed: int, resume: Path | None) -> Any:
    """The model with an adapter: a fresh one that changes nothing yet, or that of a checkpoint.

    Raises UnavailableError where peft is not installed.
    """
    try:
        from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    except ModuleNotFoundError as missing:
        raise UnavailableError(
            "training.lora.rank is set and the package peft is not installed: pip install 'dartrl[lora]', "
            "or set training.lora.rank = 0 to train every weight"
        ) from missing
    torch.manual_seed(seed)
    adapted = get_peft_model(module, LoraConfig(r=rank, lora_alpha=alpha, target_modules=LAYERS))
    if resume is not None:
        set_peft_model_state_dict(adapted, load_file(resume / ADAPTER_FILE))
    return adapted


class LoraPolicy(VisionLanguagePolicy):
    """A vision-language policy of which only the adapter is trained."""

    def base(self) -> Scorer:
        """The same weights without the adapter."""
        return _WithoutAdapter(self)

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """The weights with the adapter added to them, and the adapter by itself."""
        from peft import get_peft_model_state_dict

        held = self.module.state_dict() if weights is None else weights
        adapter = get_peft_model_state_dict(self.module, held)
        (folder / ADAPTER_FILE).parent.mkdir(exist_ok=True)
        save_file(
            {name: tensor.contiguous().cpu() for name, tensor in adapter.items()}, folder / ADAPTER_FILE
        )
        settings = self.module.peft_config[ADAPTER]
        plain = merged(held, settings.lora_alpha / settings.r)
        self.module.get_base_model().save_pretrained(folder, state_dict=plain)
        write_files(self._files, folder)


@torch.no_grad()
def merged(weights: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The weights of the plain model, the adapter added where it sits; those in training stay apart.

    weights   of the model with its adapter, by the names peft gives them
    scale     what the adapter counts by: alpha / rank
    """
    plain: dict[str, Tensor] = {}
    for name, weight in weights.items():
        layer, is_adapted, what = name.partition(".base_layer.")
        if ".lora_" in name:
            continue
        if is_adapted and what == "weight":
            rise, fall = (weights[f"{layer}.lora_{part}.{ADAPTER}.weight"].float() for part in "BA")
            weight = (weight.float() + scale * (rise @ fall)).to(weight.dtype)
        plain[name.removeprefix(WRAPPED).replace(".base_layer.", ".")] = weight
    return plain


class _WithoutAdapter:
    """Scores as the base policy does."""

    def __init__(self, policy: LoraPolicy) -> None:
        self._policy = policy

    def score(self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float) -> AnswerScores:
        with self._policy.module.disable_adapter():
            return self._policy.score(steps, screens, temperature)
