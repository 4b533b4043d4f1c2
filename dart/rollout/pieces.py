"""Answers of vLLM put together from pieces. Pure: what vLLM reports is only read."""

from typing import Any

from dart.rollout.spans import spans_of
from dart.rollout.vllm_worker import ENTROPY_UNITS_PER_NAT
from dart.types import VersionSpan


class Sampled:
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

    def spans(self, version: int) -> tuple[VersionSpan, ...]:
        """Which version sampled which tokens; `version` where vLLM named none."""
        return spans_of(self._reported, len(self.token_ids), version)
