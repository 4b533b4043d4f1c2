"""Writing the weights of a model as the Auto classes and vLLM read them. Imports torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MOST_FILE_BYTES = 4 * 2**30
"""Largest size of a file of weights. Larger weights become several files with an index, so that they can be
hashed and read in parallel."""


def write_model(
    module: Any, folder: Path, weights: Mapping[str, Tensor] | None = None, dtype: torch.dtype | None = None
) -> None:
    """Write configuration and weights of a model into a folder.

    weights   the weights to write, by name; None: the current weights of the module
    dtype     precision in which floating-point weights are written; None: the precision that they have
    """
    held = module.state_dict() if weights is None else dict(weights)
    if dtype is not None:
        held = _converted(held, dtype)
    module.save_pretrained(folder, state_dict=held, max_shard_size=MOST_FILE_BYTES)
    if dtype is not None:
        _name_dtype(folder / "config.json", dtype)


def _converted(weights: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Convert floating-point weights. Names that share a tensor still share it, so it is written once."""
    made: dict[int, Tensor] = {}
    return {
        name: made.setdefault(tensor.data_ptr(), tensor.to(dtype)) if tensor.is_floating_point() else tensor
        for name, tensor in weights.items()
    }


def _name_dtype(file: Path, dtype: torch.dtype) -> None:
    """Set the precision in a written config.json to that of the written weights instead of the model's."""
    config = json.loads(file.read_text())
    config["dtype"] = str(dtype).removeprefix("torch.")
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
