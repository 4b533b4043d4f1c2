"""An episode as the pages show it, step by step: screenshot with marks, answer, tokens, versions.

The marks show an action on the screenshot that the policy saw. A click is a cross, a drag an arrow, a scroll
an arrow in its direction. Typed text and pressed keys, which have no place on the screen, are a label at the
lower edge. The size of marks is proportional to the picture, so that they look the same on a small task
page and on a desktop.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from dart.core.actions import (
    Action,
    ActionParseError,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    Hover,
    KeyboardAction,
    KeyDown,
    KeyUp,
    LeftDouble,
    RightSingle,
    Scroll,
    ScrollHere,
    Type,
    Wait,
    parse_actions,
)
from dart.core.types import Step

ARM = 0.03
"""Half the width of a cross, as a share of the picture's longer side. It is the unit for the sizes of
marks."""

SCROLL_ARMS = 3.0
LETTER_ARMS = 1.5
"""Height of the letters of a label, as a multiple of `ARM`."""

LETTER_WIDTH = 0.6
"""Width of a monospaced letter, as a share of its height."""

_TOWARDS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


@dataclass(frozen=True, slots=True)
class Mark:
    """An SVG element that marks a picture; its coordinates are pixels of the picture."""

    tag: Literal["line", "circle", "polygon", "rect", "text"]
    attributes: Mapping[str, float | str]
    text: str = ""

    @property
    def is_stroke(self) -> bool:
        """Whether the mark is drawn twice, dark over a wider light line, to be visible on any picture."""
        return self.tag in ("line", "circle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """The marks to draw on a picture, and a caption."""

    marks: tuple[Mark, ...]
    caption: str
    is_action: bool = True
    """Whether the answer could be parsed as actions."""


def overlay(answer: str, width: int, height: int) -> Overlay:
    """Return the marks and the caption of an answer on a picture of `width` x `height` pixels.

    If the answer cannot be parsed as actions, there are no marks, and the caption says why.
    """
    try:
        actions = parse_actions(answer)
    except ActionParseError as error:
        problem = str(error).partition(", got:")[0]
        return Overlay(marks=(), caption=f"no action: {problem}", is_action=False)
    captions = []
    for action in actions:
        outside = "" if _is_inside(action, width, height) else ", outside of the picture"
        captions.append(f"{caption_of(action)}{outside}")
    return Overlay(marks=_all_marks(actions, width, height), caption="; then ".join(captions))


def _all_marks(actions: Sequence[Action], width: int, height: int) -> tuple[Mark, ...]:
    """Return the marks of an answer's actions. Texts, keys and scrolls without a point share one label."""
    placed = [mark for one in actions if not _has_label(one) for mark in marks_of(one, width, height)]
    labelled = [caption_of(action) for action in actions if _has_label(action)]
    if not labelled:
        return tuple(placed)
    return (*placed, *_label("; ".join(labelled), width, height, LETTER_ARMS * ARM * max(width, height)))


def _has_label(action: Action) -> bool:
    return isinstance(action, KeyboardAction | ScrollHere)


def marks_of(action: Action, width: int, height: int) -> tuple[Mark, ...]:
    """Return the marks that show an action on a picture of `width` x `height` pixels.

    A point outside the picture is drawn at its edge.
    """
    arm = ARM * max(width, height)

    def inside(x: int, y: int) -> tuple[float, float]:
        return float(min(x, width - 1)), float(min(y, height - 1))

    match action:
        case Click(x, y):
            return _cross(*inside(x, y), arm)
        case LeftDouble(x, y):
            return (*_cross(*inside(x, y), arm), _ring(*inside(x, y), arm), _ring(*inside(x, y), 1.6 * arm))
        case RightSingle(x, y):
            return (*_cross(*inside(x, y), arm), _ring(*inside(x, y), arm))
        case Drag(x, y, end_x, end_y):
            return (_ring(*inside(x, y), 0.5 * arm), *_arrow(*inside(x, y), *inside(end_x, end_y), arm))
        case Scroll(x, y, direction):
            at, (dx, dy) = inside(x, y), _TOWARDS[direction]
            reach = SCROLL_ARMS * arm
            return (_ring(*at, 0.5 * arm), *_arrow(*at, at[0] + dx * reach, at[1] + dy * reach, arm))
        case Hover(x, y):
            return (_ring(*inside(x, y), arm),)
        case Type() | Hotkey() | KeyDown() | KeyUp() | ScrollHere():
            return _label(caption_of(action), width, height, LETTER_ARMS * arm)
        case Wait() | Finished() | CallUser():
            return ()


