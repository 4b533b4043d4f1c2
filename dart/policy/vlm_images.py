"""What a screenshot is for a vision-language model: tokens in the prompt, and inputs beside them.

The checkpoint's own processor decides, and is asked about each screenshot by itself: how its one placeholder
is spelled out (rows, columns, tiles, line ends) follows from its size alone, so that an engine and the
trainer, who see it among others, find the same. No torch but through the processor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dart.policy.coordinates import ResizeRule
from dart.policy.protocols import Pixels, UnsupportedCheckpoint
from dart.policy.vlm_processor import CANNOT

KINDS = ("mm_token_type_ids", "token_type_ids")
"""Names under which models are told which tokens stand for pictures."""

MADE_HERE = ("input_ids", "attention_mask", *KINDS)
"""Inputs that follow from the tokens; all others follow from the screenshots alone."""

PROBE_PX = 448
"""Side of the blank picture by which a processor is tried out: large enough to be cut into tiles."""


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """Tokens as the model takes them."""

    token_ids: tuple[int, ...]
    kinds: tuple[int, ...]
    """Of each token what the processor says it stands for; 0: text."""


class ImageEncoder:
    """Screenshots for one checkpoint."""

    def __init__(self, processor: Any, rule: ResizeRule | None) -> None:
        """rule   by which screenshots were resized before they get here; None: they are as they were taken

        Raises UnsupportedCheckpoint where the processor cannot be driven with tokens.
        """
        self._processor = processor
        self._how = {} if rule is None else {"do_resize": False}
        self._of_size = lru_cache(maxsize=256)(self._laid)
        self.placeholder_id = self._one_token()
        self.kinds_name: str | None = None
        """Under which the model is told the kinds of its tokens, if it is."""
        side_px = PROBE_PX if rule is None else rule.shown(PROBE_PX, PROBE_PX).shown_width_px
        self.probe = self._tried_out(side_px)
        """What a square picture is."""

    @property
    def placeholder(self) -> str:
        """What a chat template writes for a picture."""
        return str(self._processor.image_token)

    def laid(self, width_px: int, height_px: int) -> ImageTokens:
        """What a picture of this size is in place of its placeholder.

        Raises what the processor raises for a size that it cannot prepare.
        """
        return self._of_size(width_px, height_px)

    def inputs(self, pictures: Sequence[Pixels]) -> dict[str, Any]:
        """What the model takes of pictures [H, W, 3] beside their tokens, in their order: torch tensors.

        Raises ValueError where one was spelled out otherwise than pictures of its size are.
        """
        made = self._made(pictures, "pt")
        for picture, mask in zip(pictures, made["attention_mask"], strict=True):
            height_px, width_px, _ = picture.shape
            expected, found = len(self.laid(width_px, height_px).token_ids), int(mask.sum())
            if found != expected:
                raise ValueError(
                    f"{self._name()} made {found} tokens of a picture of {width_px}x{height_px} px; "
                    f"of a blank one of that size it makes {expected}"
                )
        return {name: value for name, value in made.items() if name not in MADE_HERE}

    def _laid(self, width_px: int, height_px: int) -> ImageTokens:
        made = self._made([blank(width_px, height_px)], "np")
        ids = tuple(map(int, made["input_ids"][0]))
        kinds = (0,) * len(ids) if self.kinds_name is None else tuple(map(int, made[self.kinds_name][0]))
        return ImageTokens(ids, kinds)

    def _made(self, pictures: Sequence[Pixels], tensors: str, before: str = "") -> Mapping[str, Any]:
        """What the processor makes of pictures that are alone in their prompts."""
        made: Mapping[str, Any] = self._processor(
            images=[[picture] for picture in pictures],
            text=[before + self.placeholder] * len(pictures),
            add_special_tokens=False,
            padding=True,
            return_tensors=tensors,
            **self._how,
        )
        return made

    def _one_token(self) -> int:
        written = getattr(self._processor, "image_token", None)
        if not written:
            raise UnsupportedCheckpoint(
                f"{self._name()} names no placeholder for a picture in a text (image_token)"
            )
        ids = self._processor.tokenizer.encode(str(written), add_special_tokens=False)
        if len(ids) != 1:
            raise UnsupportedCheckpoint(
                f"the placeholder of a picture, {str(written)!r}, is {len(ids)} tokens for its tokenizer; "
                "expected one"
            )
        return int(ids[0])

    def _tried_out(self, side_px: int) -> ImageTokens:
        """What a blank picture is. Raises UnsupportedCheckpoint unless inputs are made of it and it alone."""
        picture = blank(side_px, side_px)
        try:
            made = self._made([picture], "np")
            other = self._made([picture], "np", before=str(self._processor.tokenizer.eos_token))
            self.kinds_name = next((name for name in KINDS if name in made), None)
            laid = self._laid(side_px, side_px)
        except CANNOT as error:
            raise UnsupportedCheckpoint(
                f"{self._name()} cannot prepare a blank picture of {side_px} px: {error}"
            ) from error
        names = [name for name in made if name not in MADE_HERE]
        if not names:
            raise UnsupportedCheckpoint(f"{self._name()} makes no inputs of a picture for its model")
        of_text = [name for name in names if not _same(made[name], other[name])]
        if of_text:
            raise UnsupportedCheckpoint(
                f"{self._name()} makes {', '.join(of_text)} of where a picture stands in its text; prompts "
                "are laid out by tokens here, and such inputs cannot be made of those"
            )
        return laid

    def _name(self) -> str:
        return f"the checkpoint's processor, a {type(self._processor).__name__},"


def blank(width_px: int, height_px: int) -> Pixels:
    """A grey picture. Black and white are padding to some."""
    return np.full((height_px, width_px, 3), 120, dtype=np.uint8)


def _same(one: Any, other: Any) -> bool:
    return np.shape(one) == np.shape(other) and bool(np.array_equal(one, other))
