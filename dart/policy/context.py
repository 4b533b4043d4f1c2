"""The part of an episode in a vision-language policy's prompt: recent screenshots and answers as a
conversation.

The instruction always comes first. The prompt holds at most `context.turns` past answers and the last
`context.screenshots` screenshots (in DART's code: 35 and 5). Past answers keep the tokens with which they
were sampled. Pure: engines build prompts with these functions, imported demonstrations get the same prompts,
and training reads the recorded prompt.
"""

from collections.abc import Sequence
from itertools import accumulate

from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest, PastStep

MAX_PAST_TOKENS = 8_000
"""Limit of the tokens of past answers in a request. A message has at most 64 KiB, a token takes up to five
bytes, and the reply to the request repeats the prompt."""

MAX_HISTORY_CHARACTERS = 4_000
"""Limit of the characters of past actions in a request, because a message has at most 64 KiB."""

MAX_HINT_CHARACTERS = 4_000
"""Limit of the characters of a hint's actions in a request."""


def told_steps(request: GenerateRequest, limits: ContextSettings) -> tuple[PastStep, ...]:
    """Return the past steps whose answers are in the prompt, oldest first."""
    return request.past[max(0, len(request.past) - limits.turns) :]


def shown_flags(request: GenerateRequest, limits: ContextSettings) -> list[bool]:
    """Return, for each step of `told_steps`, whether its screenshot is in the prompt, and True at the end.

    The last entry is the current screenshot. Screenshots between old answers are left out, so two answers
    may follow each other.
    """
    count = len(told_steps(request, limits))
    return [count - index < limits.screenshots for index in range(count)] + [True]


def shown_screenshots(request: GenerateRequest, limits: ContextSettings) -> tuple[str, ...]:
    """Return the sha256 of the conversation's screenshots, oldest first; the last is the current screen."""
    steps: tuple[PastStep | GenerateRequest, ...] = (*told_steps(request, limits), request)
    return tuple(
        step.screenshot_sha256
        for step, is_shown in zip(steps, shown_flags(request, limits), strict=True)
        if is_shown
    )


def count_fitting(sizes: Sequence[int], budget: int) -> int:
    """Return the largest number of last entries of `sizes` whose sum is at most `budget`."""
    return sum(total <= budget for total in accumulate(reversed(sizes)))


def newest_past(past: Sequence[PastStep]) -> tuple[PastStep, ...]:
    """Return the newest steps whose answers fit into a request."""
    count = count_fitting([len(step.token_ids) for step in past], MAX_PAST_TOKENS)
    return tuple(past[len(past) - count :])


def first_actions(actions: Sequence[str]) -> tuple[str, ...]:
    """Return the first actions, as many as fit into a request as a hint."""
    count = count_fitting([len(action) for action in reversed(actions)], MAX_HINT_CHARACTERS)
    return tuple(actions[:count])


def newest_history(history: Sequence[str]) -> tuple[str, ...]:
    """Return the newest actions that fit into a request."""
    count = count_fitting([len(answer) for answer in history], MAX_HISTORY_CHARACTERS)
    return tuple(history[len(history) - count :])
