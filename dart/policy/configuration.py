"""Configuration of the small policy: the sizes of its parts and the token ids that it needs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from transformers import PreTrainedConfig

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
        "tie_word_embeddings": False,
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


class GuiPolicyConfig(PreTrainedConfig):  # type: ignore[misc]  # transformers is not followed
    """Configuration of the model in `dart.policy.modeling`: sizes of stem, decoder and pointer; token ids."""

    model_type = "gui_policy"

    def __init__(self, coordinates: Coordinates = "bins", **values: Any) -> None:
        """coordinates   how the policy writes points
        values           settings that differ from `DEFAULTS` (bins) or `POINTER_DEFAULTS` (pointer)
        """
        defaults = DEFAULTS if coordinates == "bins" else POINTER_DEFAULTS
        super().__init__(**{**defaults, **values, "coordinates": coordinates})

    @property
    def patches(self) -> int:
        """Number of patches of the pointer head; 0 for a policy that writes bins."""
        return int(self.patch_rows * self.patch_columns) if self.coordinates == "pointer" else 0

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of image tokens: one token covers 16 px in height and 32 px in width."""
        return -(-self.image_height // 16), -(-self.image_width // 32)

    @property
    def image_tokens(self) -> int:
        """Number of placeholders that one screenshot takes in a prompt."""
        rows, columns = self.grid
        return rows * columns
