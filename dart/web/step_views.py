"""An episode as it is shown, step by step: picture and marks, answer, tokens, versions. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One environment step."""

    number: int
    """From 1."""
    sha256: str
    size: Size | None
    """None where the picture is missing or damaged."""
    overlay: Overlay
    answer: str
    tokens: tuple[Token, ...]
    """Empty where the answer was not sampled by a known policy."""
    prompt_tokens: int
    version: int
    staleness: int | None
    """Versions between sampling and training; None while it is not trained."""
    entropy: float | None
    """Mean over the tokens of the answer, as curation selects by it."""
    probability: float | None
    """Of the whole answer."""
    observe_ms: float
    generate_ms: float
    act_ms: float


NO_SIZE: Size = (160, 210)
"""Size of the empty place of a missing picture."""


def views(
    steps: Sequence[Step],
    size_of: Callable[[str], Size | None],
    token_texts: Mapping[int, str],
    trained_version: int | None,
) -> tuple[StepView, ...]:
    """The steps of one episode.

    size_of           of a screenshot by its sha256
    token_texts       texts of tokens; a token without one is shown by its number
    trained_version   the version the update with this episode made
    """
    sizes = {sha256: size_of(sha256) for sha256 in {step.screenshot_sha256 for step in steps}}
    return tuple(
        _view(number, step, sizes[step.screenshot_sha256], token_texts, trained_version)
        for number, step in enumerate(steps, start=1)
    )


def _view(
    number: int, step: Step, size: Size | None, texts: Mapping[int, str], trained_version: int | None
) -> StepView:
    is_known = step.has_behaviour
    return StepView(
        number=number,
        sha256=step.screenshot_sha256,
        size=size,
        overlay=overlay(step.answer, *(size or NO_SIZE)),
        answer=step.answer,
        tokens=_tokens(step, texts) if is_known else (),
        prompt_tokens=len(step.prompt_ids) + sum(image.tokens - 1 for image in step.images),
        version=step.policy_version,
        staleness=None if trained_version is None else trained_version - 1 - step.policy_version,
        entropy=fmean(step.entropies) if step.entropies else None,
        probability=math.exp(min(0.0, sum(step.logprobs))) if is_known else None,
        observe_ms=step.observe_ms,
        generate_ms=step.generate_ms,
        act_ms=step.act_ms,
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
