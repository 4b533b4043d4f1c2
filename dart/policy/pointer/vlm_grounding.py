"""Grounding with a vision-language checkpoint: GUI-Actor's head on it, or its own attention (GUI-AIMA).

The prompt is a system message, the screenshot and the instruction in the checkpoint's chat template, and the
beginning of an answer. Its last token points (GUI-Actor's *placeholder* mode: one pass, no decoding). The
instruction is inserted as plain text, in which special tokens have no effect. Imports torch.

Shapes: B samples, T tokens, d width of the language model, m patches.
"""

import hashlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from dart.policy.pointer.attention import merged_attention, sink_tokens
from dart.policy.pointer.head import NEVER
from dart.policy.pointer.model import INSTRUCTION, MapModel, WarmUp
from dart.policy.pointer.patches import PatchGrid
from dart.policy.pointer.settings import HeadSettings, write_settings
from dart.policy.protocols import Pixels, Screen, UnsupportedCheckpoint
from dart.policy.vlm import VisionLanguagePolicy
from dart.policy.vlm_codec import VisionLanguageCodec
from dart.policy.vlm_images import ImageTokens
from dart.policy.vlm_pointer import head_of, newest_patches, watching


class ImagePrompts:
    """Makes prompts of one checkpoint: a screenshot, a question about it, and the beginning of an answer."""

    def __init__(
        self,
        codec: VisionLanguageCodec,
        folder: Path,
        *,
        question: str = INSTRUCTION,
        system: str = "",
        answer: str = "",
        last: int | None = None,
    ) -> None:
        """folder   the checkpoint's folder, which an error names
        question   text of the user, with INSTRUCTION in place of the instruction
        system     system message; empty: none
        answer     beginning of the answer, which replaces the line break at the end of the template's header
                   of an answer; empty: none
        last       id of a token that ends the prompt; None: none

        Raises UnsupportedCheckpoint for a chat template that does not write image and instruction once each.
        """
        self._codec = codec
        self.text = self._rendered(question, system, answer)
        """The whole prompt with INSTRUCTION in place of the instruction."""
        if self.text.count(INSTRUCTION) != 1 or self.text.count(codec.image_encoder.placeholder) != 1:
            raise UnsupportedCheckpoint(
                f"the chat template of {folder} must write image and instruction once each, it wrote: "
                f"{self.text!r}; use another checkpoint"
            )
        before, after = self.text.split(INSTRUCTION)
        self._before, self._after = (
            codec.encode_with_special_tokens(before),
            codec.encode_with_special_tokens(after),
        )
        if last is not None:
            self._after.append(last)
            self.text += str(codec.tokenizer.convert_ids_to_tokens(last))

    def _rendered(self, question: str, system: str, answer: str) -> str:
        user = [{"type": "image"}, {"type": "text", "text": question}]
        messages: list[dict[str, Any]] = [{"role": "user", "content": user}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        text = self._codec.chat.apply(messages)
        return text.removesuffix("\n") + answer if answer else text

    def screen(self, image: Pixels) -> Screen:
        """Return a screenshot, uint8 [H, W, 3], resized for the checkpoint. Raises PixelFrameError."""
        png = BytesIO()
        Image.fromarray(image).save(png, "PNG", compress_level=0)
        content = png.getvalue()
        return self._codec.screen(hashlib.sha256(content).hexdigest(), content)

    def rows(self, screens: Sequence[Screen], instructions: Sequence[str]) -> list[ImageTokens]:
        """Return the prompts of a batch, with each image placeholder replaced by the image's tokens."""
        return [
            self._codec.expand_images(
                [*self._before, *self._codec.encode_text(instruction), *self._after], [screen]
            )
            for screen, instruction in zip(screens, instructions, strict=True)
        ]

    def instruction_span(self, instruction: str) -> tuple[int, int]:
        """Return the range [start, stop) of the instruction's tokens, as negative positions from the end."""
        last = -len(self._after)
        return last - len(self._codec.encode_text(instruction)), last


class VlmGrounding(MapModel):
    """Base class of both heads' models. The checkpoint must turn an image into one grid of image tokens."""

    def __init__(self, policy: VisionLanguagePolicy, folder: Path, settings: HeadSettings) -> None:
        """Raises UnsupportedCheckpoint for images without one grid of tokens, or an unsuitable template."""
        if policy.codec.rule is None:
            raise UnsupportedCheckpoint(
                f"the image processor of {folder} does not make one grid of patches: it cuts images into "
                "tiles or gives all images one size; grounding needs a checkpoint of the Qwen-VL family"
            )
        self.policy = policy
        self.module = policy.module
        self.settings = settings
        pointer = policy.codec.pointer if settings.head == "pointer" else None
        self.prompts = ImagePrompts(
            policy.codec,
            folder,
            system=settings.system,
            answer=settings.answer,
            last=None if pointer is None else pointer.token_id,
        )
        self.prompt = self.prompts.text

    def shown_size(self, image: Pixels) -> tuple[int, int]:
        height, width, _ = self.prompts.screen(image).pixels.shape
        return width, height

    def _grid(self, screen: Screen) -> PatchGrid:
        assert self.policy.codec.rule is not None  # checked when the model is made
        side_px = self.policy.codec.rule.factor_px
        height_px, width_px, _ = screen.pixels.shape
        return PatchGrid(height_px // side_px, width_px // side_px)

    def _patch_positions(self, rows: Sequence[ImageTokens], screens: Sequence[Screen]) -> list[list[int]]:
        """Return the positions of each row's image tokens in a batch that is padded on the left."""
        width = max(len(row.token_ids) for row in rows)
        return self.policy.newest_positions(rows, [[screen] for screen in screens], width)

    def save(self, folder: Path) -> None:
        self.policy.save(folder)
        self.policy.codec.tokenizer.save_pretrained(folder)
        write_settings(folder, self.settings)


class VlmPointer(VlmGrounding):
    """A checkpoint with GUI-Actor's head; the last token of the prompt is the pointer token."""

    def logits(self, images: Sequence[Pixels], instructions: Sequence[str]) -> tuple[Tensor, list[PatchGrid]]:
        screens = [self.prompts.screen(image) for image in images]
        rows = self.prompts.rows(screens, instructions)
        with watching(self.module) as seen:
            self.policy.forward(rows, screens)
        assert seen.inputs is not None
        assert seen.hidden is not None
        patches, mask = newest_patches(seen.inputs, self._patch_positions(rows, screens))
        logits = head_of(self.module)(patches, seen.hidden[:, -1:], mask)[:, 0]
        return logits, [self._grid(screen) for screen in screens]

    def warm_up(self) -> WarmUp:
        """Return the head, and the row of the pointer token in the input embeddings."""
        assert self.policy.codec.pointer is not None  # checked when the model is loaded
        rows = (self.module.get_input_embeddings().weight, (self.policy.codec.pointer.token_id,))
        return WarmUp(tuple(head_of(self.module).parameters()), (rows,))


class VlmAttention(VlmGrounding):
    """A checkpoint with GUI-AIMA's attention; the last token of the prompt is the anchor."""

    def __init__(self, policy: VisionLanguagePolicy, folder: Path, settings: HeadSettings) -> None:
        super().__init__(policy, folder, settings)
        self.module.set_attn_implementation("eager")  # the others do not return attention

    def logits(self, images: Sequence[Pixels], instructions: Sequence[str]) -> tuple[Tensor, list[PatchGrid]]:
        screens = [self.prompts.screen(image) for image in images]
        found = [
            self._merged(screen, instruction)
            for screen, instruction in zip(screens, instructions, strict=True)
        ]
        return torch.nn.utils.rnn.pad_sequence(found, True, NEVER), [self._grid(one) for one in screens]

    def _merged(self, screen: Screen, instruction: str) -> Tensor:
        """Return the log of the merged attention [m] for one sample; a batch would need too much memory."""
        rows = self.prompts.rows([screen], [instruction])
        out = self.policy.forward(rows, [screen], output_attentions=True, output_hidden_states=True)
        length = len(rows[0].token_ids)
        patches = torch.tensor(self._patch_positions(rows, [screen])[0], device=out.logits.device)
        first, last = self.prompts.instruction_span(instruction)
        queries = torch.arange(length + first, length + last, device=out.logits.device)
        sinks = sink_tokens([layer[0] for layer in out.hidden_states], queries, patches)
        return merged_attention([layer[0] for layer in out.attentions], length - 1, patches, sinks)

    def warm_up(self) -> WarmUp:
        return WarmUp(())
