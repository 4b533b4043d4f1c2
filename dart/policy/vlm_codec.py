"""Prompts and answers of a vision-language checkpoint: its chat template, UI-TARS's words, its own images.

A prompt is the conversation of `dart.policy.context` in the checkpoint's chat template. What others said is
put in as tokens of its own: past answers as they were sampled, the instruction as plain text in which no
special token can hide. A screenshot takes one placeholder in what is recorded; how many tokens it is for the
model is recorded beside it, and what they are follows from its size (`dart.policy.vlm_images`). One path
for every family; screenshots for the image processor of the Qwen-VL family are resized before it. No torch.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from dart.core.actions import ActionParseError, format_action, parse_action
from dart.core.png import refuse_huge
from dart.core.types import GenerateRequest, PromptImage
from dart.policy.context import AnswerTurn, Screenshot, conversation, shown_screenshots
from dart.policy.coordinates import POINTS_OF, CoordinateFrame, ResizeRule, frame_of
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import PixelFrameError, Prompt, Screen
from dart.policy.uitars import (
    NOT_AN_ACTION,
    hint_of,
    moved,
    read_answer,
    thought_of,
    told_before,
    write_answer,
)
from dart.policy.vlm_chat import MARK, ChatTemplate
from dart.policy.vlm_images import ImageEncoder, ImageTokens
from dart.policy.vlm_processor import end_ids, load_config, load_processor, template_of

_PICTURE_TOKEN = re.compile(r"(?:image|video|vision|audio|bo[aiv]|eo[aiv])\w*_token_(?:id|index)")
"""Names that configurations have for the tokens of pictures, videos and sounds."""


class VisionLanguageCodec:
    """The codec of one checkpoint (`dart.policy.protocols.Codec`)."""

    def __init__(self, processor: Any, config: Any, reading: PromptSpec, ends: Sequence[int]) -> None:
        """processor, config   of the checkpoint (`dart.policy.vlm_processor`)
        ends                   tokens that end an answer, as its settings have them

        Raises UnsupportedCheckpoint.
        """
        self.tokenizer = processor.tokenizer
        self.limits = reading.limits
        self.rule = resize_rule(processor.image_processor)
        self.pictures = ImageEncoder(processor, self.rule)
        self.points = reading.points or POINTS_OF.get(config.model_type, "screen")
        self.never_sampled = _picture_ids(config, self.tokenizer, self.pictures)
        self._prompt = told_before(reading.prompt, self.points)
        self._chat = ChatTemplate(self.tokenizer, template_of(processor), self.pictures.placeholder)
        self._end_id = self._end_of_a_turn(ends[0])
        self.ends = tuple(dict.fromkeys((*ends, self._end_id)))
        self.pad_id = int(self.tokenizer.pad_token_id)
        self._begin = self._beginning()
        self._text = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        self._text.encode_special_tokens = True  # "<|im_end|>" in an instruction is text and ends nothing
        self._told = lru_cache(maxsize=256)(self._encode_text)

    # ---- what is seen ----

    def shown(self, request: GenerateRequest) -> tuple[Screenshot, ...]:
        """The screenshots the prompt of this request shows, oldest first; the last is that of now."""
        return shown_screenshots(request, self.limits)

    def screen(self, sha256: str, png: bytes) -> Screen:
        """A screenshot as it is given to the image processor. Raises PixelFrameError."""
        try:
            with Image.open(BytesIO(png)) as image:
                refuse_huge(*image.size)
                frame = frame_of(*image.size, self.rule, self.points)
                screen = Screen(sha256, self._pixels(image.convert("RGB")), frame)
            self.image_tokens(screen)
        except (OSError, SyntaxError, ValueError, ArithmeticError, Image.DecompressionBombError) as error:
            raise PixelFrameError(
                f"screenshot {sha256} ({len(png)} bytes) cannot be seen: {error}"
            ) from error
        return screen

    def _pixels(self, image: Image.Image) -> Any:
        if self.rule is None:
            return np.array(image)
        shown = self.rule.shown(*image.size)
        return np.array(image.resize((shown.shown_width_px, shown.shown_height_px), Image.Resampling.BICUBIC))

    def image_tokens(self, screen: Screen) -> int:
        """How many tokens a screen is for the model."""
        return len(self._laid(screen).token_ids)

    def _laid(self, screen: Screen) -> ImageTokens:
        height_px, width_px, _ = screen.pixels.shape
        return self.pictures.laid(width_px, height_px)

    # ---- prompts ----

    def prompt(self, request: GenerateRequest, screens: Sequence[Screen]) -> Prompt:
        """The prompt with these screens, those of `shown`."""
        turns = conversation(request, self.limits)
        hint = hint_of([moved(parse_action(text), screens[-1].frame.to_shown) for text in request.hint])
        inserts = [self._told(self._prompt + request.instruction + hint)]
        inserts += [self._answer_told(turn.token_ids) for turn in turns if isinstance(turn, AnswerTurn)]
        text = self._chat.rendered(turns)
        token_ids = self._beginning_of(text)
        for index, piece in enumerate(MARK.split(text)):
            token_ids += inserts[int(piece)] if index % 2 else self._written(piece)
        images = tuple(PromptImage(sha256=one.sha256, tokens=self.image_tokens(one)) for one in screens)
        return Prompt(tuple(token_ids), images)

    def laid(
        self, prompt_ids: Sequence[int], images: Sequence[PromptImage], screens: Sequence[Screen]
    ) -> ImageTokens:
        """The prompt as the model takes it: each placeholder as what its screenshot is.

        Raises ValueError where they are not as many as the images, or the screens are not those.
        """
        if not prompt_ids.count(self.pictures.placeholder_id) == len(images) == len(screens):
            raise ValueError(
                f"expected a placeholder and a screenshot for each of {len(images)} images, the prompt has "
                f"{prompt_ids.count(self.pictures.placeholder_id)} and there are {len(screens)}"
            )
        remaining = zip(images, screens, strict=True)
        parts = [
            self._spelled_out(*next(remaining))
            if token == self.pictures.placeholder_id
            else ImageTokens((token,), (0,))
            for token in prompt_ids
        ]
        return ImageTokens(
            tuple(token for part in parts for token in part.token_ids),
            tuple(kind for part in parts for kind in part.kinds),
        )

    def _spelled_out(self, image: PromptImage, screen: Screen) -> ImageTokens:
        laid = self._laid(screen)
        if (screen.sha256, len(laid.token_ids)) != (image.sha256, image.tokens):
            raise ValueError(
                f"expected screenshot {image.sha256} with {image.tokens} tokens, "
                f"got {screen.sha256} with {len(laid.token_ids)}"
            )
        return laid

    def _beginning(self) -> list[int]:
        """What the tokenizer puts before any text."""
        plain = self.tokenizer.encode("a", add_special_tokens=False)
        whole = self.tokenizer.encode("a", add_special_tokens=True)
        return list(whole[: len(whole) - len(plain)]) if whole[-len(plain) :] == plain else []

    def _beginning_of(self, text: str) -> list[int]:
        """Unless the template has written it."""
        is_written = self.tokenizer.bos_token is not None and text.startswith(self.tokenizer.bos_token)
        return [] if is_written else list(self._begin)

    def _written(self, template_text: str) -> list[int]:
        return list(self.tokenizer.encode(template_text, add_special_tokens=False)) if template_text else []

    def _encode_text(self, text: str) -> list[int]:
        return list(self._text.encode(text, add_special_tokens=False).ids)

    def _answer_told(self, token_ids: Sequence[int]) -> list[int]:
        """Without its end, which the template writes."""
        return list(token_ids[:-1] if token_ids and token_ids[-1] in self.ends else token_ids)

    # ---- answers ----

    def say(self, action_text: str, instruction: str, frame: CoordinateFrame) -> list[int]:
        """The tokens of an answer with this action of the screen. Raises ActionParseError."""
        action = moved(parse_action(action_text), frame.to_shown)
        return [*self._encode_text(write_answer(action)), self._end_id]

    @property
    def vocabulary_size(self) -> int:
        """Every token id is less."""
        return len(self.tokenizer)

    def answer_ids(self, text: str, instruction: str) -> list[int]:
        """The tokens of a whole answer as this policy writes it, special tokens such as those of boxes
        included. Raises ActionParseError where one would end the answer or stand for a picture."""
        ids = self._answer_told(self._written(text))
        if forbidden := {*ids} & {*self.ends, *self.never_sampled}:
            names = ", ".join(sorted(self.tokenizer.convert_ids_to_tokens(sorted(forbidden))))
            raise ActionParseError(f"expected no special token inside an answer, found {names}", text)
        return [*ids, self._end_id]

    def lacks_thought(self, token_ids: Sequence[int]) -> bool:
        """Whether nothing is said before the action."""
        text = self.tokenizer.decode(self._answer_told(token_ids), skip_special_tokens=False)
        return not thought_of(str(text))

    def understand(self, token_ids: Sequence[int], instruction: str, frame: CoordinateFrame) -> str:
        """The action of an answer in pixels of the screen; what has none comes out as a text that the strict
        parser refuses."""
        ids = list(token_ids)
        ended = bool(ids) and ids[-1] in self.ends
        text = str(self.tokenizer.decode(ids[:-1] if ended else ids, skip_special_tokens=False))
        if not ended:
            return f"{NOT_AN_ACTION}the answer did not end: {text}"
        try:
            return format_action(moved(read_answer(text), frame.to_screen))
        except ActionParseError:
            return f"{NOT_AN_ACTION}{text}"

    def _end_of_a_turn(self, usual: int) -> int:
        """The token that the template ends an answer with, which need not be the tokenizer's; without one
        of its own: `usual`."""
        written = self._written(self._chat.after_answer.lstrip())
        first = written[0] if written else usual
        is_end = first in self.tokenizer.added_tokens_decoder and first not in self.never_sampled
        return first if is_end else usual


def resize_rule(image_processor: Any) -> ResizeRule | None:
    """The rule of an image processor of the Qwen-VL family; others resize by rules of their own: None."""
    if not type(image_processor).__name__.startswith("Qwen2VLImageProcessor"):
        return None
    size = image_processor.size
    return ResizeRule(
        factor_px=image_processor.patch_size * image_processor.merge_size,
        min_area_px=size["shortest_edge"],
        max_area_px=size["longest_edge"],
    )


def load_vlm_codec(folder: Path, reading: PromptSpec) -> VisionLanguageCodec:
    """The codec of a checkpoint, without its model. Raises UnsupportedCheckpoint, OSError, ValueError."""
    config = load_config(folder)
    processor = load_processor(folder, config)
    ends = end_ids(folder, config, processor.tokenizer)
    return VisionLanguageCodec(processor, config, reading, ends)


def _picture_ids(config: Any, tokenizer: Any, pictures: ImageEncoder) -> tuple[int, ...]:
    """What the configuration names, the placeholder, and what a picture is made of besides plain text."""
    named = {value for name, value in config.to_dict().items() if _PICTURE_TOKEN.fullmatch(name)}
    known = {token for token in named if isinstance(token, int) and 0 <= token < len(tokenizer)}
    special = tokenizer.added_tokens_decoder
    spelled = {token for token in pictures.probe.token_ids if token in special}
    return tuple(sorted({pictures.placeholder_id} | known | spelled))
