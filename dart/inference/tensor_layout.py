"""Reads names and shapes of a checkpoint's tensors from the headers of its safetensors files.

No model library is needed. New weights are loaded over those of a running engine. A checkpoint with other
tensors would leave the engine with weights of two versions, so it is refused before any weight is changed.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from dart.core.errors import DiskError

Layout = Mapping[str, tuple[int, ...]]
"""Shapes of tensors by name."""

MOST_HEADER_BYTES = 100_000_000
"""Largest number of bytes of a header that the safetensors format allows."""

INDEX = "model.safetensors.index.json"
"""Name of the file that says, in a checkpoint with several weight files, which tensor is in which file."""

HEAD = "lm_head.weight"

MOST_NAMED = 3
"""Largest number of differences that an error message names."""


class OtherLayout(DiskError):
    """A checkpoint cannot be read as safetensors, or its tensors are not those of the served policy."""


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Return the safetensors files of a checkpoint, sorted by name.

    Raises OtherLayout if the checkpoint has no such file, or lacks a file that its index names.
    """
    files = _named_files(folder) if (folder / INDEX).exists() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise OtherLayout(f"checkpoint {folder} holds no *.safetensors file; save its weights as safetensors")
    return tuple(files)


def _named_files(folder: Path) -> list[Path]:
    try:
        names: set[str] = set(json.loads((folder / INDEX).read_text())["weight_map"].values())
    except (ValueError, KeyError, TypeError) as broken:
        raise OtherLayout(
            f"{folder / INDEX} is no index of a checkpoint: {broken!r}; save the checkpoint again"
        ) from broken
    missing = [name for name in sorted(names) if not (folder / name).is_file()]
    if missing:
        raise OtherLayout(
            f"checkpoint {folder} lacks {', '.join(missing)}, which its {INDEX} names; copy it completely"
        )
    return [folder / name for name in sorted(names)]


def layout_of(folder: Path) -> Layout:
    """Return the shapes of a checkpoint's tensors by name.

    An output head that is tied to the embedding is left out, because some programs write it and transformers
    does not. Raises OtherLayout if a file is not a safetensors file.
    """
    found: dict[str, tuple[int, ...]] = {}
    for file in weight_files(folder):
        found |= _shapes_in(file)
    if _is_tied(folder):
        found.pop(HEAD, None)
    return found


def _is_tied(folder: Path) -> bool:
    """Whether a checkpoint's configuration ties the head. transformers before 5 says so in `text_config`."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except FileNotFoundError:
        return False
    text = config.get("text_config")
    parts = [config, text] if isinstance(text, dict) else [config]
    return any(part.get("tie_word_embeddings") for part in parts)


def refuse_other_layout(served: Layout, folder: Path) -> None:
    """Raise OtherLayout, with the first differences, unless a checkpoint has exactly these tensors."""
    differences = [*_differences(served, layout_of(folder))]
    if differences:
        named = "; ".join(differences[:MOST_NAMED])
        more = f" and {len(differences) - MOST_NAMED} more" if len(differences) > MOST_NAMED else ""
        raise OtherLayout(
            f"checkpoint {folder} is of another architecture than the policy that is served: {named}{more}; "
            "an engine loads versions of one policy only: start a new run for another policy"
        )


def _differences(served: Layout, offered: Layout) -> list[str]:
    missing = [f"{name} is missing" for name in sorted(served.keys() - offered.keys())]
    unknown = [
        f"{name} is not in the policy that is served" for name in sorted(offered.keys() - served.keys())
    ]
    reshaped = [
        f"{name} has shape {list(offered[name])}, expected {list(served[name])}"
        for name in sorted(served.keys() & offered.keys())
        if served[name] != offered[name]
    ]
    return missing + unknown + reshaped


def _shapes_in(file: Path) -> Layout:
    """Read the header of a safetensors file: its length in 8 bytes, little endian, then JSON.

    `safe_open` of safetensors calls a file missing that cannot be opened for want of file handles or rights.
    Raises OtherLayout if the file has no valid header.
    """
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > MOST_HEADER_BYTES:
                raise ValueError(f"expected a header of at most {MOST_HEADER_BYTES} bytes, got {length}")
            header = json.loads(opened.read(length))
        return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, struct.error) as broken:
        raise OtherLayout(f"{file} is no safetensors file: {broken}; save it as safetensors") from broken
    except (TypeError, AttributeError, KeyError) as broken:
        why = "its header is no table of tensors"
        raise OtherLayout(f"{file} is no safetensors file: {why}; save it as safetensors") from broken
