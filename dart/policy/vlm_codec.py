"""Prompts and answers of a vision-language checkpoint: its chat template, UI-TARS's words, its own images.

A prompt is the conversation of `dart.policy.context` in the checkpoint's chat template. What others said is
put in as tokens of its own: past answers as they were sampled, the instruction as plain text in which no
special token can hide. A screenshot takes one placeholder in what is recorded; how many image tokens it is
for the model is recorded beside it and follows from its size. No torch here.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from dart.environments.actions import ActionParseError, format_action, parse_action
from dart.errors import UnavailableError
from dart.policy.context import AnswerTurn, ContextLimits, Screenshot, Turn, conversation, shown_screenshots
from dart.policy.frames import Frame, FrameError, ResizeRule
from dart.policy.interface import PixelFrameError, Prompt, Screen
from dart.policy.uitars import NOT_AN_ACTION, PROMPT, moved, read_answer, write_answer
from dart.types import GenerateRequest, PromptImage

FAMILIES = ("qwen2_vl", "qwen2_5_vl")
"""Model types whose checkpoints can be the policy; UI-TARS-1.5-7B is of the second."""

_MARK = re.compile("\ue000([0-9]+)\ue001")


class UnsupportedCheckpoint(UnavailableError):
    """A checkpoint of a kind that cannot be the policy here."""


class VisionLanguageCodec:
    """The codec of one checkpoint (`dart.policy.interface.Codec`)."""

    def __init__(
        self,
        tokenizer: Any,
        config: Any,
        image_processor: Any,
        limits: ContextLimits,
        prompt: str = PROMPT,
    ) -> None:
        """tokenizer, config, image_processor: of the checkpoint, as transformers' Auto classes load them."""
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.limits = limits
        self.rule = resize_rule(image_processor)
        self.image_id = int(config.image_token_id)
        self.eos_id = int(tokenizer.eos_token_id)
        self.pad_id = int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.eos_id)
        self.never_sampled = _picture_ids(config)
        self._prompt = prompt
        self._text = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._text.encode_special_tokens = True  # "<|im_end|>" in an instruction is text and ends nothing
        self._told = lru_cache(maxsize=256)(self._encode_text)

    # ---- what is seen ----

    def shown(self, request: GenerateRequest) -> tuple[Screenshot, ...]:
        """The screenshots the prompt of this request shows, oldest first; the last is that of now."""
        return shown_screenshots(request, self.limits)

    def screen(self, sha256: str, png: bytes) -> Screen:
        """A screenshot in the size the model looks at. Raises PixelFrameError."""
        try:
            with Image.open(BytesIO(png)) as image:
                frame = self.rule.shown(*image.size)
                size = (frame.shown_width_px, frame.shown_height_px)
                pixels = np.array(image.convert("RGB").resize(size, Image.Resampling.BICUBIC))
        except (OSError, SyntaxError, FrameError, Image.DecompressionBombError) as error:
            raise PixelFrameError(
                f"screenshot {sha256} ({len(png)} bytes) cannot be seen: {error}"
            ) from error
        return Screen(sha256, pixels, frame)

    def image_tokens(self, screen: Screen) -> int:
        """How many tokens a screen is for the model."""
        return self.rule.tokens(screen.frame)

    # ---- prompts ----

    def prompt(self, request: GenerateRequest, screens: Sequence[Screen]) -> Prompt:
        """The prompt with these screens, those of `shown`."""
        turns = conversation(request, self.limits)
        inserts = [self._told(self._prompt + request.instruction)]
        inserts += [self._answer_told(turn.token_ids) for turn in turns if isinstance(turn, AnswerTurn)]
        token_ids: list[int] = []
        for index, piece in enumerate(_MARK.split(self._rendered(turns))):
            token_ids += inserts[int(piece)] if index % 2 else self._written(piece)
        images = tuple(PromptImage(sha256=one.sha256, tokens=self.image_tokens(one)) for one in screens)
        placeholders = token_ids.count(self.image_id)
        if placeholders != len(images):
            raise UnsupportedCheckpoint(
                f"the chat template of this checkpoint writes {placeholders} image placeholders for "
                f"{len(images)} screenshots; expected one {self.tokenizer.decode([self.image_id])!r} for each"
            )
        return Prompt(tuple(token_ids), images)

    def expanded(self, prompt_ids: Sequence[int], images: Sequence[PromptImage]) -> list[int]:
        """The prompt as the model takes it: each placeholder as often as its image has tokens.

        Raises ValueError where they are not as many as the images.
        """
        if prompt_ids.count(self.image_id) != len(images):
            raise ValueError(
                f"expected a placeholder for each of {len(images)} images, "
                f"the prompt has {prompt_ids.count(self.image_id)}"
            )
        remaining = iter(images)
        token_ids: list[int] = []
        for token in prompt_ids:
            token_ids += [token] * next(remaining).tokens if token == self.image_id else [token]
        return token_ids

    def _rendered(self, turns: Sequence[Turn]) -> str:
        """The conversation in the chat template, with marks where the instruction and the answers go."""
        messages: list[dict[str, Any]] = []
        answers = 0
        for turn in turns:
            if isinstance(turn, AnswerTurn):
                answers += 1
                messages.append({"role": "assistant", "content": [_mark(answers)]})
            else:
                parts = [_mark(0)] if turn.has_instruction else []
                pictures = [{"type": "image"} for _ in turn.screenshots]
                messages.append({"role": "user", "content": [*parts, *pictures]})
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _written(self, template_text: str) -> list[int]:
        return list(self.tokenizer.encode(template_text, add_special_tokens=False)) if template_text else []

    def _encode_text(self, text: str) -> list[int]:
        return list(self._text.encode(text, add_special_tokens=False).ids)

    def _answer_told(self, token_ids: Sequence[int]) -> list[int]:
        """Without its end, which the template writes."""
        return list(token_ids[:-1] if token_ids and token_ids[-1] == self.eos_id else token_ids)

    # ---- answers ----

    def say(self, action_text: str, instruction: str, frame: Frame) -> list[int]:
        """The tokens of an answer with this action of the screen. Raises ActionParseError."""
        action = moved(parse_action(action_text), frame.to_shown)
        return [*self._encode_text(write_answer(action)), self.eos_id]

    def understand(self, token_ids: Sequence[int], instruction: str, frame: Frame) -> str:
        """The action of an answer in pixels of the screen; what has none comes out as a text that the strict
        parser refuses."""
        ids = list(token_ids)
        ended = bool(ids) and ids[-1] == self.eos_id
        text = str(self.tokenizer.decode(ids[:-1] if ended else ids, skip_special_tokens=False))
        if not ended:
            return f"{NOT_AN_ACTION}the answer did not end: {text}"
        try:
            return format_action(moved(read_answer(text), frame.to_screen))
        except ActionParseError:
            return f"{NOT_AN_ACTION}{text}"


