"""The codec of the small policy: instructions to prompt tokens, actions to answer tokens and back.

An answer is text in the action grammar of `dart.core.actions`; its tokens are those of
`dart.policy.vocabulary`. Engines, trainer and imitation share plain lists of ints, so this
module does not import torch.
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from dart.core.actions import (
    Action,
    ActionParseError,
    CallUser,
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
from dart.core.types import GenerateRequest
from dart.policy.context import Screenshot
from dart.policy.coordinates import CoordinateFrame
from dart.policy.protocols import PixelFrameError, Pixels, Prompt, Screen
from dart.policy.vocabulary import (
    ACTIONS,
    ANSWER,
    DIRECTIONS,
    EOS,
    FRAME_HEIGHT_PX,
    FRAME_WIDTH_PX,
    IMAGE,
    MAX_COPIES,
    PAD,
    X_BINS,
    Y_BINS,
    bin_center_px,
    copy_token,
    quoted_spans,
    special_ids,
    step_token,
    x_token,
    y_token,
)

HISTORY_ANSWERS = 4
"""Number of past answers in a prompt, the latest first."""

FRAME = CoordinateFrame(
    width_px=FRAME_WIDTH_PX,
    height_px=FRAME_HEIGHT_PX,
    shown_width_px=FRAME_WIDTH_PX,
    shown_height_px=FRAME_HEIGHT_PX,
)
"""The screenshot's own pixels: this policy sees the screen without resizing."""


