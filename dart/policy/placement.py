"""Where and in which precision the model of a policy is loaded. Imports torch."""

from dataclasses import dataclass

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""The torch dtype of each precision that the run's configuration can name."""


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


def device_of(wanted: str) -> torch.device:
    """Return the torch device with this name; `auto` is the GPU if there is one, else the CPU."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(wanted)
