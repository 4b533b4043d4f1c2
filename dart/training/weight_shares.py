"""Which of several ranks writes which weights of a checkpoint. Pure."""

import re
from collections.abc import Collection, Mapping

_LAYER = re.compile(r"^.*?\.\d+(?=\.)")
"""Start of a weight's name up to the number of its layer."""


def writers_of(sizes: Mapping[str, int], ranks: int, of_first: Collection[str] = ()) -> dict[str, int]:
    """Return the rank that writes each weight, such that all ranks write about the same number of bytes.

    sizes      bytes of each weight, by name
    of_first   weights that rank 0 has to write

    Every rank computes the same result from the same sizes. All weights of a layer have the same writer,
    because transformers joins some of them into one tensor in a few families.
    """
    writers = dict.fromkeys(of_first, 0)
    written_bytes = [sum(sizes[name] for name in writers), *[0] * (ranks - 1)]
    layers: dict[str, list[str]] = {}
    for name in sizes:
        if name not in writers:
            found = _LAYER.match(name)
            layers.setdefault(found[0] if found else name, []).append(name)
    layer_bytes = {layer: sum(sizes[name] for name in names) for layer, names in layers.items()}
    for layer in sorted(layers, key=lambda one: (-layer_bytes[one], one)):
        rank = written_bytes.index(min(written_bytes))
        written_bytes[rank] += layer_bytes[layer]
        writers |= dict.fromkeys(layers[layer], rank)
    return writers
