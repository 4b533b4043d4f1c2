"""An episode as the pages show it, step by step: screenshot with marks, answer, tokens, versions."""

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
    """Entropy of the distribution that the token was sampled from, in nats."""

    @property
    def tone(self) -> str:
        """The CSS class for the token's probability: from `p0`, below 0.2, to `p4`, from 0.8."""
        return f"p{min(4, int(self.probability * 5))}"


NO_SIZE: Size = (160, 210)
"""Width and height in pixels that a missing screenshot is assumed to have."""


@dataclass(frozen=True, kw_only=True)
class StepView:
    """One environment step with everything that a page shows of it."""

    number: int
    """Number of the step in its episode, from 1."""
    step: Step
    size: Size | None
    """Width and height of the screenshot in pixels; None if the screenshot is missing or damaged."""
    tokens: tuple[Token, ...]
    """The tokens of the answer; empty if the answer was not sampled by a known policy."""
    staleness: int | None
    """Number of policy versions between sampling and training of the step; None if it was not trained."""

    @cached_property
    def overlay(self) -> Overlay:
        return overlay(self.step.answer, *(self.size or NO_SIZE))

    @property
    def prompt_tokens(self) -> int:
        return len(self.step.prompt_ids) + sum(image.tokens - 1 for image in self.step.images)

    @property
    def entropy(self) -> float | None:
        """Mean entropy of the answer's tokens, in nats; None if unknown. It decides on high-entropy steps."""
        return fmean(self.step.entropies) if self.step.entropies else None

    @property
    def probability(self) -> float | None:
        """Probability of the whole answer; None if the answer was not sampled by a known policy."""
        return math.exp(min(0.0, sum(self.step.logprobs))) if self.step.has_behaviour else None


def views(
    steps: Sequence[Step],
    size_of: Callable[[str], Size | None],
    token_texts: Mapping[int, str],
    trained_version: int | None,
) -> tuple[StepView, ...]:
    """Return the steps of one episode as a web page shows them.

    size_of           returns width and height of a screenshot in pixels, given its sha256
    token_texts       text of each token id; a token without a text is shown by its id
    trained_version   the version made by the update that trained this episode; None if it was not trained
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
    """Return the number of the first step, from 1, in which two episodes differ in screenshot or answer.

    None if all steps are equal. An episode that is shorter differs in the first step that it lacks.
    """
    pairs = enumerate(zip_longest(first, second), start=1)
    return next((number for number, (one, other) in pairs if _seen(one) != _seen(other)), None)


def _seen(step: Step | None) -> tuple[str, str] | None:
    return None if step is None else (step.screenshot_sha256, step.answer)


FILE = "tokenizer.json"
FILE_BYTES_MOST = 64 << 20
"""Largest tokenizer.json that is read; those of policies with 7 B parameters have about 11 MB."""

_BYTES_AS_LETTERS = str.maketrans({"Ġ": "␣", "Ċ": "⏎"})
"""What is shown for the letters by which a byte-level tokenizer writes a space and a line break."""


def token_texts(policy: Path) -> dict[int, str]:
    """Read the text of each token id; empty if the policy's folder has no readable tokenizer.json."""
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
