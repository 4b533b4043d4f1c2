"""Answers of vLLM put together from pieces. Pure: what vLLM reports is only read."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dart.core.types import VersionSpan
from dart.inference.protocol import EngineError
from dart.inference.version_spans import spans_of
from dart.inference.vllm_worker import ENTROPY_UNITS_PER_NAT

WHOLE = ("stop", "length")
"""vLLM's reasons for an answer that is one: its end was sampled, or it has as many tokens as it may."""

ENDED_BY_PAUSE = "abort"
"""vLLM's reason for an answer that it ended because it was paused."""

MOST_FAILURES = 3
"""vLLM gives a request up for a moment's reason (a screenshot it has forgotten, and is sent again then)."""

Ask = Callable[[Sequence[int], int], Awaitable[Any]]
"""With what was sampled so far and how many tokens may follow: the next piece, a finished `RequestOutput`."""


async def whole_answer(ask: Ask, limit: int) -> "AssembledAnswer":
    """An answer of at most `limit` tokens; a piece that new weights ended continues in the prompt.

    Raises EngineError when vLLM gives it up again and again: what is no whole answer must not pass for one.
    """
    sampled, failures = AssembledAnswer(), 0
    while True:
        piece = await ask(sampled.token_ids, limit - len(sampled.token_ids))
        reason = piece.outputs[0].finish_reason
        if reason in WHOLE or reason == ENDED_BY_PAUSE:
            sampled.add(piece)
            if reason in WHOLE:
                return sampled
            continue
        failures += 1
        if failures > MOST_FAILURES:
            raise EngineError(f"vLLM ended a request by {reason!r} {failures} times, its log says why")


class AssembledAnswer:
    """An answer as it comes, in one piece or, where weights changed under it, in several."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.entropies: list[float] = []
        """In nats."""
        self.prompt_tokens = 0
        """As vLLM counted them, those of pictures included."""
        self._reported: list[tuple[str, int, int]] = []

    def add(self, piece: Any) -> None:
        """The next piece, a `RequestOutput` of vLLM that is finished."""
        answer, begin = piece.outputs[0], len(self.token_ids)
        self.prompt_tokens = self.prompt_tokens or len(piece.prompt_token_ids or ())
        versions = answer.weight_versions or ()
        self._reported += [(span.version, begin + span.start, begin + span.end) for span in versions]
        for token, entry in zip(answer.token_ids, answer.logprobs or (), strict=True):
            self.token_ids.append(token)
            self.logprobs.append(entry[token].logprob)
            self.entropies.append(entry[token].rank / ENTROPY_UNITS_PER_NAT)

    def spans(self) -> tuple[VersionSpan, ...]:
        """Which version sampled which tokens. Raises ValueError where vLLM did not say it of every token."""
        return spans_of(self._reported, len(self.token_ids))
