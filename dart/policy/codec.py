"""The codec of the small policy: instructions to prompt tokens, actions to answer tokens and back.

An answer is text in the action grammar of `dart.core.actions`; its tokens are those of
`dart.policy.vocabulary`. Token ids are plain lists of ints: this module does not import torch.

The policy sees every screenshot in its own frame of 160x210 pixels; a screenshot of another size is resized.
The policy's points stand for shares of the screen's width and height. The codec converts between them and
the actions' points, which are pixels of the actual screen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from io import BytesIO
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from dart.core.actions import (
    Action,
    ActionParseError,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    RightSingle,
    Scroll,
    Type,
    Wait,
    format_action,
    parse_action,
)
from dart.core.boxes import Box
from dart.core.png import opened_picture
from dart.core.types import GenerateRequest
from dart.policy.coordinates import CoordinateFrame, share_at
from dart.policy.pointer.patches import PatchGrid, hits, patches_that_click
from dart.policy.protocols import (
    Centres,
    Codec,
    PixelFrameError,
    Pixels,
    PointerTokens,
    Prompt,
    Screen,
)
from dart.policy.vocabulary import (
    ANSWER,
    BIN_PX,
    DIRECTIONS,
    EOS,
    FRAME_HEIGHT_PX,
    FRAME_WIDTH_PX,
    IMAGE,
    MAX_COPIES,
    PATCH_COLUMNS,
    PATCH_PX,
    PATCH_ROWS,
    POINTER,
    X_BINS,
    Y_BINS,
    Coordinates,
    copy_token,
    patch_token,
    quoted_spans,
    special_ids,
    step_token,
    x_token,
    y_token,
)

HISTORY_ANSWERS = 4
"""Largest number of past answers in a prompt."""


def frame_at_size(width_px: int, height_px: int) -> CoordinateFrame:
    """Return the coordinate frame of a screenshot of this size, before it is resized."""
    return CoordinateFrame(
        width_px=width_px,
        height_px=height_px,
        shown_width_px=FRAME_WIDTH_PX,
        shown_height_px=FRAME_HEIGHT_PX,
    )


FRAME = frame_at_size(FRAME_WIDTH_PX, FRAME_HEIGHT_PX)
"""The coordinate frame of a screenshot of 160x210 pixels, which needs no resizing."""

GRID = PatchGrid(PATCH_ROWS, PATCH_COLUMNS, covered_height=FRAME_HEIGHT_PX / (PATCH_ROWS * PATCH_PX))
"""The patches of a screenshot for a policy with the pointer head."""

Point = tuple[float, float]
"""A point (x, y) as shares of the screen's width and height."""


class BinPoints:
    """Encodes a point as two tokens: the bin of its column, then the bin of its row."""

    def encode(self, x: float, y: float) -> list[int]:
        """Return the two tokens of a point, given as shares of the screen; a share above 1 counts as 1."""
        column, row = int(x * FRAME_WIDTH_PX / BIN_PX), int(y * FRAME_HEIGHT_PX / BIN_PX)
        return _ids(x_token(min(column, X_BINS - 1)), y_token(min(row, Y_BINS - 1)))

    def decode(self, ids: Sequence[int], centre: Point | None = None) -> Point:
        """Return the middle of the two bins; `centre` is ignored.

        Raises LookupError for tokens that are no bins, and ValueError for another number of tokens.
        """
        x, y = ids
        return _VALUES["x"][x], _VALUES["y"][y]

    def that_click(self, box: Box, frame: CoordinateFrame) -> tuple[list[int], list[int]]:
        """Return the bins of columns and of rows whose clicks hit a box, given in pixels of the screen."""
        columns, rows = list(_VALUES["x"]), list(_VALUES["y"])
        across = hits([frame.clicked(x, 0)[0] for x in _VALUES["x"].values()], box.left, box.right)
        down = hits([frame.clicked(0, y)[1] for y in _VALUES["y"].values()], box.top, box.bottom)
        return [columns[index] for index in across], [rows[index] for index in down]


