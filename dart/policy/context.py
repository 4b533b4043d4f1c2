"""Selects the part of an episode that a vision-language policy's prompt shows: recent screenshots and
answers, as a conversation.

The instruction always comes first. The prompt holds at most `context.turns` past answers and the last
`context.screenshots` screenshots (in DART's code: 35 and 5). Past answers keep the tokens with which they
were sampled. Engines and the import of demonstrations build prompts with these functions, which are pure.
Training reads the recorded prompts instead.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from dart.config.sections import ContextSettings
from dart.core.actions import (
    ActionParseError,
    Click,
    LeftDouble,
    RightSingle,
    format_action,
    parse_action,
)
from dart.core.boxes import Box
from dart.core.types import GenerateRequest, PastStep

MAX_PAST_TOKENS = 8_000
"""Limit of the tokens of past answers in a request. A message has at most 64 KiB, a token takes up to five
bytes, and the reply to the request repeats the prompt."""

MAX_HISTORY_CHARACTERS = 4_000
"""Limit of the characters of past actions in a request, because a message has at most 64 KiB."""

MAX_HINT_CHARACTERS = 4_000
"""Limit of the characters of a hint's actions in a request."""


def told_steps(request: GenerateRequest, limits: ContextSettings) -> tuple[PastStep, ...]:
    """Return the past steps whose answers are in the prompt, oldest first: the last `limits.turns` ones."""
    return request.past[max(0, len(request.past) - limits.turns) :]


def shown_flags(request: GenerateRequest, limits: ContextSettings) -> list[bool]:
    """Return, for each step of `told_steps`, whether its screenshot is in the prompt, and then True.

    The final True stands for the current screenshot. Older screenshots are left out, so two old answers may
    follow each other directly.
    """
    count = len(told_steps(request, limits))
    return [count - index < limits.screenshots for index in range(count)] + [True]


def shown_screenshots(request: GenerateRequest, limits: ContextSettings) -> tuple[str, ...]:
    """Return the sha256 of the screenshots in the prompt, oldest first; the last is the current screen."""
    steps: tuple[PastStep | GenerateRequest, ...] = (*told_steps(request, limits), request)
    return tuple(
        step.screenshot_sha256
        for step, is_shown in zip(steps, shown_flags(request, limits), strict=True)
        if is_shown
    )


def count_fitting(sizes: Sequence[int], budget: int) -> int:
    """Return how many entries at the end of `sizes` have together at most `budget`."""
    return sum(total <= budget for total in accumulate(reversed(sizes)))


def newest_past(past: Sequence[PastStep]) -> tuple[PastStep, ...]:
    """Return the newest steps, oldest first, whose answers have together at most MAX_PAST_TOKENS tokens."""
    count = count_fitting([len(step.token_ids) for step in past], MAX_PAST_TOKENS)
    return tuple(past[len(past) - count :])


def first_actions(actions: Sequence[str]) -> tuple[str, ...]:
    """Return the first actions that have together at most MAX_HINT_CHARACTERS characters, for a hint."""
    count = count_fitting([len(action) for action in reversed(actions)], MAX_HINT_CHARACTERS)
    return tuple(actions[:count])


def history_answer(answer: str, box: tuple[float, float, float, float] | None) -> str:
    """Return a past answer as the small policy's prompts show it: a click moves to its element's middle.

    Which point of an element was clicked rarely matters later. Episodes that clicked the same elements have
    the same prompts, and training computes these once.

    answer   actions in the action grammar, or other text, which is returned as it is
    box      left, top, right and bottom of the clicked element in pixels of the screen; None if unknown
    """
    if box is None:
        return answer
    try:
        action = parse_action(answer)
    except ActionParseError:
        return answer
    if not isinstance(action, Click | LeftDouble | RightSingle):
        return answer
    x, y = Box(*box).centre
    return format_action(replace(action, x=int(x), y=int(y)))


def newest_history(history: Sequence[str]) -> tuple[str, ...]:
    """Return the newest actions, oldest first, that have together at most MAX_HISTORY_CHARACTERS."""
    count = count_fitting([len(answer) for answer in history], MAX_HISTORY_CHARACTERS)
    return tuple(history[len(history) - count :])
