"""Assembles answers of vLLM from pieces, and finds which version sampled which token. Pure."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from dart.core.types import VersionSpan
from dart.inference.protocol import EngineError
from dart.inference.vllm_worker import ENTROPY_UNITS_PER_NAT

WHOLE = ("stop", "length")
"""Values of vLLM's `finish_reason` for a whole answer: a stop token was sampled, or the limit was reached."""

ENDED_BY_PAUSE = "abort"
"""Value of vLLM's `finish_reason` for an answer that was ended because vLLM was paused for new weights."""

MOST_FAILURES = 3
"""How often a request is sent again if vLLM gave it up, for instance for lack of a screenshot."""

Ask = Callable[[Sequence[int], int], Awaitable[Any]]
"""Function (tokens sampled so far, number of tokens that may follow) that returns the next piece of an
answer, a `RequestOutput` of vLLM."""


async def whole_answer(ask: Ask, limit: int) -> "AssembledAnswer":
    """Sample an answer of at most `limit` tokens.

    If vLLM ends a piece of the answer to load new weights, the next piece continues after the tokens sampled
    so far. Raises EngineError if vLLM gives the request up more than MOST_FAILURES times.

    ask   samples the next piece
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
            raise EngineError(
                f"vLLM ended a request with the reason {reason!r} {failures} times; vLLM's log has the cause"
            )


class AssembledAnswer:
    """An answer in one piece or, if weights changed while it was sampled, in several pieces."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.entropies: list[float] = []
        """Entropy at each sampled token, in nats."""
        self.prompt_tokens = 0
        """Number of tokens of the prompt as vLLM counted them, including those of screenshots."""
        self._reported: list[tuple[str, int, int]] = []

    def add(self, piece: Any) -> None:
        """Add the next piece, a finished `RequestOutput` of vLLM."""
        answer, begin = piece.outputs[0], len(self.token_ids)
        self.prompt_tokens = self.prompt_tokens or len(piece.prompt_token_ids or ())
        versions = answer.weight_versions or ()
        self._reported += [(span.version, begin + span.start, begin + span.end) for span in versions]
        for token, entry in zip(answer.token_ids, answer.logprobs or (), strict=True):
            self.token_ids.append(token)
            self.logprobs.append(entry[token].logprob)
            self.entropies.append(entry[token].rank / ENTROPY_UNITS_PER_NAT)

    def spans(self) -> tuple[VersionSpan, ...]:
        """Return which version sampled which tokens. Raises ValueError if a token has no version."""
        return spans_of(self._reported, len(self.token_ids))


def spans_of(reported: Iterable[tuple[str, int, int]], tokens: int) -> tuple[VersionSpan, ...]:
    """Return which version sampled which tokens of an answer, from what the engine reported.

    reported   (version, first token, token after the last) of each span
    tokens     number of tokens of the answer

    Raises ValueError unless the spans follow one another from the first token to the last.
    """
    spans = [(int(name), int(start), int(end)) for name, start, end in reported if end > start]
    ends = [end for _, _, end in spans]
    if [start for _, start, _ in spans] != [0, *ends][: len(spans)] or ends[-1:] != [tokens]:
        raise ValueError(f"expected spans that cover {tokens} tokens one after the other, got {spans}")
    return tuple(VersionSpan(version=number, end=end) for number, _, end in spans)


def oldest(spans: Iterable[VersionSpan]) -> int:
    """Return the oldest version of the spans. The staleness bound counts it as the version of the answer."""
    return min(span.version for span in spans)
