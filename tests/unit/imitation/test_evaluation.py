"""Measuring a base policy: players that share one model all end when the model fails."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dart.imitation import evaluation
from dart.imitation.evaluation import HeldOutPlayer
from dart.policy.sampling import SampledAnswer


class FixedCodec:
    """Encodes every prompt alike and decodes every answer as `finished()`."""

    def screen(self, instruction: str, screenshot: bytes) -> SimpleNamespace:
        return SimpleNamespace(pixels=np.zeros((len(screenshot), 4, 3), np.uint8), frame=None)

    def encode_prompt(self, *_: object) -> list[int]:
        return [1]

    def decode_action(self, *_: object) -> str:
        return "finished()"


class FixedScreen:
    """An environment that shows one screenshot, of as many rows as its argument says, and rewards all."""

    def __init__(self, rows: int) -> None:
        self._shown = SimpleNamespace(instruction="x", screenshot=b"x" * rows)

    async def reset(self, *_: object, **__: object) -> SimpleNamespace:
        return self._shown

    async def evaluate(self, **_: object) -> float:
        return 1.0


def answers(model: object, prompts: list[object], *_: object) -> list[SampledAnswer]:
    return [SampledAnswer((2,), (0.0,), (0.0,)) for _ in prompts]


def lacks_an_answer(*arguments: Any) -> list[SampledAnswer]:
    return answers(*arguments)[1:]


def fails(*_: object) -> list[SampledAnswer]:
    raise RuntimeError("probability tensor contains nan")


def results_of_players(*rows: int) -> list[float | BaseException]:
    """What the players of environments with screenshots of these heights return or raise."""
    player: Any = HeldOutPlayer(None, FixedCodec(), 5, 1.0)  # type: ignore[arg-type]

    async def play() -> list[float | BaseException]:
        played = [player.play(FixedScreen(height), "task", 1) for height in rows]
        async with asyncio.timeout(5):
            results: list[float | BaseException] = await asyncio.gather(*played, return_exceptions=True)
        return results

    return asyncio.run(play())


def test_players_that_wait_for_the_model_are_answered_as_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "sample", answers)
    assert results_of_players(4, 4, 4) == [1.0, 1.0, 1.0]


def test_every_waiting_player_gets_the_error_of_a_model_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "sample", fails)
    first, second = results_of_players(4, 4)
    assert "contains nan" in str(first)
    assert "contains nan" in str(second)


def test_screenshots_that_cannot_be_one_batch_are_an_error_of_every_player(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "sample", answers)
    assert ["size" in str(one) for one in results_of_players(4, 8)] == [True, True]


class Says(FixedCodec):
    """Decodes every answer as the same text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def decode_action(self, *_: object) -> str:
        return self._text


class CountedSteps(FixedScreen):
    """Counts the steps, and ends the episode after some of them."""

    def __init__(self, ends_after: int) -> None:
        super().__init__(rows=4)
        self.steps, self._ends_after = 0, ends_after

    async def step(self, *_: object, **__: object) -> SimpleNamespace:
        self.steps += 1
        return SimpleNamespace(terminated=self.steps == self._ends_after, box=None)

    async def observe(self, **_: object) -> SimpleNamespace:
        return self._shown


@pytest.mark.parametrize(
    ("text", "ends_after", "steps", "reward"),
    [
        ("finished()", 9, 0, 1.0),
        ("call_user()", 9, 0, 1.0),
        ("wait()", 9, 5, 1.0),
        ("wait()", 2, 2, 1.0),
        ("no action", 9, 0, 0.0),
    ],
)
def test_an_episode_ends_by_its_answer_its_page_or_its_step_cap_and_without_an_action_at_reward_0(
    monkeypatch: pytest.MonkeyPatch, text: str, ends_after: int, steps: int, reward: float
) -> None:
    monkeypatch.setattr(evaluation, "sample", answers)
    player: Any = HeldOutPlayer(None, Says(text), 5, 1.0)  # type: ignore[arg-type]
    environment = CountedSteps(ends_after)

    assert asyncio.run(player.play(environment, "task", 1)) == reward
    assert environment.steps == steps


def test_a_model_that_answers_too_few_prompts_leaves_no_player_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "sample", lacks_an_answer)
    first, second = results_of_players(4, 4)
    assert first == 1.0
    assert isinstance(second, ValueError)


def test_a_player_that_gave_up_leaves_the_others_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "sample", answers)
    player: Any = HeldOutPlayer(None, FixedCodec(), 5, 1.0)  # type: ignore[arg-type]

    async def play() -> float:
        gave_up, other = (asyncio.create_task(player.play(FixedScreen(4), "task", 1)) for _ in range(2))
        await asyncio.sleep(0)  # both wait for the model now
        assert len(player._waiting) == 2
        gave_up.cancel()
        return await asyncio.wait_for(other, 5)

    assert asyncio.run(play()) == 1.0