CAPTIONS: Mapping[type[Action], str] = {
    Click: "click at {x}, {y}",
    LeftDouble: "double click at {x}, {y}",
    RightSingle: "right click at {x}, {y}",
    Drag: "drag from {x}, {y} to {end_x}, {end_y}",
    Scroll: "scroll {direction} at {x}, {y}",
    Type: "type “{content}”",
    Hotkey: "press {keys}",
    KeyDown: "hold {key}",
    KeyUp: "release {key}",
    Hover: "move to {x}, {y}",
    ScrollHere: "scroll {direction}",
    Wait: "wait",
    Finished: "says that it is done",
    CallUser: "says that it cannot be done",
}


def caption_of(action: Action) -> str:
    """Describe an action in words."""
    fields = asdict(action)
    if isinstance(action, Hotkey):
        fields["keys"] = " + ".join(action.keys)
    return CAPTIONS[type(action)].format(**fields).replace("\n", "⏎").replace("\t", "⇥")


def _line(x1: float, y1: float, x2: float, y2: float) -> Mark:
    return Mark("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2})


def _ring(x: float, y: float, radius: float) -> Mark:
    return Mark("circle", {"cx": x, "cy": y, "r": radius})


def _cross(x: float, y: float, arm: float) -> tuple[Mark, ...]:
    return _line(x - arm, y, x + arm, y), _line(x, y - arm, x, y + arm)


def _arrow(x1: float, y1: float, x2: float, y2: float, arm: float) -> tuple[Mark, ...]:
    """Draw an arrow as a line and a head; no mark if the arrow begins and ends in the same point."""
    length = math.hypot(x2 - x1, y2 - y1)
    if length == 0:
        return ()
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    back, half = min(1.2 * arm, length), 0.6 * arm
    base_x, base_y = x2 - back * ux, y2 - back * uy
    corners = ((x2, y2), (base_x - half * uy, base_y + half * ux), (base_x + half * uy, base_y - half * ux))
    points = " ".join(f"{round(x, 2):g},{round(y, 2):g}" for x, y in corners)
    return _line(x1, y1, base_x, base_y), Mark("polygon", {"class": "head", "points": points})


def _label(text: str, width: int, height: int, letter: float) -> tuple[Mark, ...]:
    """Draw a text on a plate at the lower edge of the picture. The text is cut to the picture's width.

    letter   height of the letters, in pixels of the picture
    """
    fits = max(2, int(width / (letter * LETTER_WIDTH)) - 2)
    shown = text if len(text) <= fits else f"{text[: fits - 1]}…"
    plate = {
        "x": 0.7 * letter,
        "y": height - 2.05 * letter,
        "width": (len(shown) + 1) * letter * LETTER_WIDTH,
        "height": 1.4 * letter,
        "rx": letter / 4,
    }
    return (
        Mark("rect", {"class": "plate", **plate}),
        Mark("text", {"class": "label", "x": letter, "y": height - letter, "font-size": letter}, shown),
    )


def _is_inside(action: Action, width: int, height: int) -> bool:
    points = [(getattr(action, "x", 0), getattr(action, "y", 0))]
    if isinstance(action, Drag):
        points.append((action.end_x, action.end_y))
    return all(x < width and y < height for x, y in points)


Size = tuple[int, int]
"""Width and height of a picture in pixels."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer, as it was sampled."""

    text: str
    probability: float
    logprob: float
    entropy: float
    """Entropy of the distribution that the token was sampled from, in nats."""

    @property
    def tone(self) -> str:
        """The CSS class for the token's probability: from `p0`, below 0.2, to `p4`, from 0.8."""
        return f"p{min(4, int(self.probability * 5))}"


NO_SIZE: Size = (160, 210)
"""Width and height in pixels that a missing screenshot is assumed to have."""


@dataclass(frozen=True, kw_only=True)
class StepView:
    """One environment step with everything that a page shows of it."""

    number: int
    """Number of the step in its episode, from 1."""
    step: Step
    size: Size | None
    """Width and height of the screenshot in pixels; None if the screenshot is missing or damaged."""
    tokens: tuple[Token, ...]
    """The tokens of the answer; empty if the answer was not sampled by a known policy."""
    staleness: int | None
    """Number of policy versions between sampling and training of the step; None if it was not trained."""

    @cached_property
    def overlay(self) -> Overlay:
        return overlay(self.step.answer, *(self.size or NO_SIZE))

    @property
    def prompt_tokens(self) -> int:
        return len(self.step.prompt_ids) + sum(image.tokens - 1 for image in self.step.images)

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the answer's tokens, in nats; None if unknown. It decides on high-entropy steps."""
        return fmean(self.step.entropies) if self.step.entropies else None

    @property
    def probability(self) -> float | None:
        """Probability of the whole answer; None if the answer was not sampled by a known policy."""
        return math.exp(min(0.0, sum(self.step.logprobs))) if self.step.has_behaviour else None


def views(
    steps: Sequence[Step],
    size_of: Callable[[str], Size | None],
    token_texts: Mapping[int, str],
    trained_version: int | None,
) -> tuple[StepView, ...]:
    """Return the steps of one episode as a web page shows them.

    size_of           returns width and height of a screenshot in pixels, given its sha256
    token_texts       text of each token id; a token without a text is shown by its id
    trained_version   the version made by the update that trained this episode; None if it was not trained
    """
    sizes = {sha256: size_of(sha256) for sha256 in {step.screenshot_sha256 for step in steps}}
    return tuple(
        StepView(
            number=number,
            step=step,
            size=sizes[step.screenshot_sha256],
            tokens=_tokens(step, token_texts) if step.has_behaviour else (),
            staleness=None if trained_version is None else trained_version - 1 - step.policy_version,
        )
        for number, step in enumerate(steps, start=1)
    )


def _tokens(step: Step, texts: Mapping[int, str]) -> tuple[Token, ...]:
    return tuple(
        Token(texts.get(token, f"#{token}"), math.exp(min(0.0, logprob)), logprob, entropy)
        for token, logprob, entropy in zip(step.token_ids, step.logprobs, step.entropies, strict=True)
    )


def first_difference(first: Sequence[Step], second: Sequence[Step]) -> int | None:
    """Return the number of the first step, from 1, in which two episodes differ in screenshot or answer.

    None if all steps are equal. An episode that is shorter differs in the first step that it lacks.
    """
    pairs = enumerate(zip_longest(first, second), start=1)
    return next((number for number, (one, other) in pairs if _seen(one) != _seen(other)), None)


def _seen(step: Step | None) -> tuple[str, str] | None:
    return None if step is None else (step.screenshot_sha256, step.answer)


FILE = "tokenizer.json"
FILE_BYTES_MOST = 64 << 20
"""Largest tokenizer.json that is read; those of policies with 7 B parameters have about 11 MB."""

_BYTES_AS_LETTERS = str.maketrans({"Ġ": "␣", "Ċ": "⏎"})
"""What is shown for the letters by which a byte-level tokenizer writes a space and a line break."""


def token_texts(policy: Path) -> dict[int, str]:
    """Read the text of each token id; empty if the policy's folder has no readable tokenizer.json."""
    path = policy / FILE
    try:
        status = path.stat()
    except OSError:
        return {}
    return _read(path, status.st_mtime_ns) if status.st_size <= FILE_BYTES_MOST else {}


@lru_cache(maxsize=2)
def _read(path: Path, mtime_ns: int) -> dict[int, str]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        texts = {int(number): text for text, number in content["model"]["vocab"].items()}
        texts |= {int(token["id"]): token["content"] for token in content.get("added_tokens", ())}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}  # a tokenizer of another kind: its tokens are shown by their numbers
    return {number: str(text).translate(_BYTES_AS_LETTERS) for number, text in texts.items()}
