"""What tensors a checkpoint has, read from the headers of its safetensors files. No library that runs models.

Weights are loaded over those of a running engine. A checkpoint of another layout would leave it with half of
each, so it is refused before a byte is changed.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from dart.core.errors import DiskError

Layout = Mapping[str, tuple[int, ...]]
"""Shapes by tensor name."""

MOST_HEADER_BYTES = 100_000_000
"""The format's own limit; more is no header."""

INDEX = "model.safetensors.index.json"
"""Of a checkpoint in several files: which tensor is in which."""

HEAD = "lm_head.weight"

MOST_NAMED = 3
"""Differences an error names."""


class OtherLayout(DiskError):
    """A checkpoint is not of the architecture that is served."""


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a checkpoint, by name. Raises OtherLayout where there is none, or not all."""
    files = _named_files(folder) if (folder / INDEX).exists() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise OtherLayout(f"checkpoint {folder} holds no *.safetensors file: it cannot be served")
    return tuple(files)


def _named_files(folder: Path) -> list[Path]:
    try:
        names: set[str] = set(json.loads((folder / INDEX).read_text())["weight_map"].values())
    except (ValueError, KeyError, TypeError) as broken:
        raise OtherLayout(f"{folder / INDEX} is no index of a checkpoint: {broken!r}") from broken
    missing = [name for name in sorted(names) if not (folder / name).is_file()]
    if missing:
        raise OtherLayout(f"checkpoint {folder} lacks {', '.join(missing)}, which its {INDEX} names")
    return [folder / name for name in sorted(names)]


def layout_of(folder: Path) -> Layout:
    """Every tensor of a checkpoint with its shape. Raises OtherLayout when a file is no safetensors file.

    An output head that is tied to the embedding is none of its own: some write it, transformers does not.
    """
    found: dict[str, tuple[int, ...]] = {}
    for file in weight_files(folder):
        for name, entry in _header_of(file).items():
            if name != "__metadata__":
                found[name] = tuple(entry["shape"])
    if _is_tied(folder):
        found.pop(HEAD, None)
    return found


def _is_tied(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text())
    except FileNotFoundError:
        return False
    return bool(config.get("tie_word_embeddings"))


def refuse_other_layout(served: Layout, folder: Path) -> None:
    """Raises OtherLayout, naming the first differences, unless the checkpoint has the tensors of `served`."""
    differences = [*_differences(served, layout_of(folder))]
    if differences:
        named = "; ".join(differences[:MOST_NAMED])
        more = f" and {len(differences) - MOST_NAMED} more" if len(differences) > MOST_NAMED else ""
        raise OtherLayout(
            f"checkpoint {folder} is of another architecture than the one that is served: {named}{more}; "
            "an engine takes over versions of one policy only: start a new run for another one"
        )


def _differences(served: Layout, offered: Layout) -> list[str]:
    missing = [f"{name} is missing" for name in sorted(served.keys() - offered.keys())]
    unknown = [f"{name} is not known" for name in sorted(offered.keys() - served.keys())]
    reshaped = [
        f"{name} is {list(offered[name])}, expected {list(served[name])}"
        for name in sorted(served.keys() & offered.keys())
        if served[name] != offered[name]
    ]
    return missing + unknown + reshaped


def _header_of(file: Path) -> dict[str, dict[str, list[int]]]:
    """The format: eight bytes with the length of the header, little endian, and the header as JSON."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > MOST_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            header: dict[str, dict[str, list[int]]] = json.loads(opened.read(length))
    except (ValueError, struct.error) as broken:
        raise OtherLayout(f"{file} is no safetensors file: {broken}") from broken
    return header
