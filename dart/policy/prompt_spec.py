"""How a vision-language policy is shown an episode and answers: engines and importers agree on it. Light."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from dart.config.sections import ContextSettings
from dart.core.errors import ConfigurationError
from dart.policy.context import ContextLimits
from dart.policy.coordinates import Points
from dart.policy.uitars import PROMPT


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpec:
    """The small policy of the laptop job has its own ways and takes no notice of it."""

    limits: ContextLimits = field(default_factory=ContextLimits)
    answer_tokens: int = 500
    """An answer is cut after so many tokens."""
    prompt: str = PROMPT
    """What it is told before the instruction."""
    points: Points | None = None
    """What points count; None: what its model type was taught."""


def prompt_spec_of(context: ContextSettings) -> PromptSpec:
    """As `[context]` says. Raises ConfigurationError where the file with the prompt cannot be read."""
    limits = ContextLimits(screenshots=context.screenshots, turns=context.turns)
    reading = PromptSpec(
        limits=limits,
        answer_tokens=context.answer_tokens,
        points=None if context.points == "auto" else context.points,
    )
    if not context.prompt:
        return reading
    try:
        prompt = Path(context.prompt).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"context.prompt names {context.prompt!r}, which cannot be read: {error}; "
            "name a text file, or leave it empty for the prompt of dart.policy.uitars"
        ) from error
    return replace(reading, prompt=prompt)