class PatchPoints:
    """Encodes a point as two tokens: `<pointer>`, then the patch that contains the point."""

    def encode(self, x: float, y: float) -> list[int]:
        """Return the two tokens of a point, given as shares of the screen; a share above 1 counts as 1."""
        return [_PATCH_IDS[POINTER], _PATCH_IDS[patch_token(GRID.patch_at(x, y))]]

    def decode(self, ids: Sequence[int], centre: Point | None = None) -> Point:
        """Return `centre` if it is given, else the centre of the patch.

        Raises LookupError for other tokens, and ValueError for another number of tokens.
        """
        pointer, patch = ids
        index = patch - _PATCH_IDS[patch_token(0)]
        if pointer != _PATCH_IDS[POINTER] or not 0 <= index < GRID.patches:
            raise LookupError(f"expected {POINTER} and a patch, got the tokens {list(ids)}")
        return centre or GRID.centre(index)

    def that_click(self, box: Box, frame: CoordinateFrame) -> tuple[list[int], list[int]]:
        """Return `<pointer>`, and the patches whose clicks hit a box, given in pixels of the screen."""
        patches = patches_that_click(box, GRID, frame.clicked)
        return [_PATCH_IDS[POINTER]], [_PATCH_IDS[patch_token(0)] + patch for patch in patches]


