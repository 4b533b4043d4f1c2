"""What of an episode is shown, for every length of it."""

import pytest

from dart.config.config import Config
from dart.config.problems import describe
from dart.config.sections import ContextSettings
from dart.core.types import GenerateRequest, PastStep
from dart.policy.context import (
    MAX_PAST_TOKENS,
    count_fitting,
    newest_history,
    newest_past,
    shown_flags,
    shown_screenshots,
    told_steps,
)


def past(steps: int, tokens: int = 2) -> tuple[PastStep, ...]:
    return tuple(PastStep(screenshot_sha256=f"{n}", token_ids=(n,) * tokens) for n in range(steps))


def request(steps: int) -> GenerateRequest:
    return GenerateRequest(
        screenshot_sha256="now",
        instruction="Do it.",
        history=(),
        temperature=1.0,
        past=past(steps),
    )


def told(steps: int, limits: ContextSettings | None = None) -> list[str]:
    """The conversation in short: the task, pictures and answers by their number."""
    made, limits = request(steps), limits or ContextSettings()
    pictures = iter(shown_screenshots(made, limits))
    answers = [f"answer {step.token_ids[0]}" for step in told_steps(made, limits)]
    lines: list[str] = []
    for index, is_shown in enumerate(shown_flags(made, limits)):
        parts = [*(["task"] if index == 0 else []), *([next(pictures)] if is_shown else [])]
        lines += [" ".join(["user", *parts])] if parts else []
        lines += answers[index : index + 1]
    return lines


def test_the_first_step_is_the_task_and_the_screen() -> None:
    assert told(0) == ["user task now"]


def test_while_all_screenshots_are_shown_users_and_answers_alternate() -> None:
    assert told(2) == ["user task 0", "answer 0", "user 1", "answer 1", "user now"]


def test_the_last_five_screenshots_are_shown_and_every_answer_is_told() -> None:
    assert told(6) == [
        *("user task", "answer 0", "answer 1", "user 2", "answer 2", "user 3", "answer 3"),
        *("user 4", "answer 4", "user 5", "answer 5", "user now"),
    ]


def test_of_fifty_steps_the_last_35_are_told() -> None:
    lines = told(50)
    assert [line for line in lines if line.startswith("answer")] == [f"answer {n}" for n in range(15, 50)]
    assert lines[0] == "user task"
    assert sum(line.startswith("user ") for line in lines) == 6


def test_without_room_for_answers_there_are_the_task_and_the_screen() -> None:
    assert told(3, ContextSettings(screenshots=5, turns=0)) == ["user task now"]
    assert told(3, ContextSettings(screenshots=1, turns=1)) == ["user task", "answer 2", "user now"]


@pytest.mark.parametrize("steps", [0, 1, 4, 5, 6, 40])
def test_what_is_shown_is_what_the_conversation_shows(steps: int) -> None:
    limits = ContextSettings()
    pictures = shown_screenshots(request(steps), limits)
    assert len(pictures) == shown_flags(request(steps), limits).count(True) == min(5, steps + 1)
    assert pictures[-1] == "now"


def test_a_request_carries_the_newest_that_fit() -> None:
    assert [count_fitting([5, 4, 3, 2], budget) for budget in (0, 1, 2, 5, 9, 13, 14, 99)] == [
        *(0, 0, 1, 2, 3, 3, 4, 4)
    ]
    long = past(30, tokens=1000)
    assert newest_past(long) == long[-MAX_PAST_TOKENS // 1000 :]
    assert newest_past(past(30)) == past(30)
    assert newest_history(["first" * 1000, "second"]) == ("second",)
    assert newest_history(["wait()"] * 50) == ("wait()",) * 50


def test_the_key_of_the_turns_names_the_limit_of_their_tokens() -> None:
    assert f"at most {MAX_PAST_TOKENS:,} tokens" in " ".join(describe(Config, "context.turns").split())
