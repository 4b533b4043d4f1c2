"""The part of an episode in a vision-language policy's prompt: recent screenshots and answers as a
conversation.

The instruction always comes first. The prompt holds at most `context.turns` past answers and the last
`context.screenshots` screenshots (in DART's code: 35 and 5). Past answers keep the tokens with which they
were sampled. Pure: the engine builds prompts with it, imported demonstrations get the same prompts, and
training reads the recorded prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest, PastStep

MAX_PAST_TOKENS = 8_000
"""Limit of the tokens of past answers in a request. A message has at most 64 KiB, a token takes up to five
bytes, and the reply to the request repeats the prompt."""

MAX_HISTORY_CHARACTERS = 4_000
"""Limit of the characters of past actions in a request, for the same reason."""

MAX_HINT_CHARACTERS = 4_000
"""Limit of the characters of a hint's actions in a request."""


@dataclass(frozen=True, slots=True)
class Screenshot:
    """A screenshot in a prompt, by its file."""

    path: str
    sha256: str


@dataclass(slots=True)
class UserTurn:
    """One message to the policy."""

    has_instruction: bool = False
    screenshots: list[Screenshot] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AnswerTurn:
    """One past answer of the policy."""

    token_ids: tuple[int, ...]


Turn = UserTurn | AnswerTurn


def conversation(request: GenerateRequest, limits: ContextSettings) -> list[Turn]:
    """Return the messages before the requested answer.

    Two answers may follow each other, because the screenshots between old answers are left out.
    """
    recent = request.past[max(0, len(request.past) - limits.turns) :]
    turns: list[Turn] = [UserTurn(has_instruction=True)]
    for index, step in enumerate(recent):
        if len(recent) - index < limits.screenshots:
            _show(turns, Screenshot(step.screenshot_path, step.screenshot_sha256))
        turns.append(AnswerTurn(step.token_ids))
    _show(turns, Screenshot(request.screenshot_path, request.screenshot_sha256))
    return turns


def shown_screenshots(request: GenerateRequest, limits: ContextSettings) -> tuple[Screenshot, ...]:
    """Return the screenshots of the conversation, oldest first; the last one is the current screen."""
    return tuple(
        screenshot
        for turn in conversation(request, limits)
        if isinstance(turn, UserTurn)
        for screenshot in turn.screenshots
    )


def _show(turns: list[Turn], screenshot: Screenshot) -> None:
    last = turns[-1]
    if isinstance(last, UserTurn):
        last.screenshots.append(screenshot)
    else:
        turns.append(UserTurn(screenshots=[screenshot]))


def count_fitting(sizes: Sequence[int], budget: int) -> int:
    """Return how many of the last sizes fit into the budget together."""
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