class PromptCodec(Codec):
    """Turns instructions, histories and answers into token ids and back.

    `image_tokens` is the number of placeholders that one screenshot takes in a prompt. The policy sees the
    current screenshot only, reads no hints and writes no thoughts: an answer is an action and nothing else.
    The policy writes points as patches if the tokenizer has the token `<pointer>`, else as bins.
    """

    never_sampled = ()

    def __init__(self, tokenizer: Tokenizer, image_tokens: int) -> None:
        self._text = Tokenizer.from_str(tokenizer.to_str())
        self._text.encode_special_tokens = True  # "<click>" in an instruction is text, never an action
        self.vocabulary_size = self._text.get_vocab_size()
        self.image_tokens = image_tokens
        self.coordinates: Coordinates = "bins" if tokenizer.token_to_id(POINTER) is None else "pointer"
        self.pointer = None if self.coordinates == "bins" else POINTER_TOKENS
        self.eos_id = special_ids()[EOS]
        self.end_ids = (self.eos_id,)
        self._points = BinPoints() if self.coordinates == "bins" else PatchPoints()
        self._tokens = {index: token for token, index in special_ids(self.coordinates).items()}

    def encode_prompt(
        self, instruction: str, history: Sequence[str], frame: CoordinateFrame = FRAME
    ) -> list[int]:
        """Return the tokens of a prompt: image placeholders, instruction, step counter, past answers (latest
        first) and `<answer>`.

        history   past answers, with points in pixels of the screen that `frame` describes
        """
        ids = special_ids()
        past = [
            token
            for answer in list(reversed(history))[:HISTORY_ANSWERS]
            for token in self._encode_past(answer, instruction, frame)
        ]
        return [
            *([ids[IMAGE]] * self.image_tokens),
            *self._encode_text(instruction),
            ids[step_token(len(history))],
            *past,
            ids[ANSWER],
        ]

    def encode_answer(self, action_text: str, instruction: str) -> list[int]:
        """Return the tokens of an answer, end token included. Raises ActionParseError.

        action_text   in the action grammar, with points in pixels of the policy's frame of 160x210 pixels
        """
        return self.encode_action(action_text, instruction, FRAME)

    def decode_action(
        self,
        token_ids: Sequence[int],
        instruction: str,
        frame: CoordinateFrame = FRAME,
        centres: Centres = (),
    ) -> str:
        """Return the text of the action in these tokens, with points in pixels of the screen.

        For tokens that are not an action, return a text that lists their names and that the parser of
        `dart.core.actions` refuses.
        """
        ids = list(token_ids)
        if not ids or ids[-1] != self.eos_id:
            return self._spell(ids)
        try:
            action = self._decode_action(ids[:-1], quoted_spans(instruction), frame, centres)
            text = format_action(action)
            parse_action(text)
        except (ValueError, LookupError):
            return self._spell(ids)
        return text

    def shown(self, request: GenerateRequest) -> tuple[str, ...]:
        return (request.screenshot_sha256,)

    def screen(self, sha256: str, png: bytes) -> Screen:
        pixels = load_pixels(png)
        height_px, width_px, _ = pixels.shape
        return Screen(sha256, fitted(pixels), frame_at_size(width_px, height_px))

    def prompt(self, request: GenerateRequest, screens: Sequence[Screen]) -> Prompt:
        frame = screens[-1].frame  # the screen keeps its size for an episode, so past points fit it too
        return Prompt(tuple(self.encode_prompt(request.instruction, request.history, frame)))

    def encode_action(self, action_text: str, instruction: str, frame: CoordinateFrame) -> list[int]:
        return [*self._encode_action(parse_action(action_text), instruction, frame), self.eos_id]

    def lacks_thought(self, token_ids: Sequence[int]) -> bool:
        return False

    def same_element(
        self, token_ids: Sequence[int], box: Box, frame: CoordinateFrame
    ) -> dict[int, list[int]]:
        """Return, by position in the answer, the tokens that would click the same element there.

        The result is empty for an answer without a point or with two, and for one whose point is not in the
        box.

        box   the element, in pixels of the screen
        """
        name = self._tokens.get(token_ids[0], "")[1:-1] if token_ids else ""
        if _FORMS.get(name, (None, 0))[1] != 1 or len(token_ids) < 3:
            return {}
        found = self._points.that_click(box, frame)
        is_inside = all(token in tokens for token, tokens in zip(token_ids[1:3], found, strict=True))
        return (
            {place: tokens for place, tokens in enumerate(found, 1) if len(tokens) > 1} if is_inside else {}
        )

    def _encode_text(self, text: str) -> list[int]:
        return self._text.encode(text, add_special_tokens=False).ids

    def _encode_past(self, answer: str, instruction: str, frame: CoordinateFrame) -> list[int]:
        try:
            return self._encode_action(parse_action(answer), instruction, frame)
        except ActionParseError:
            return self._encode_text(answer)

    def _encode_action(self, action: Action, instruction: str, frame: CoordinateFrame) -> list[int]:
        match action:
            case Hotkey(keys):
                return [*_ids("<hotkey>"), *self._encode_text(" ".join(keys))]
            case Type(content):
                return [*_ids("<type>"), *self._encode_content(content, quoted_spans(instruction))]
        name = _NAMES.get(type(action))
        if name is None:
            raise ActionParseError(
                "expected an action for which the small policy has a token", format_action(action)
            )
        values = list(astuple(action))
        points = _FORMS[name][1]
        shares = (
            (share_at(values[2 * n], frame.width_px), share_at(values[2 * n + 1], frame.height_px))
            for n in range(points)
        )
        pairs = (self._points.encode(x, y) for x, y in shares)
        directions = _ids(*(f"<{direction}>" for direction in values[2 * points :]))
        return [*_ids(f"<{name}>"), *chain.from_iterable(pairs), *directions]

    def _encode_content(self, content: str, spans: Sequence[str]) -> list[int]:
        if content in spans:
            return _ids(copy_token(spans.index(content)))
        return self._encode_text(content)

    def _decode_action(
        self, ids: Sequence[int], spans: Sequence[str], frame: CoordinateFrame, centres: Centres
    ) -> Action:
        """Return the action of an answer, whose end token is already removed.

        Raises ValueError or LookupError for tokens that are not an action.
        """
        name, rest = self._tokens[ids[0]][1:-1], ids[1:]
        if name == "type":
            return Type(self._decode_content(rest, spans))
        if name == "hotkey":
            return Hotkey(tuple(self._decode_content(rest, ()).split(" ")))
        build, points = _FORMS[name]
        pairs = [rest[2 * n : 2 * n + 2] for n in range(points)]
        shares = (self._points.decode(*pair) for pair in zip_longest(pairs, centres[:points]))
        found = [frame.clicked(x, y) for x, y in shares]
        directions = [_VALUES["d"][token] for token in rest[2 * points :]]
        if len(directions) != (build is Scroll):
            raise ValueError(f"expected one direction after a scroll and none elsewhere, got {directions}")
        return build(*chain.from_iterable(found), *directions)

    def _decode_content(self, ids: Sequence[int], spans: Sequence[str]) -> str:
        """Decode text tokens and copy tokens (`<q1>`) in order.

        Raises ValueError for other special tokens, and LookupError for a copy of a span that is not there.
        """
        first_copy = special_ids()[copy_token(0)]
        parts: list[str] = []
        run: list[int] = []
        for token_id in ids:
            if first_copy <= token_id < first_copy + MAX_COPIES:
                parts += (self._text.decode(run), spans[token_id - first_copy])
                run = []
            elif token_id in self._tokens or not 0 <= token_id < self.vocabulary_size:
                raise ValueError(f"expected text or a copy, got the token {token_id}")
            else:
                run.append(token_id)
        return "".join((*parts, self._text.decode(run)))

    def _spell(self, ids: Sequence[int]) -> str:
        known = range(self.vocabulary_size)
        names = (str(self._text.id_to_token(index)) if index in known else f"<{index}>" for index in ids)
        return " ".join(("not an action:", *names))


