"""The codec of a vision-language checkpoint: its chat template, UI-TARS's answer format, its image processor.

A prompt is the conversation of `dart.policy.context` in the checkpoint's chat template. Past answers are
inserted as the tokens that were sampled. The instruction is inserted as plain text, in which special tokens
have no effect. A recorded prompt holds one placeholder for each screenshot and, beside it, the number of
image tokens; the tokens themselves follow from the screenshot's size (`dart.policy.vlm_images`). All model
families share this code; only screenshots for the Qwen-VL family are resized here. Imports no torch.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from dart.core.actions import Action, ActionParseError, format_actions, parse_actions
from dart.core.png import refuse_huge
from dart.core.types import GenerateRequest, PromptImage
from dart.policy.context import shown_flags, shown_screenshots, told_steps
from dart.policy.coordinates import (
    POINTS_OF,
    CoordinateFrame,
    Points,
    ResizeRule,
    frame_of,
)
from dart.policy.pointer.patches import PatchGrid
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import (
    Centres,
    Codec,
    PixelFrameError,
    PointerTokens,
    Prompt,
    Screen,
    UnsupportedCheckpoint,
)
from dart.policy.uitars import (
    BOX_END,
    BOX_START,
    NOT_AN_ACTION,
    hint_of,
    map_points,
    points_of,
    read_answer,
    system_prompt,
    thought_of,
    write_answer,
)
from dart.policy.vlm_chat import MARK, ChatTemplate
from dart.policy.vlm_images import ImageEncoder, ImageTokens
from dart.policy.vlm_processor import IMAGES, end_ids, load_config, load_processor, template_of
from dart.policy.vocabulary import POINTER_KEY

_POINT_IN_ANSWER = re.compile(r"(?<=_box=')\(\d+,\d+\)(?=')")
"""Matches a point in the text of an action. The quotes of a text to type are escaped, so it never matches."""

_BOXES = re.compile(f"({re.escape(BOX_START)}|{re.escape(BOX_END)})")

_PICTURE_TOKEN = re.compile(r"(?:image|video|vision|audio|bo[aiv]|eo[aiv])\w*_token_(?:id|index)")
"""Matches the names under which configurations list the tokens of images, videos and sounds."""


class VisionLanguageCodec(Codec):
    """The codec of one checkpoint."""

    def __init__(self, processor: Any, config: Any, prompt_spec: PromptSpec, ends: Sequence[int]) -> None:
        """processor, config   processor and configuration of the checkpoint (`dart.policy.vlm_processor`)
        ends                   end tokens of the checkpoint's generation settings

        Raises UnsupportedCheckpoint when the checkpoint lacks something that a policy needs.
        """
        self.tokenizer = processor.tokenizer
        self._context = prompt_spec.context
        self.rule = resize_rule(processor.image_processor)
        self.image_encoder = ImageEncoder(processor, self.rule)
        self.pointer = pointer_tokens(config)
        self.points = self._chosen_points(config)
        self.never_sampled = _picture_ids(config, self.tokenizer, self.image_encoder)
        self._prompt = system_prompt(prompt_spec.prompt, self.points)
        self.chat = ChatTemplate(self.tokenizer, template_of(processor), self.image_encoder.placeholder)
        self._end_id = self._end_of_a_turn(ends[0])
        self.end_ids = tuple(dict.fromkeys((*ends, self._end_id)))
        self.vocabulary_size = len(self.tokenizer)
        self.pad_id = int(self.tokenizer.pad_token_id)
        self._begin = self._beginning()
        self._text = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        self._text.encode_special_tokens = True  # "<|im_end|>" in an instruction is text and ends nothing
        self._cached_text = lru_cache(maxsize=256)(self.encode_text)
        self._has_boxes = {BOX_START, BOX_END} <= set(self.tokenizer.get_added_vocab())
        self._writes_boxes = self._has_boxes and BOX_START in self._prompt

    def _chosen_points(self, config: Any) -> Points:
        """Return the unit in which this checkpoint writes points. Raises UnsupportedCheckpoint."""
        if self.pointer is None:
            known = POINTS_OF.get(config.model_type, "screen")
            return known if self._context.points == "auto" else self._context.points
        if self._context.points != "auto":
            raise UnsupportedCheckpoint(
                f"context.points is {self._context.points!r}, but the checkpoint has a pointer head and "
                "writes no numbers; leave context.points at 'auto'"
            )
        if self.rule is None:
            raise UnsupportedCheckpoint(
                "the checkpoint has a pointer head, but its image processor makes no grid of patches: the "
                "head needs a checkpoint of the Qwen-VL family"
            )
        return "patches"

    # ---- screenshots ----

    def grid(self, frame: CoordinateFrame) -> PatchGrid:
        """Return the patch grid of a screenshot, one patch for each image token; needs the resize rule."""
        assert self.rule is not None  # checked when the codec is made
        side_px = self.rule.factor_px
        return PatchGrid(frame.shown_height_px // side_px, frame.shown_width_px // side_px)

    def shown(self, request: GenerateRequest) -> tuple[str, ...]:
        return shown_screenshots(request, self._context)

    def screen(self, sha256: str, png: bytes) -> Screen:
        try:
            with Image.open(BytesIO(png)) as image:
                refuse_huge(*image.size)
                frame = frame_of(*image.size, self.rule, self.points)
                screen = Screen(sha256, self._pixels(image.convert("RGB")), frame)
            self.image_tokens(screen)
        except (OSError, SyntaxError, ValueError, ArithmeticError, Image.DecompressionBombError) as error:
            raise PixelFrameError(
                f"screenshot {sha256} ({len(png)} bytes) cannot be used: {error}"
            ) from error
        return screen

    def _pixels(self, image: Image.Image) -> Any:
        if self.rule is None:
            return np.array(image)
        shown = self.rule.shown(*image.size)
        return np.array(image.resize((shown.shown_width_px, shown.shown_height_px), Image.Resampling.BICUBIC))

    def image_tokens(self, screen: Screen) -> int:
        """Return the number of image tokens of a screenshot."""
        return len(self._tokens_of(screen).token_ids)

    def _tokens_of(self, screen: Screen) -> ImageTokens:
        height_px, width_px, _ = screen.pixels.shape
        return self.image_encoder.tokens_for(width_px, height_px)

    # ---- prompts ----

    def prompt(self, request: GenerateRequest, screens: Sequence[Screen]) -> Prompt:
        hinted = [action for text in request.hint for action in parse_actions(text)]
        hint = hint_of([map_points(action, screens[-1].frame.to_shown) for action in hinted])
        inserts = [self._task(request.instruction + hint)]
        inserts += [
            self._read(self._without_end(step.token_ids)) for step in told_steps(request, self._context)
        ]
        text = self.chat.rendered(shown_flags(request, self._context))
        token_ids = self._beginning_of(text)
        for index, piece in enumerate(MARK.split(text)):
            token_ids += inserts[int(piece)] if index % 2 else self.encode_with_special_tokens(piece)
        images = tuple(PromptImage(sha256=one.sha256, tokens=self.image_tokens(one)) for one in screens)
        return Prompt(tuple(token_ids), images)

    def expand_images(self, prompt_ids: Sequence[int], screens: Sequence[Screen]) -> ImageTokens:
        """Replace each placeholder of a prompt by the tokens of its screenshot.

        screens   the screenshots with which `prompt` made the prompt, in the same order
        """
        expanded = iter([self._tokens_of(screen) for screen in screens])
        parts = [
            next(expanded) if token == self.image_encoder.placeholder_id else ImageTokens((token,), (0,))
            for token in prompt_ids
        ]
        return ImageTokens(
            tuple(token for part in parts for token in part.token_ids),
            tuple(kind for part in parts for kind in part.kinds),
        )

    def _beginning(self) -> list[int]:
        """Return the tokens that the tokenizer puts before any text."""
        plain = self.tokenizer.encode("a", add_special_tokens=False)
        whole = self.tokenizer.encode("a", add_special_tokens=True)
        return list(whole[: len(whole) - len(plain)]) if whole[-len(plain) :] == plain else []

    def _beginning_of(self, text: str) -> list[int]:
        """Return the tokens to put before a text; none when the text begins with them already."""
        is_written = self.tokenizer.bos_token is not None and text.startswith(self.tokenizer.bos_token)
        return [] if is_written else list(self._begin)

    def _task(self, instruction: str) -> list[int]:
        """Return the tokens of prompt and instruction. `<|box_start|>` and `<|box_end|>` become special
        tokens in the prompt, and plain text in the instruction."""
        begin, mark, rest = self._prompt.rpartition(BOX_END)
        if mark and self._has_boxes:
            return self._with_boxes(begin + mark) + self._cached_text(rest + instruction)
        return self._cached_text(self._prompt + instruction)

    def _with_boxes(self, text: str) -> list[int]:
        """Return the tokens of a text; `<|box_start|>` and `<|box_end|>` become special tokens."""
        pieces = _BOXES.split(text)
        return [
            token
            for index, piece in enumerate(pieces)
            for token in (
                [self.tokenizer.convert_tokens_to_ids(piece)] if index % 2 else self.encode_text(piece)
            )
        ]

    def encode_with_special_tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, such as one that the chat template wrote, special tokens included."""
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    def encode_text(self, text: str) -> list[int]:
        """Return the tokens of a text in which special tokens have no effect."""
        return list(self._text.encode(text, add_special_tokens=False).ids)

    def _without_end(self, token_ids: Sequence[int]) -> list[int]:
        """Return an answer's tokens without the end token, because the chat template writes one itself."""
        return list(token_ids[:-1] if token_ids and token_ids[-1] in self.end_ids else token_ids)

    # ---- answers ----

    def encode_action(self, action_text: str, instruction: str, frame: CoordinateFrame) -> list[int]:
        return [*self._written_answer(parse_actions(action_text), frame), self._end_id]

    def _written_answer(self, actions: Sequence[Action], frame: CoordinateFrame) -> list[int]:
        """Return the tokens of an answer with these actions, whose points are pixels of the screen.

        The tokens have no end token.
        """
        shown = [map_points(action, frame.to_shown) for action in actions]
        text = write_answer(shown)
        points = [point for action in shown for point in points_of(action)]
        if self._writes_boxes and self.pointer is None:
            return self._with_boxes(_POINT_IN_ANSWER.sub(rf"{BOX_START}\g<0>{BOX_END}", text))
        if self.pointer is None or not points:
            return self.encode_text(text)
        before, *between = _POINT_IN_ANSWER.split(text)
        ids = self.encode_text(before)
        for (x, y), after in zip(points, between, strict=True):
            patch = self.grid(frame).patch_at(
                (x + 0.5) / frame.shown_width_px, (y + 0.5) / frame.shown_height_px
            )
            ids += [self.pointer.token_id, self.pointer.first_patch_id + patch, *self.encode_text(after)]
        return ids

    def encode_answer(self, text: str, instruction: str) -> list[int]:
        """Do as `Codec.encode_answer` says. The text may contain box tokens, but not the pointer token or
        tokens that end an answer or stand for an image."""
        ids = self._without_end(self.encode_with_special_tokens(text))
        pointers = () if self.pointer is None else (self.pointer.token_id,)
        if forbidden := {*ids} & {*self.end_ids, *self.never_sampled, *pointers}:
            names = ", ".join(sorted(self.tokenizer.convert_ids_to_tokens(sorted(forbidden))))
            raise ActionParseError(f"expected no special token inside an answer, found {names}", text)
        return [*ids, self._end_id]

    def lacks_thought(self, token_ids: Sequence[int]) -> bool:
        return not thought_of(self._spelled(self._read(self._without_end(token_ids))))

    def decode_action(
        self, token_ids: Sequence[int], instruction: str, frame: CoordinateFrame, centres: Centres = ()
    ) -> str:
        ids = list(token_ids)
        ended = bool(ids) and ids[-1] in self.end_ids
        text = self._with_points(ids[:-1] if ended else ids, frame, centres)
        if not ended:
            return f"{NOT_AN_ACTION}the answer has no end token: {text}"
        try:
            return format_actions([map_points(action, frame.to_screen) for action in read_answer(text)])
        except ActionParseError:
            return f"{NOT_AN_ACTION}{text}"

    def _with_points(self, ids: Sequence[int], frame: CoordinateFrame, centres: Centres) -> str:
        """Return the text of answer tokens, with each pointer and patch as pixels of the resized image."""
        if self.pointer is None:
            return self._spelled(ids)
        grid, given, text, run = self.grid(frame), iter(centres), "", list[int]()
        for before, token in pairwise((-1, *ids)):
            patch = token - self.pointer.first_patch_id
            if before == self.pointer.token_id and 0 <= patch < grid.patches:
                x, y = next(given, grid.centre(patch))
                point = frame.shown_at(x, y)
                text += f"{self._spelled(run[:-1])}({point[0]},{point[1]})"
                run = []
            else:
                run.append(token)
        return text + self._spelled(self._read(run))

    def _spelled(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def _read(self, token_ids: Sequence[int]) -> list[int]:
        """Return an answer's tokens as the model reads them: `<pointer>` in place of each patch."""
        if self.pointer is None:
            return list(token_ids)
        first, pointer_id = self.pointer.first_patch_id, self.pointer.token_id
        return [pointer_id if token >= first else token for token in token_ids]

    def _end_of_a_turn(self, usual: int) -> int:
        """Return the token with which the chat template ends an answer; `usual` if it writes none."""
        written = self.encode_with_special_tokens(self.chat.after_answer.lstrip())
        first = written[0] if written else usual
        is_end = first in self.tokenizer.added_tokens_decoder and first not in self.never_sampled
        return first if is_end else usual


def resize_rule(image_processor: Any) -> ResizeRule | None:
    """Return the resize rule of an image processor of the Qwen-VL family; None for others, which resize
    images themselves. Raises UnsupportedCheckpoint for bounds that no image can keep."""
    if not type(image_processor).__name__.startswith("Qwen2VLImageProcessor"):
        return None
    smallest, largest = image_processor.size["shortest_edge"], image_processor.size["longest_edge"]
    are_numbers = all(isinstance(bound, int | float) for bound in (smallest, largest))
    if not are_numbers or not 0 < smallest <= largest:
        raise UnsupportedCheckpoint(
            f"the checkpoint's {IMAGES}: expected bounds of an image's area, the smaller one first, in "
            f"min_pixels and max_pixels or in size.shortest_edge and size.longest_edge, got {smallest!r} and "
            f"{largest!r}; write min_pixels and max_pixels there"
        )
    return ResizeRule(
        factor_px=image_processor.patch_size * image_processor.merge_size,
        min_area_px=smallest,
        max_area_px=largest,
    )


def pointer_tokens(config: Any) -> PointerTokens | None:
    """Return the tokens of a checkpoint's pointer head; None for a checkpoint without one.

    The checkpoint's configuration names the token `<pointer>` as GUI-Actor's checkpoints do. Patches are not
    in the tokenizer: their ids begin after the last id of the model's vocabulary.
    """
    named = getattr(config, POINTER_KEY, None)
    if named is None:
        return None
    token_id = named[0] if isinstance(named, list) else named
    return PointerTokens(token_id=int(token_id), first_patch_id=int(config.get_text_config().vocab_size))


def load_vlm_codec(folder: Path, prompt_spec: PromptSpec) -> VisionLanguageCodec:
    """Load the codec of a checkpoint, without its model. Raises UnsupportedCheckpoint, OSError,
    ValueError."""
    config = load_config(folder)
    processor = load_processor(folder, config)
    ends = end_ids(folder, config, processor.tokenizer)
    return VisionLanguageCodec(processor, config, prompt_spec, ends)


def _picture_ids(config: Any, tokenizer: Any, pictures: ImageEncoder) -> tuple[int, ...]:
    """Return the tokens that stand for images: those that the configuration names, the placeholder, and the
    special tokens into which an image is expanded."""
    named = {value for name, value in config.to_dict().items() if _PICTURE_TOKEN.fullmatch(name)}
    known = {token for token in named if isinstance(token, int) and 0 <= token < len(tokenizer)}
    special = tokenizer.added_tokens_decoder
    spelled = {token for token in pictures.trial.token_ids if token in special}
    return tuple(sorted({pictures.placeholder_id} | known | spelled))
