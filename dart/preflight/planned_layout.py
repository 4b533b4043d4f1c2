"""Names and shapes of the weights that the config.json of a checkpoint describes, without its weights."""

import json
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dart.core.errors import UnavailableError
from dart.core.module_command import module_command
from dart.inference.tensor_layout import Layout

SHAPES_DEADLINE_S = 120.0


def planned_layout(folder: Path) -> Layout:
    """Return names and shapes of the weights that a config.json describes, without needing the weights.

    For Qwen2.5-VL (also UI-TARS-1.5) they are computed here. For other models, a process of its own has
    transformers make the model without memory for its weights, which takes many seconds.

    raises   OSError, ValueError or UnavailableError
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") == "qwen2_5_vl":
        try:
            text, _ = parts_of(config, folder)
            return qwen_layout(text, config["vision_config"])
        except (KeyError, TypeError) as missing:
            raise ValueError(f"{folder}/config.json has no {missing}") from missing
    return _made_layout(folder)


def parts_of(config: Mapping[str, Any], folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the settings of the language model and of the vision tower in a config.json.

    Raises ValueError if the part of one of them is not an object.
    """
    text, vision = config.get("text_config", {}), config.get("vision_config", {})
    for name, part in (("text_config", text), ("vision_config", vision)):
        if not isinstance(part, Mapping):
            raise ValueError(
                f"expected an object under {name} in {folder}/config.json, got {json.dumps(part)[:80]}; "
                "copy the checkpoint anew"
            )
    return {**config, **text}, vision


def qwen_layout(text: Mapping[str, Any], vision: Mapping[str, Any]) -> Layout:
    """Return names and shapes of the weights of a Qwen2.5-VL checkpoint.

    text, vision   the settings of the language model and of the vision tower in config.json
    raises         KeyError if a setting is missing
    """
    hidden, middle = text["hidden_size"], text["intermediate_size"]
    keys = text["num_key_value_heads"] * (hidden // text["num_attention_heads"])
    found: dict[str, tuple[int, ...]] = {"embed": (text["vocab_size"], hidden), "norm": (hidden,)}
    if not text.get("tie_word_embeddings"):
        found["head"] = (text["vocab_size"], hidden)
    for index in range(text["num_hidden_layers"]):
        layer = f"layers.{index}"
        for name, rows in (("q", hidden), ("k", keys), ("v", keys)):
            found[f"{layer}.{name}_proj.weight"], found[f"{layer}.{name}_proj.bias"] = (rows, hidden), (rows,)
        found[f"{layer}.o_proj.weight"] = (hidden, hidden)
        for name, shape in (("gate", (middle, hidden)), ("up", (middle, hidden)), ("down", (hidden, middle))):
            found[f"{layer}.{name}_proj.weight"] = shape
        found |= {f"{layer}.norm1": (hidden,), f"{layer}.norm2": (hidden,)}
    width, inner = vision["hidden_size"], vision["intermediate_size"]
    patch = vision.get("in_chans", 3) * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    found["vision.patches"] = (width, patch)
    for index in range(vision["depth"]):
        block = f"vision.blocks.{index}"
        linear = {"qkv": (3 * width, width), "proj": (width, width), "down": (width, inner)}
        for name, shape in {**linear, "gate": (inner, width), "up": (inner, width)}.items():
            found[f"{block}.{name}"], found[f"{block}.{name}.bias"] = shape, shape[:1]
        found |= {f"{block}.norm1": (width,), f"{block}.norm2": (width,)}
    merged, out = vision["spatial_merge_size"] ** 2 * width, vision["out_hidden_size"]
    found |= {"vision.merger.norm": (width,), "vision.merger.0": (merged, merged)}
    found |= {"vision.merger.0.bias": (merged,), "vision.merger.2": (out, merged)}
    return found | {"vision.merger.2.bias": (out,)}


@cache
def _made_layout(folder: Path) -> Layout:
    command = [*module_command("dart.policy.empty_model"), str(folder)]
    try:
        made = subprocess.run(
            command, capture_output=True, text=True, timeout=SHAPES_DEADLINE_S, check=True
        ).stdout
    except subprocess.TimeoutExpired as late:
        raise UnavailableError(
            f"counting the weights of the policy took longer than {SHAPES_DEADLINE_S:g} s; try again when "
            "the machine is less busy"
        ) from late
    except subprocess.CalledProcessError as failed:
        reason = str(failed.stderr).strip().rpartition("\n")[2]
        raise UnavailableError(f"the weights of {folder} cannot be counted: {reason}") from failed
    return {name: tuple(shape) for name, shape in json.loads(made).items()}
