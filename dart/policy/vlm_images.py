"""Images of a vision-language model: their tokens in the prompt, and the tensors that go with these tokens.

The checkpoint's own processor makes both. It is called with one image at a time: the tokens that replace an
image's placeholder (rows, columns, tiles, line ends) then depend on the image's size alone, so engine and
trainer get the same tokens. Uses torch only where the processor does.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dart.policy.coordinates import ResizeRule
from dart.policy.protocols import Pixels, Screen, UnsupportedCheckpoint
from dart.policy.vlm_processor import CANNOT

KINDS = ("mm_token_type_ids", "token_type_ids")
"""Names of model inputs that mark which tokens stand for images."""

MADE_HERE = ("input_ids", "attention_mask", *KINDS)
"""Names of model inputs that are made from the tokens; all other inputs depend on the images alone."""

TRIAL_PX = 448
"""Side of the blank image with which a processor is tried; large enough to be cut into tiles."""


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """Tokens for the model, with all placeholders replaced."""

    token_ids: tuple[int, ...]
    kinds: tuple[int, ...]
    """Kind of each token according to the processor; 0: text."""


class ImageCache:
    """Processed screenshots by sha256. Each is kept until its last known use if there is room for it.

    Nothing is evicted for another screenshot: an update uses its screenshots in turn, and a cache that made
    room for the newest one would lose each one just before it is needed again.
    """

    def __init__(self, uses: Mapping[str, int], limit_bytes: int) -> None:
        """uses   how often each screenshot will be asked for; others are never kept"""
        self._uses_left = Counter(uses)
        self._room_bytes = limit_bytes
        self._kept: dict[str, Mapping[str, Any]] = {}

    def get(self, sha256: str, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the tensors of a screenshot; `make` computes them if they are not kept."""
        self._uses_left[sha256] -= 1
        is_needed = self._uses_left[sha256] > 0
        found = self._kept.get(sha256)
        if found is None:
            made = make()
            if is_needed and _size_bytes(made) <= self._room_bytes:
                self._kept[sha256] = made
                self._room_bytes -= _size_bytes(made)
            return made
        if not is_needed:
            self._room_bytes += _size_bytes(self._kept.pop(sha256))
        return found


