"""What of an episode a vision-language policy is shown: the last screenshots and answers, as a conversation.

The instruction comes first and stays; of the steps before this one at most `turns` answers are told, and of
all screenshots the last `screenshots` are shown (DART's code: 35 and 5). Answers are told in the tokens in
which they were given. Pure: the engine lays a prompt out with it, an imported demonstration gets the same
prompt through it, and training reads the prompt as it was recorded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dart.core.types import GenerateRequest, PastStep

MAX_PAST_TOKENS = 8_000
"""Tokens of past answers in a request: mail carries 64 KiB, a token takes up to five bytes, and the prompt
comes back with the answer."""

MAX_HISTORY_CHARACTERS = 4_000
"""Characters of past actions in a request, for the same reason."""


MAX_HINT_CHARACTERS = 4_000
"""Characters of the actions of a hint in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimits:
    """How much is shown (defaults: DART's)."""

    screenshots: int = 5
    """The newest one included."""
    turns: int = 35


@dataclass(frozen=True, slots=True)
class Screenshot:
    """One that is shown, by its file."""

    path: str
    sha256: str


@dataclass(slots=True)
class UserTurn:
    """What is said to the policy in one message."""

    has_instruction: bool = False
    screenshots: list[Screenshot] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AnswerTurn:
    """What it answered then."""

    token_ids: tuple[int, ...]


Turn = UserTurn | AnswerTurn


def conversation(request: GenerateRequest, limits: ContextLimits) -> list[Turn]:
    """The messages before the answer that is asked for; users and answers need not alternate, for the
    screenshots between two old answers are left out."""
    told = request.past[max(0, len(request.past) - limits.turns) :]
    turns: list[Turn] = [UserTurn(has_instruction=True)]
    for index, step in enumerate(told):
        if len(told) - index < limits.screenshots:
            _show(turns, Screenshot(step.screenshot_path, step.screenshot_sha256))
        turns.append(AnswerTurn(step.token_ids))
    _show(turns, Screenshot(request.screenshot_path, request.screenshot_sha256))
    return turns


def shown_screenshots(request: GenerateRequest, limits: ContextLimits) -> tuple[Screenshot, ...]:
    """Those in the conversation, oldest first; the last one is that of now."""
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


def that_fit(sizes: Sequence[int], budget: int) -> int:
    """How many of the last of these sizes fit into the budget together."""
    return sum(1 for total in _running(reversed(sizes)) if total <= budget)


def _running(sizes: Iterator[int]) -> Iterator[int]:
    total = 0
    for size in sizes:
        total += size
        yield total


def newest_past(past: Sequence[PastStep]) -> tuple[PastStep, ...]:
    """The newest of them whose answers a request can carry."""
    count = that_fit([len(step.token_ids) for step in past], MAX_PAST_TOKENS)
    return tuple(past[len(past) - count :])


def first_of_hint(actions: Sequence[str]) -> tuple[str, ...]:
    """The first of them that a request can carry."""
    count = that_fit([len(action) for action in reversed(actions)], MAX_HINT_CHARACTERS)
    return tuple(actions[:count])


def without_hint(request: GenerateRequest) -> GenerateRequest:
    """What training scores the answer under: what the policy is asked when nobody helps it."""
    return replace(request, hint=())


def newest_history(history: Sequence[str]) -> tuple[str, ...]:
    """The newest of them that a request can carry."""
    count = that_fit([len(answer) for answer in history], MAX_HISTORY_CHARACTERS)
    return tuple(history[len(history) - count :])
