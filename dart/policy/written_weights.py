"""Writing the weights of a model as the Auto classes and vLLM read them. Imports torch.

Several processes may write one checkpoint together. One of them calls `write_model` with its share of the
weights, the others call `write_share`. When all have written, one of them calls `join_shares`.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

MOST_FILE_BYTES = 4 * 2**30
"""Largest size of a file of weights. Larger weights become several files with an index, so that they can be
hashed and read in parallel."""

INDEX_FILE = "model.safetensors.index.json"
"""Name of the file that says which weight is in which of several files."""

SHARE = "share-"
"""Start of the names of the folders in which shares are written before they are joined."""


def write_model(
    module: Any, folder: Path, weights: Mapping[str, Tensor] | None = None, dtype: torch.dtype | None = None
) -> None:
    """Write configuration and weights of a model into a folder, without settings for `generate`.

    weights   the weights to write, by name; None: the current weights of the module
    dtype     precision in which floating-point weights are written; None: the precision that they have
    """
    held = module.state_dict() if weights is None else dict(weights)
    if dtype is not None:
        held = _converted(held, dtype)
    module.save_pretrained(folder, state_dict=held, max_shard_size=MOST_FILE_BYTES)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if dtype is not None:
        _name_dtype(folder / "config.json", dtype)


def write_share(
    module: Any, folder: Path, number: int, weights: Mapping[str, Tensor], dtype: torch.dtype
) -> None:
    """Write a share of a model's weights, without configuration, into a folder of its own below `folder`.

    number   number of the share, from 1; the weights that `write_model` writes are number 0

    transformers itself writes weights only on rank 0, so this function names them as transformers does. No
    two names may share a tensor.
    """
    from huggingface_hub import split_torch_state_dict_into_shards
    from transformers.core_model_loading import revert_weight_conversion

    ignored = module._keys_to_ignore_on_save or ()
    kept = {name: tensor for name, tensor in weights.items() if name not in ignored}
    named = revert_weight_conversion(module, _converted(kept, dtype))
    share = folder / f"{SHARE}{number:05d}"
    share.mkdir()
    split = split_torch_state_dict_into_shards(named, max_shard_size=MOST_FILE_BYTES)
    for file, names in split.filename_to_tensors.items():
        save_file({name: named[name].contiguous() for name in names}, share / file, {"format": "pt"})


def join_shares(folder: Path) -> None:
    """Join the files of all shares to one series of files with an index; without shares, change nothing."""
    shares = sorted(folder.glob(f"{SHARE}*"))
    if not shares:
        return
    files = [file for place in (folder, *shares) for file in sorted(place.glob("model*.safetensors"))]
    weight_map: dict[str, str] = {}
    total_bytes = 0
    for number, file in enumerate(files, 1):
        name = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        with safe_open(file, framework="pt") as opened:
            weight_map |= dict.fromkeys(opened.keys(), name)
        total_bytes += _tensor_bytes(file)
        file.rename(folder / name)
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    for share in shares:
        shutil.rmtree(share)


def _tensor_bytes(file: Path) -> int:
    """Return the bytes of a safetensors file without its header, whose length is in the first 8 bytes."""
    with file.open("rb") as opened:
        header_bytes = int.from_bytes(opened.read(8), "little")
    return file.stat().st_size - 8 - header_bytes


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
