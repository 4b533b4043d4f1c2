"""Answers put together from what vLLM reports of each piece."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dart.core.types import VersionSpan
from dart.inference.protocol import EngineError
from dart.inference.vllm_outputs import MOST_FAILURES, AssembledAnswer, oldest, spans_of, whole_answer
from dart.inference.vllm_worker import ENTROPY_UNITS_PER_NAT

LIMIT = 10


def piece(
    tokens: dict[int, float], version: str, prompt_tokens: int = 50, finish_reason: str = "stop"
) -> Any:
    """A finished output: log-prob by token; each entropy is a quarter of a nat."""
    rank = ENTROPY_UNITS_PER_NAT // 4
    logprobs = [{token: SimpleNamespace(logprob=value, rank=rank)} for token, value in tokens.items()]
    versions = [SimpleNamespace(version=version, start=0, end=len(tokens))] if tokens else None
    answer = SimpleNamespace(
        token_ids=list(tokens), logprobs=logprobs, weight_versions=versions, finish_reason=finish_reason
    )
    return SimpleNamespace(outputs=[answer], prompt_token_ids=[0] * prompt_tokens)


def test_an_answer_in_one_piece_is_that_piece() -> None:
    sampled = AssembledAnswer()
    sampled.add(piece({7: -1.0, 8: -2.0}, "3"))
    assert (sampled.token_ids, sampled.logprobs, sampled.entropies) == ([7, 8], [-1.0, -2.0], [0.25, 0.25])
    assert sampled.spans() == (VersionSpan(version=3, end=2),)


def test_pieces_follow_one_another_each_with_its_version() -> None:
    sampled = AssembledAnswer()
    sampled.add(piece({7: -1.0, 8: -2.0}, "3"))
    sampled.add(piece({9: -3.0}, "4", prompt_tokens=52))
    assert sampled.token_ids == [7, 8, 9]
    assert sampled.spans() == (VersionSpan(version=3, end=2), VersionSpan(version=4, end=3))
    assert sampled.prompt_tokens == 50, "as the answer was asked for, without what it said already"


def test_a_piece_that_ended_before_its_first_token_adds_nothing() -> None:
    sampled = AssembledAnswer()
    sampled.add(piece({}, "3"))
    sampled.add(piece({7: -1.0}, "4"))
    assert sampled.token_ids == [7]
    assert sampled.spans() == (VersionSpan(version=4, end=1),)


def test_a_piece_whose_tokens_have_no_version_is_refused() -> None:
    unlabelled = piece({9: -3.0}, "4")
    unlabelled.outputs[0].weight_versions = None
    for pieces in ([unlabelled], [piece({7: -1.0}, "3"), unlabelled]):
        sampled = AssembledAnswer()
        for one in pieces:
            sampled.add(one)
        with pytest.raises(ValueError, match=f"cover {len(pieces)} tokens"):
            sampled.spans()


GIVEN_UP = piece({}, "3", finish_reason="error")


class Vllm:
    """Gives these pieces one after the other."""

    def __init__(self, *pieces: Any) -> None:
        self._pieces = iter(pieces)
        self.asked: list[tuple[tuple[int, ...], int]] = []

    async def ask(self, so_far: Sequence[int], rest: int) -> Any:
        self.asked.append((tuple(so_far), rest))
        return next(self._pieces)

    def answer(self) -> AssembledAnswer:
        return asyncio.run(whole_answer(self.ask, LIMIT))


def test_what_weights_ended_is_gone_on_with_behind_what_was_said() -> None:
    vllm = Vllm(piece({7: -1.0, 8: -2.0}, "3", finish_reason="abort"), piece({9: -3.0}, "4"))
    assert vllm.answer().token_ids == [7, 8, 9]
    assert vllm.asked == [((), LIMIT), ((7, 8), LIMIT - 2)]


def test_what_vllm_gave_up_is_no_answer_and_is_asked_again() -> None:
    vllm = Vllm(piece({7: -1.0}, "3", finish_reason="abort"), GIVEN_UP, piece({9: -3.0}, "4"))
    assert vllm.answer().token_ids == [7, 9]
    assert vllm.asked[1:] == [((7,), LIMIT - 1)] * 2


def test_an_engine_that_gives_up_again_and_again_is_at_fault() -> None:
    with pytest.raises(EngineError, match="'error' 4 times"):
        Vllm(*[GIVEN_UP] * (MOST_FAILURES + 1)).answer()


def test_an_answer_of_one_version_is_one_span() -> None:
    assert spans_of([("3", 0, 7)], 7) == (VersionSpan(version=3, end=7),)


def test_spans_follow_one_another_and_empty_ones_are_left_out() -> None:
    spans = spans_of([("3", 0, 2), ("4", 2, 2), ("5", 2, 7)], 7)
    assert spans == (VersionSpan(version=3, end=2), VersionSpan(version=5, end=7))
    assert oldest(spans) == 3


@pytest.mark.parametrize(
    "reported", [[], [("3", 0, 0)], [("3", 1, 7)], [("3", 0, 6)], [("3", 0, 2), ("4", 3, 7)]]
)
def test_no_spans_and_spans_with_a_hole_are_refused(reported: list[tuple[str, int, int]]) -> None:
    with pytest.raises(ValueError, match="cover 7 tokens"):
        spans_of(reported, 7)
