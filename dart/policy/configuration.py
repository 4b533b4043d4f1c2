"""Configuration of the small policy: the sizes of its parts and the token ids that it needs. No torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dart.policy.vocabulary import (
    ANSWER,
    BIN_PX,
    EOS,
    FRAME_HEIGHT_PX,
    FRAME_WIDTH_PX,
    IMAGE,
    PAD,
    PATCH_COLUMNS,
    PATCH_ROWS,
    POINTER,
    STEP_COUNTERS,
    X_BINS,
    Y_BINS,
    Coordinates,
    patch_token,
    special_ids,
    special_tokens,
    step_token,
    x_token,
    y_token,
)

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": len(special_tokens()) + 256,
        "hidden_size": 96,
        "intermediate_size": 288,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "stem_channels": (16, 48, 80, 128),
        "pointer_size": 32,
        "reading_channels": (),
        "rms_norm_eps": 1e-6,
        "image_height": FRAME_HEIGHT_PX,
        "image_width": FRAME_WIDTH_PX,
        "bin_px": BIN_PX,
        "x_bins": X_BINS,
        "y_bins": Y_BINS,
        "image_token_id": special_ids()[IMAGE],
        "answer_token_id": special_ids()[ANSWER],
        "first_step_token_id": special_ids()[step_token(0)],
        "step_tokens": STEP_COUNTERS,
        "first_x_token_id": special_ids()[x_token(0)],
        "first_y_token_id": special_ids()[y_token(0)],
        "pad_token_id": special_ids()[PAD],
        "eos_token_id": special_ids()[EOS],
    }
)

POINTER_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        **DEFAULTS,
        "vocab_size": len(special_tokens("pointer")) + 256,
        "pointer_token_id": special_ids("pointer")[POINTER],
        "first_patch_token_id": special_ids("pointer")[patch_token(0)],
        "patch_rows": PATCH_ROWS,
        "patch_columns": PATCH_COLUMNS,
    }
)
"""The defaults of a policy with the pointer head. Such a policy does not use the keys of bins."""


CONFIG_FILE = "config.json"

SMALL_POLICY = "gui_policy"
"""The model type in the configuration of a small policy, which tells it from vision-language checkpoints."""


def is_small_policy(folder: Path) -> bool:
    """Return whether a folder holds a small policy. False if its configuration cannot be read."""
    try:
        described = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(described, dict) and described.get("model_type") == SMALL_POLICY


class GuiPolicyConfig:
    """Configuration of the model in `dart.policy.modeling`: sizes of stem, decoder and pointer; token ids."""

    coordinates: Coordinates
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    stem_channels: tuple[int, int, int, int]
    pointer_size: int
    reading_channels: tuple[int, ...]
    """Channels of the layers that read (`dart.policy.modeling.ReadingLayers`): of letters, of words, and of
    the embedding of a text. Empty: the policy has no such layers, as one with the pointer head."""
    rms_norm_eps: float
    image_height: int
    image_width: int
    bin_px: int
    x_bins: int
    y_bins: int
    image_token_id: int
    answer_token_id: int
    first_step_token_id: int
    step_tokens: int
    first_x_token_id: int
    first_y_token_id: int
    pad_token_id: int
    eos_token_id: int
    pointer_token_id: int
    """This and the next three: only of a policy with the pointer head."""
    first_patch_token_id: int
    patch_rows: int
    patch_columns: int

    def __init__(self, coordinates: Coordinates = "bins", **values: Any) -> None:
        """coordinates   how the policy writes points
        values           settings that differ from `DEFAULTS` (bins) or `POINTER_DEFAULTS` (pointer); others
                         are left out
        """
        defaults = DEFAULTS if coordinates == "bins" else POINTER_DEFAULTS
        known = {name: values.get(name, default) for name, default in defaults.items()}
        for name in ("stem_channels", "reading_channels"):
            known[name] = tuple(known[name])  # a list in a file
        vars(self).update(known, coordinates=coordinates)

    @classmethod
    def read(cls, folder: Path) -> "GuiPolicyConfig":
        """Read the configuration of a checkpoint. Raises OSError or ValueError if the file is damaged."""
        values = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"{CONFIG_FILE}: {error}") from error

    def write(self, folder: Path, dtype: str) -> None:
        """Write the configuration of a checkpoint, with the precision of its weights."""
        values = {"model_type": SMALL_POLICY, "dtype": dtype, **vars(self)}
        (folder / CONFIG_FILE).write_text(
            json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8"
        )

    @property
    def patches(self) -> int:
        """Number of patches of the pointer head; 0 for a policy that writes bins."""
        return self.patch_rows * self.patch_columns if self.coordinates == "pointer" else 0

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of image tokens: one token covers 16 px in height and 32 px in width."""
        return -(-self.image_height // 16), -(-self.image_width // 32)

    @property
    def image_tokens(self) -> int:
        """Number of placeholders that one screenshot takes in a prompt."""
        rows, columns = self.grid
        return rows * columns
