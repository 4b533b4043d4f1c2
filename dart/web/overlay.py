"""The marks that show an action on the screenshot that the policy saw. Pure.

A click is a cross, a drag an arrow, a scroll an arrow in its direction. Typed text and pressed keys, which
have no place on the screen, are a label at the lower edge. The size of marks is proportional to the picture,
so that they look the same on a small task page and on a desktop.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

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