class ImageEncoder:
    """Turns images into tokens and tensors with the processor of one checkpoint."""

    def __init__(self, processor: Any, rule: ResizeRule | None) -> None:
        """rule   how images are resized before this class gets them; None: the processor resizes them

        Raises UnsupportedCheckpoint when the processor cannot serve prompts that are recorded as tokens.
        """
        self._processor = processor
        self._rule = rule
        self._options = {} if rule is None else {"do_resize": False}
        self._cache: ImageCache | None = None
        self.tokens_for = lru_cache(maxsize=256)(self._tokens_of_blank)
        """Function from the width_px and height_px of an image to the tokens that replace its placeholder.

        Raises the processor's exception for a size that the processor does not accept."""
        self.placeholder_id = self._one_token()
        self.kinds_name: str | None = None
        """Name of the model input with the kinds of tokens; None if the model has none."""
        side_px = TRIAL_PX if rule is None else rule.shown(TRIAL_PX, TRIAL_PX).shown_width_px
        self.trial = self._trial_tokens(side_px)
        """Tokens of a blank square image."""

    @property
    def placeholder(self) -> str:
        """The text that a chat template writes for an image."""
        return str(self._processor.image_token)

    @contextmanager
    def keeping(self, uses: Mapping[str, int], limit_bytes: int) -> Iterator[None]:
        """Keep the tensors of screenshots between the calls of `inputs` in this block (`ImageCache`)."""
        self._cache = ImageCache(uses, limit_bytes)
        try:
            yield
        finally:
            self._cache = None

    def inputs(self, screens: Sequence[Screen]) -> dict[str, Any]:
        """Return the torch tensors that the model needs for screenshots in addition to the tokens, by name.

        Raises ValueError when a screenshot has another number of tokens than a blank image of its size.
        """
        if self._is_separable(screens):
            return _joined([self._tensors_of(screen) for screen in screens])
        return self._tensors([screen.pixels for screen in screens])

    def _is_separable(self, screens: Sequence[Screen]) -> bool:
        """Whether the tensors of each single screenshot, concatenated, are the tensors of all of them.

        They are for the Qwen-VL family, which has a row for each patch. Other families pad images to the
        largest one, so their screenshots must all have the same size.
        """
        return self._rule is not None or len({screen.pixels.shape for screen in screens}) == 1

    def _tensors_of(self, screen: Screen) -> Mapping[str, Any]:
        def make() -> dict[str, Any]:
            return self._tensors([screen.pixels])

        return make() if self._cache is None else self._cache.get(screen.sha256, make)

    def _tensors(self, pictures: Sequence[Pixels]) -> dict[str, Any]:
        made = self._process(pictures, "pt")
        for picture, mask in zip(pictures, made["attention_mask"], strict=True):
            height_px, width_px, _ = picture.shape
            expected, found = len(self.tokens_for(width_px, height_px).token_ids), int(mask.sum())
            if found != expected:
                raise ValueError(
                    f"{self._name()} made {found} tokens of an image of {width_px}x{height_px} px, "
                    f"but {expected} of a blank image of that size"
                )
        return {name: value for name, value in made.items() if name not in MADE_HERE}

    def _tokens_of_blank(self, width_px: int, height_px: int) -> ImageTokens:
        made = self._process([blank(width_px, height_px)], "np")
        ids = tuple(map(int, made["input_ids"][0]))
        kinds = (0,) * len(ids) if self.kinds_name is None else tuple(map(int, made[self.kinds_name][0]))
        return ImageTokens(ids, kinds)

    def _process(self, pictures: Sequence[Pixels], tensors: str, before: str = "") -> Mapping[str, Any]:
        """Run the processor on prompts with one image each; returns the model inputs by name."""
        made: Mapping[str, Any] = self._processor(
            images=[[picture] for picture in pictures],
            text=[before + self.placeholder] * len(pictures),
            add_special_tokens=False,
            padding=True,
            return_tensors=tensors,
            **self._options,
        )
        return made

    def _one_token(self) -> int:
        written = getattr(self._processor, "image_token", None)
        if not written:
            raise UnsupportedCheckpoint(
                f"{self._name()} has no image_token, the placeholder of an image in a text; use another "
                "checkpoint"
            )
        ids = self._processor.tokenizer.encode(str(written), add_special_tokens=False)
        if len(ids) != 1:
            raise UnsupportedCheckpoint(
                f"expected the image placeholder {str(written)!r} to be one token, "
                f"got {len(ids)} from the checkpoint's tokenizer; use another checkpoint"
            )
        return int(ids[0])

    def _trial_tokens(self, side_px: int) -> ImageTokens:
        """Return the tokens of a blank square image with sides of `side_px`.

        Raises UnsupportedCheckpoint unless the image's tensors depend on the image alone.
        """
        picture = blank(side_px, side_px)
        try:
            made = self._process([picture], "np")
            other = self._process([picture], "np", before=str(self._processor.tokenizer.eos_token))
            self.kinds_name = next((name for name in KINDS if name in made), None)
            tokens = self._tokens_of_blank(side_px, side_px)
        except CANNOT as error:
            raise UnsupportedCheckpoint(
                f"{self._name()} cannot prepare a blank image of {side_px} px: {error}; use another "
                "checkpoint"
            ) from error
        names = [name for name in made if name not in MADE_HERE]
        if not names:
            raise UnsupportedCheckpoint(
                f"{self._name()} makes no tensors of an image for its model; use another checkpoint"
            )
        of_text = [name for name in names if not np.array_equal(made[name], other[name])]
        if of_text:
            raise UnsupportedCheckpoint(
                f"{self._name()} makes {', '.join(of_text)} from the position of an image in the text; "
                "these inputs cannot be computed for a prompt of recorded tokens: use another checkpoint"
            )
        return tokens

    def _name(self) -> str:
        return f"the checkpoint's processor, a {type(self._processor).__name__},"


def blank(width_px: int, height_px: int) -> Pixels:
    """Return a grey image of this size, uint8; some processors would mistake black or white for padding."""
    return np.full((height_px, width_px, 3), 120, dtype=np.uint8)


def _joined(made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Concatenate the model inputs of single images, by name, along the first dimension."""
    if len(made) == 1:
        return dict(made[0])
    import torch  # the processor has imported it by now; the codec, which uses this module, does without

    return {name: torch.cat([one[name] for one in made]) for name in made[0]}


def _size_bytes(tensors: Mapping[str, Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
