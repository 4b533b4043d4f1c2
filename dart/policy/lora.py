"""Training an adapter beside a frozen checkpoint (LoRA, Hu et al. 2021, arXiv 2106.09685), through peft.

The adapter sits on the linear layers of the language model; the vision tower stays frozen. A pointer head
is small and new, so all of its weights are trained. A saved checkpoint
holds the weights with the adapter merged into them, so that engines load it like any other, and the adapter
itself, so that training can resume. The base policy of the KL term is the same model without its adapter.
When several processes hold parts of the model, one of them gets all weights to write.
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
from dart.policy.pointer.head import HEAD_NAME
from dart.policy.protocols import Screen
from dart.policy.sampling import AnswerScores
from dart.policy.vlm import VisionLanguagePolicy, write_files

LAYERS = (
    r".*(?:language_model|text_model)\..*\."
    r"(?:[qkvo]_proj|qkv_proj|gate_proj|up_proj|gate_up_proj|down_proj)"
)
"""Regular expression for the names of the linear layers of a language model, across model families."""

ADAPTER = "default"
ADAPTER_FILE = "adapter/weights.safetensors"
"""Path of the adapter in a checkpoint. It is in a folder of its own, because engines read every file of
weights beside the configuration."""

FROZEN_COPY, TRAINED_COPY = ".original_module.", f".modules_to_save.{ADAPTER}."
"""Parts of the names of a pointer head that is trained beside the adapter: its weights as they were, and as
they are."""

WRAPPED = "base_model.model."
"""Prefix that peft gives the name of every weight of a model with an adapter."""


def with_adapter(module: nn.Module, rank: int, alpha: float, seed: int, resume: Path | None) -> Any:
    """Add the adapter of the checkpoint `resume` to a model, or a new one, which changes no output yet.

    Raises UnavailableError when peft is not installed.
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
    if resume is not None:
        set_peft_model_state_dict(adapted, load_file(resume / ADAPTER_FILE))
    return adapted


class LoraPolicy(VisionLanguagePolicy):
    """A vision-language policy whose adapter alone is trained, and its pointer head if it has one."""

    def base_scorer(self) -> Scorer:
        """Return the scorer of the same weights without the adapter."""
        return self._score_without_adapter

    def _score_without_adapter(
        self, steps: Sequence[Step], screens: Mapping[str, Screen], temperature: float
    ) -> AnswerScores:
        with self.module.disable_adapter():
            return self.score(steps, screens, temperature)

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Write the weights with the adapter merged into them, and the adapter separately."""
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
    """Return the weights of the plain model with the adapter merged into copies of them.

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