class PromptCodec:
    """Turns instructions, histories and answers into token ids and back.

    `image_tokens` is the number of placeholders that one screenshot takes in a prompt.
    """

    never_sampled: tuple[int, ...] = ()
    """Empty: an answer may hold any token."""

    def __init__(self, tokenizer: Tokenizer, image_tokens: int) -> None:
        self._text = Tokenizer.from_str(tokenizer.to_str())
        self._text.encode_special_tokens = True  # "<click>" in an instruction is text, never an action
        self._vocab_size = self._text.get_vocab_size()
        self.image_tokens = image_tokens
        self.eos_id = special_ids()[EOS]
        self.end_ids: tuple[int, ...] = (self.eos_id,)
        self.pad_id = special_ids()[PAD]
        self._tokens = {index: token for token, index in special_ids().items()}

    def encode_prompt(self, instruction: str, history: Sequence[str]) -> list[int]:
        """Return image placeholders, instruction, step counter, past answers (latest first) and
        `<answer>`."""
        ids = special_ids()
        past = [
            token
            for answer in list(reversed(history))[:HISTORY_ANSWERS]
            for token in self._encode_past(answer, instruction)
        ]
        return [
            *([ids[IMAGE]] * self.image_tokens),
            *self._encode_text(instruction),
            ids[step_token(len(history))],
            *past,
            ids[ANSWER],
        ]

    def encode_answer(self, action_text: str, instruction: str) -> list[int]:
        """Return the tokens of an action, end token included. Raises `ActionParseError`."""
        return [*self._encode_action(parse_action(action_text), instruction), self.eos_id]

    def decode_answer(self, token_ids: Sequence[int], instruction: str) -> str:
        """Return the text of the action in these tokens. Never raises: tokens that are not an action come
        out as a list of their names, which the strict parser refuses."""
        ids = list(token_ids)
        if not ids or ids[-1] != self.eos_id:
            return self._spell(ids)
        try:
            action = self._decode_action(ids[:-1], quoted_spans(instruction))
            text = format_action(action)
            parse_action(text)
        except (ValueError, IndexError):
            return self._spell(ids)
        return text

    # ---- the rest of `dart.policy.protocols.Codec` ----

    def shown(self, request: GenerateRequest) -> tuple[Screenshot, ...]:
        """Return the current screenshot, the only one in a prompt."""
        return (Screenshot(request.screenshot_path, request.screenshot_sha256),)

    def screen(self, sha256: str, png: bytes) -> Screen:
        """Decode a screenshot. Raises PixelFrameError."""
        return Screen(sha256, load_pixels(png), FRAME)

    def prompt(self, request: GenerateRequest, screens: Sequence[Screen]) -> Prompt:
        """See `encode_prompt`. This policy cannot read a hint."""
        return Prompt(tuple(self.encode_prompt(request.instruction, request.history)))

    def encode_action(self, action_text: str, instruction: str, frame: CoordinateFrame) -> list[int]:
        """See `encode_answer`: an answer of this policy is its action."""
        return self.encode_answer(action_text, instruction)

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        return self._vocab_size

    def lacks_thought(self, token_ids: Sequence[int]) -> bool:
        """Return False: this policy writes no thoughts."""
        return False

    def decode_action(self, token_ids: Sequence[int], instruction: str, frame: CoordinateFrame) -> str:
        """See `decode_answer`."""
        return self.decode_answer(token_ids, instruction)

    def _encode_text(self, text: str) -> list[int]:
        return self._text.encode(text, add_special_tokens=False).ids

    def _encode_past(self, answer: str, instruction: str) -> list[int]:
        try:
            return self._encode_action(parse_action(answer), instruction)
        except ActionParseError:
            return self._encode_text(answer)

    def _encode_action(self, action: Action, instruction: str) -> list[int]:
        match action:
            case Click(x, y):
                return _ids("<click>", x_token(x), y_token(y))
            case LeftDouble(x, y):
                return _ids("<left_double>", x_token(x), y_token(y))
            case RightSingle(x, y):
                return _ids("<right_single>", x_token(x), y_token(y))
            case Drag(x, y, end_x, end_y):
                return _ids("<drag>", x_token(x), y_token(y), x_token(end_x), y_token(end_y))
            case Scroll(x, y, direction):
                return _ids("<scroll>", x_token(x), y_token(y), f"<{direction}>")
            case Hotkey(keys):
                return [*_ids("<hotkey>"), *self._encode_text(" ".join(keys))]
            case Type(content):
                return [*_ids("<type>"), *self._encode_content(content, quoted_spans(instruction))]
            case Wait():
                return _ids("<wait>")
            case Finished():
                return _ids("<finished>")
            case CallUser():
                raise ActionParseError(
                    "expected an action this policy has a token for", format_action(action)
                )

    def _encode_content(self, content: str, spans: Sequence[str]) -> list[int]:
        if content in spans:
            return _ids(copy_token(spans.index(content)))
        return self._encode_text(content)

    def _decode_action(self, ids: Sequence[int], spans: Sequence[str]) -> Action:
        name = self._tokens.get(ids[0], "")[1:-1]
        if name not in ACTIONS:
            raise ValueError(f"expected an action token first, got: {ids[0]}")
        rest = list(ids[1:])
        if name == "type":
            return Type(self._decode_content(rest, spans))
        if name == "hotkey":
            return Hotkey(tuple(self._decode_content(rest, ()).split(" ")))
        if name == "scroll":
            x, y = self._decode_points(rest[:-1], 1)
            return Scroll(x, y, self._decode_direction(rest[-1]))
        if name == "drag":
            return Drag(*self._decode_points(rest, 2))
        if name in _POINTING:
            return _POINTING[name](*self._decode_points(rest, 1))
        if rest:
            raise ValueError(f"expected nothing after <{name}>, got: {rest}")
        return Wait() if name == "wait" else Finished()

    def _decode_points(self, ids: Sequence[int], points: int) -> tuple[int, ...]:
        """Decode `points` pairs of an x and a y token to pixels."""
        if len(ids) != 2 * points:
            raise ValueError(f"expected {points} points, got the tokens: {ids}")
        first_x, first_y = special_ids()[x_token(0)], special_ids()[y_token(0)]
        pixels: list[int] = []
        for x_id, y_id in zip(ids[::2], ids[1::2], strict=True):
            if not (first_x <= x_id < first_x + X_BINS and first_y <= y_id < first_y + Y_BINS):
                raise ValueError(f"expected an x and a y token, got: {x_id}, {y_id}")
            pixels += (
                bin_center_px(x_id - first_x, FRAME_WIDTH_PX),
                bin_center_px(y_id - first_y, FRAME_HEIGHT_PX),
            )
        return tuple(pixels)

    def _decode_direction(self, token_id: int) -> str:
        direction = self._tokens.get(token_id, "")[1:-1]
        if direction not in DIRECTIONS:
            raise ValueError(f"expected a direction token, got: {token_id}")
        return direction

    def _decode_content(self, ids: Sequence[int], spans: Sequence[str]) -> str:
        """Decode text and copies in order; raises `ValueError` for other special tokens."""
        first_copy = special_ids()[copy_token(0)]
        parts: list[str] = []
        run: list[int] = []
        for token_id in ids:
            if first_copy <= token_id < first_copy + MAX_COPIES:
                parts += (self._text.decode(run), spans[token_id - first_copy])
                run = []
            elif token_id in self._tokens or not 0 <= token_id < self._vocab_size:
                raise ValueError(f"expected text or a copy, got the token {token_id}")
            else:
                run.append(token_id)
        return "".join((*parts, self._text.decode(run)))

    def _spell(self, ids: Sequence[int]) -> str:
        known = range(self._vocab_size)
        names = (str(self._text.id_to_token(index)) if index in known else f"<{index}>" for index in ids)
        return " ".join(("not an action:", *names))


_POINTING: dict[str, type[Click | LeftDouble | RightSingle]] = {
    "click": Click,
    "left_double": LeftDouble,
    "right_single": RightSingle,
}


def _ids(*tokens: str) -> list[int]:
    return [special_ids()[token] for token in tokens]


def load_pixels(source: bytes | str | Path) -> Pixels:
    """Load a screenshot as uint8 [210, 160, 3], from encoded bytes or a file.

    Raises `PixelFrameError` when it is not an image or has another size.
    """
    name = f"{len(source)} bytes" if isinstance(source, bytes) else str(source)
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source) as image:
            width_px, height_px = image.size  # checked first: an image of another size is never decoded
            is_frame = (width_px, height_px) == (FRAME_WIDTH_PX, FRAME_HEIGHT_PX)
            pixels = np.array(image.convert("RGB")) if is_frame else None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise PixelFrameError(f"expected a PNG screenshot, got {name}: {error}") from error
    if pixels is None:
        raise PixelFrameError(
            f"expected a screenshot of {FRAME_WIDTH_PX}x{FRAME_HEIGHT_PX} pixels,"
            f" got {width_px}x{height_px} ({name}): set the environment's screen to that size"
        )
    return pixels
