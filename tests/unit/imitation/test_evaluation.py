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
