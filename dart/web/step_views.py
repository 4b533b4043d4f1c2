"""An episode as it is shown, step by step: picture and marks, answer, tokens, versions."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

from dart.core.types import Step
from dart.web.overlay import Overlay, overlay

Size = tuple[int, int]
"""Width and height of a picture in pixels."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer, as it was sampled."""

    text: str
    probability: float
    logprob: float
    entropy: float
    """Of the distribution it was sampled from, in nats."""

    @property
    def tone(self) -> str:
        """Class of the style sheet: how sure the policy was."""
        return f"p{min(4, int(self.probability * 5))}"


NO_SIZE: Size = (160, 210)
"""Size of the empty place of a missing picture."""


@dataclass(frozen=True, kw_only=True)
class StepView:
    """One environment step, with what a page shows of it beyond its record."""

    number: int
    """From 1."""
    step: Step
    size: Size | None
    """Of its screenshot; None where that is missing or damaged."""
    tokens: tuple[Token, ...]
    """Empty where the answer was not sampled by a known policy."""
    staleness: int | None
    """Versions between sampling and training; None while it is not trained."""

    @cached_property
    def overlay(self) -> Overlay:
        return overlay(self.step.answer, *(self.size or NO_SIZE))

    @property
    def prompt_tokens(self) -> int:
        return len(self.step.prompt_ids) + sum(image.tokens - 1 for image in self.step.images)

    @property
    def entropy(self) -> float | None:
        """Mean over the tokens of the answer, as curation selects by it."""
        return fmean(self.step.entropies) if self.step.entropies else None

    @property
    def probability(self) -> float | None:
        """Of the whole answer; None where the answer was not sampled by a known policy."""
        return math.exp(min(0.0, sum(self.step.logprobs))) if self.step.has_behaviour else None


def views(
    steps: Sequence[Step],
    size_of: Callable[[str], Size | None],
    token_texts: Mapping[int, str],
    trained_version: int | None,
) -> tuple[StepView, ...]:
    """The steps of one episode.

    size_of           of a screenshot by its sha256
    token_texts       texts of tokens; a token without one is shown by its number
    trained_version   the version that the update with this episode made
    """
    sizes = {sha256: size_of(sha256) for sha256 in {step.screenshot_sha256 for step in steps}}
    return tuple(
        StepView(
            number=number,
            step=step,
            size=sizes[step.screenshot_sha256],
            tokens=_tokens(step, token_texts) if step.has_behaviour else (),
            staleness=None if trained_version is None else trained_version - 1 - step.policy_version,
        )
        for number, step in enumerate(steps, start=1)
    )


def _tokens(step: Step, texts: Mapping[int, str]) -> tuple[Token, ...]:
    return tuple(
        Token(texts.get(token, f"#{token}"), math.exp(min(0.0, logprob)), logprob, entropy)
        for token, logprob, entropy in zip(step.token_ids, step.logprobs, step.entropies, strict=True)
    )


def first_difference(first: Sequence[Step], second: Sequence[Step]) -> int | None:
    """The number of the first step whose picture or answer is not the same; None where all are."""
    pairs = enumerate(zip_longest(first, second), start=1)
    return next((number for number, (one, other) in pairs if _seen(one) != _seen(other)), None)


def _seen(step: Step | None) -> tuple[str, str] | None:
    return None if step is None else (step.screenshot_sha256, step.answer)


FILE = "tokenizer.json"
FILE_BYTES_MOST = 64 << 20
"""Tokenizers of 7 B policies take about 11 MB."""

_BYTES_AS_LETTERS = str.maketrans({"Ġ": "␣", "Ċ": "⏎"})
"""Byte-level tokenizers write a space and a line break as these letters."""


def token_texts(policy: Path) -> dict[int, str]:
    """Texts by token id; empty where the policy's folder has no readable tokenizer.json."""
    path = policy / FILE
    try:
        status = path.stat()
    except OSError:
        return {}
    return _read(path, status.st_mtime_ns) if status.st_size <= FILE_BYTES_MOST else {}


@lru_cache(maxsize=2)
def _read(path: Path, mtime_ns: int) -> dict[int, str]:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        texts = {int(number): text for text, number in content["model"]["vocab"].items()}
        texts |= {int(token["id"]): token["content"] for token in content.get("added_tokens", ())}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}  # a tokenizer of another kind: its tokens are shown by their numbers
    return {number: str(text).translate(_BYTES_AS_LETTERS) for number, text in texts.items()}