_FORMS: Mapping[str, tuple[Callable[..., Action], int]] = {
    "click": (Click, 1),
    "left_double": (LeftDouble, 1),
    "right_single": (RightSingle, 1),
    "drag": (Drag, 2),
    "scroll": (Scroll, 1),
    "wait": (Wait, 0),
    "finished": (Finished, 0),
}
"""Class and number of points of every action without text. In a scroll, a direction follows the point."""

_NAMES = {build: name for name, (build, _) in _FORMS.items()}

_PATCH_IDS = special_ids("pointer")

_VALUES: Mapping[str, Mapping[int, Any]] = {
    "x": {special_ids()[x_token(bin_)]: (bin_ + 0.5) * BIN_PX / FRAME_WIDTH_PX for bin_ in range(X_BINS)},
    "y": {special_ids()[y_token(bin_)]: (bin_ + 0.5) * BIN_PX / FRAME_HEIGHT_PX for bin_ in range(Y_BINS)},
    "d": {special_ids()[f"<{direction}>"]: direction for direction in DIRECTIONS},
}
"""The value of each token id, by kind: for `x` and `y` the middle of the bin as a share of the side, for `d`
the direction."""


POINTER_TOKENS = PointerTokens(token_id=_PATCH_IDS[POINTER], first_patch_id=_PATCH_IDS[patch_token(0)])


def _ids(*tokens: str) -> list[int]:
    return [special_ids()[token] for token in tokens]


def load_pixels(png: bytes) -> Pixels:
    """Decode a screenshot to uint8 [H, W, 3].

    Raises `PixelFrameError` when the bytes are not an image, or when the image has too many pixels.
    """
    try:
        with opened_picture(BytesIO(png)) as image:
            return np.array(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise PixelFrameError(f"expected a PNG screenshot, got {len(png)} bytes: {error}") from error


def fitted(pixels: Pixels) -> Pixels:
    """Resize a screenshot to the policy's frame, uint8 [210, 160, 3], without keeping its aspect ratio."""
    if pixels.shape[:2] == (FRAME_HEIGHT_PX, FRAME_WIDTH_PX):
        return pixels
    resized = Image.fromarray(pixels).resize((FRAME_WIDTH_PX, FRAME_HEIGHT_PX), Image.Resampling.BICUBIC)
    return np.array(resized)
