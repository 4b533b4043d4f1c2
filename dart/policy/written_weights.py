"""Writing the weights of a model as the Auto classes and vLLM read them. Imports torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MOST_FILE_BYTES = 4 * 2**30
"""Larger weights are written as several files with an index: they are hashed and read side by side."""


def write_model(
    module: Any, folder: Path, weights: Mapping[str, Tensor] | None = None, dtype: torch.dtype | None = None
) -> None:
    """Write configuration and weights of a model.

    weights   the weights, where the module does not hold them; None: those of the module
    dtype     precision in which they are written; None: their own
    """
    held = module.state_dict() if weights is None else dict(weights)
    if dtype is not None:
        held = _converted(held, dtype)
    module.save_pretrained(folder, state_dict=held, max_shard_size=MOST_FILE_BYTES)
    if dtype is not None:
        _name_dtype(folder / "config.json", dtype)


def _converted(weights: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Convert weights; names that share a tensor share it afterwards, so that it is written once."""
    made: dict[int, Tensor] = {}
    return {
        name: made.setdefault(tensor.data_ptr(), tensor.to(dtype)) if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }


def _name_dtype(file: Path, dtype: torch.dtype) -> None:
    """Name the precision of the written weights in the configuration; the model named its own."""
    config = json.loads(file.read_text())
    config["dtype"] = str(dtype).removeprefix("torch.")
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
