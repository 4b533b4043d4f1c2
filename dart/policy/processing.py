"""The small policy's processor: turns prompt texts and screenshots into the input tensors of the model."""

from typing import Any, ClassVar

from transformers import BatchFeature, ProcessorMixin
from transformers.image_processing_backends import PilBackend

from dart.policy.vocabulary import FRAME_HEIGHT_PX, FRAME_WIDTH_PX, IMAGE


class GuiPolicyImageProcessor(PilBackend):  # type: ignore[misc]  # transformers is not followed
    """Passes screenshots on as uint8, channels first, without resizing; the model scales the values."""

    model_input_names: ClassVar = ["pixel_values"]
    do_resize = False
    do_rescale = False
    do_normalize = False
    do_convert_rgb = True


class GuiPolicyProcessor(ProcessorMixin):  # type: ignore[misc]  # transformers is not followed
    """Takes prompts with one `<image>` and one screenshot each; replaces `<image>` by image tokens."""

    def __init__(
        self, image_processor: Any = None, tokenizer: Any = None, image_tokens: int = 70, **kwargs: Any
    ) -> None:
        self.image_tokens = image_tokens
        super().__init__(image_processor, tokenizer, **kwargs)

    def __call__(
        self,
        text: list[str],
        images: list[Any],
        padding: bool = True,
        return_tensors: str = "pt",
        **kwargs: Any,
    ) -> BatchFeature:
        """Return `input_ids` and `attention_mask` [B, T], padded on the left, and `pixel_values` uint8
        [B, 3, H, W]."""
        if len(text) != len(images):
            raise ValueError(f"expected one screenshot per prompt, got {len(images)} for {len(text)} prompts")
        pixels = self.image_processor(images, return_tensors=return_tensors)
        height, width = pixels["pixel_values"].shape[-2:]
        if (height, width) != (FRAME_HEIGHT_PX, FRAME_WIDTH_PX):
            raise ValueError(
                f"expected screenshots of {FRAME_WIDTH_PX}x{FRAME_HEIGHT_PX} pixels, got {width}x{height}: "
                "resize them as dart.policy.codec.fitted does"
            )
        expanded = [prompt.replace(IMAGE, IMAGE * self.image_tokens, 1) for prompt in text]
        tokens = self.tokenizer(
            expanded, padding=padding, return_tensors=return_tensors, return_token_type_ids=False, **kwargs
        )
        return BatchFeature(data={**tokens, **pixels})
