"""Configuration of the small policy: the sizes of its parts and the token ids that it needs."""

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
    STEP_COUNTERS,
    X_BINS,
    Y_BINS,
    special_ids,
    special_tokens,
    step_token,
    x_token,
    y_token,
)


class GuiPolicyConfig(PreTrainedConfig):  # type: ignore[misc]  # transformers is not followed
    """A convolutional stem, a small prefix-LM decoder and a pointer into the stem's finest map."""

    model_type = "gui_policy"

    def __init__(
        self,
        vocab_size: int = len(special_tokens()) + 256,
        hidden_size: int = 96,
        intermediate_size: int = 288,
        num_hidden_layers: int = 3,
        num_attention_heads: int = 4,
        stem_channels: tuple[int, ...] = (16, 48, 80, 128),
        pointer_size: int = 32,
        rms_norm_eps: float = 1e-6,
        image_height: int = FRAME_HEIGHT_PX,
        image_width: int = FRAME_WIDTH_PX,
        bin_px: int = BIN_PX,
        x_bins: int = X_BINS,
        y_bins: int = Y_BINS,
        **kwargs: Any,
    ) -> None:
        ids = special_ids()
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.stem_channels = list(stem_channels)
        self.pointer_size = pointer_size
        self.rms_norm_eps = rms_norm_eps
        self.image_height = image_height
        self.image_width = image_width
        self.bin_px = bin_px
        self.x_bins = x_bins
        self.y_bins = y_bins
        self.image_token_id = ids[IMAGE]
        self.answer_token_id = ids[ANSWER]
        self.first_step_token_id = ids[step_token(0)]
        self.step_tokens = STEP_COUNTERS
        self.first_x_token_id = ids[x_token(0)]
        self.first_y_token_id = ids[y_token(0)]
        kwargs.setdefault("pad_token_id", ids[PAD])
        kwargs.setdefault("eos_token_id", ids[EOS])
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of image tokens: one token covers 16 px in height and 32 px in width."""
        return -(-self.image_height // 16), -(-self.image_width // 32)

    @property
    def image_tokens(self) -> int:
        """Number of placeholders that one screenshot takes in a prompt."""
        rows, columns = self.grid
        return rows * columns