def resize_rule(image_processor: Any) -> ResizeRule:
    """The rule of a checkpoint's image processor."""
    size = image_processor.size
    return ResizeRule(
        factor_px=image_processor.patch_size * image_processor.merge_size,
        min_area_px=size["shortest_edge"],
        max_area_px=size["longest_edge"],
    )


def load_vlm_codec(folder: Path, limits: ContextLimits, prompt: str = PROMPT) -> VisionLanguageCodec:
    """The codec of a checkpoint, without its model. Raises UnsupportedCheckpoint, OSError, ValueError."""
    from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if config.model_type not in FAMILIES:
        raise UnsupportedCheckpoint(
            f"{folder} holds a model of type {config.model_type!r}; "
            f"a policy is one of {', '.join(FAMILIES)}, or the small policy of the laptop job"
        )
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = _legacy_template(folder)
    processor = AutoImageProcessor.from_pretrained(folder, local_files_only=True, backend="pil")
    return VisionLanguageCodec(tokenizer, config, processor, limits, prompt)


def _legacy_template(folder: Path) -> str:
    """Of checkpoints that keep it with the processor."""
    path = folder / "chat_template.json"
    if not path.is_file():
        raise UnsupportedCheckpoint(f"{folder} has no chat template, neither its tokenizer nor {path.name}")
    return str(json.loads(path.read_text())["chat_template"])


def _mark(number: int) -> dict[str, str]:
    return {"type": "text", "text": f"\ue000{number}\ue001"}


def _picture_ids(config: Any) -> tuple[int, ...]:
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    return tuple(sorted({int(getattr(config, name)) for name in names if getattr(config, name, None)}))
