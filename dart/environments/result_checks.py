"""Checks of what the methods of an environment return, where an episode takes it. Pure.

No type checker may have read an environment of your own. Without these checks a wrong value fails far from
its cause: an instruction that is no text would be refused by the engines, which would then be blamed.
"""

import math
from io import BytesIO
from typing import Any

from dart.core.png import opened_picture, whole_png_size, without_rest
from dart.core.utf8 import is_utf8
from dart.environments.faults import CorruptFrame, WrongResult
from dart.environments.protocol import Observation, StepResult


def checked_observation(kind: str, method: str, returned: Any) -> Observation:
    """Return what `Environment.reset` or `Environment.observe` returned.

    kind     kind of the environment, for the message
    method   name of the method, for the message

    Raises WrongResult unless it is an Observation of bytes and of a text that can be written as UTF-8, and
    CorruptFrame unless the bytes are a whole PNG file; what follows its last chunk does not count.
    """
    if not isinstance(returned, Observation):
        raise WrongResult(kind, method, "an Observation", returned)
    instruction, screenshot = returned.instruction, returned.screenshot
    if not isinstance(instruction, str) or not is_utf8(instruction):
        raise WrongResult(kind, method, "an Observation whose instruction is text", instruction)
    if not isinstance(screenshot, bytes):
        raise WrongResult(
            kind, method, "an Observation whose screenshot is the bytes of a PNG file", screenshot
        )
    try:
        whole_png_size(without_rest(screenshot))
    except ValueError as error:
        raise CorruptFrame(str(error)) from error
    return returned


def refuse_undecodable(screenshot: bytes) -> None:
    """Raise CorruptFrame if a screenshot is a whole PNG file that cannot be decoded: it has too little data.

    Call this function when an engine has refused the screenshot. Decoding each one would take too long.
    """
    try:
        with opened_picture(BytesIO(screenshot)) as picture:
            picture.load()
    except (OSError, SyntaxError, ValueError) as error:
        raise CorruptFrame(str(error)) from error


def checked_step(kind: str, returned: Any) -> StepResult:
    """Return what `Environment.step` returned, with the sides of its box as floats.

    Raises WrongResult unless it is a StepResult, and its box, if it has one, is four finite numbers.
    """
    if not isinstance(returned, StepResult):
        raise WrongResult(kind, "step", "a StepResult", returned)
    if returned.box is None:
        return returned
    try:
        left, top, right, bottom = map(float, returned.box)
    except (TypeError, ValueError):
        left = top = right = bottom = math.nan
    if not all(map(math.isfinite, (left, top, right, bottom))):
        raise WrongResult(kind, "step", "a StepResult whose box is None or four numbers", returned.box)
    return StepResult(terminated=returned.terminated, box=(left, top, right, bottom))
