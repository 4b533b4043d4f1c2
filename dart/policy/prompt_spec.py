"""The settings of a vision-language policy's prompts, shared by engines and importers. Imports no torch."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from dart.config.sections import ContextSettings
from dart.core.errors import ConfigurationError
from dart.policy.context import ContextLimits
from dart.policy.coordinates import Points
from dart.policy.uitars import PROMPT


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpec:
    """How a vision-language policy sees an episode and answers. The small policy ignores it."""

    limits: ContextLimits = field(default_factory=ContextLimits)
    answer_tokens: int = 500
    """Longest answer in tokens."""
    prompt: str = PROMPT
    """Text before the instruction."""
    points: Points | None = None
    """Unit of points; None: the unit of its model type (`dart.policy.coordinates.POINTS_OF`)."""


def prompt_spec_of(context: ContextSettings) -> PromptSpec:
    """Return the prompt settings of the section `[context]`.

    Raises ConfigurationError when the file with the prompt cannot be read.
    """
    limits = ContextLimits(screenshots=context.screenshots, turns=context.turns)
    prompt_spec = PromptSpec(
        limits=limits,
        answer_tokens=context.answer_tokens,
        points=None if context.points == "auto" else context.points,
    )
    if not context.prompt:
        return prompt_spec
    try:
        prompt = Path(context.prompt).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"context.prompt names {context.prompt!r}, which cannot be read: {error}; "
            "name a text file, or leave it empty for the prompt of dart.policy.uitars"
        ) from error
    return replace(prompt_spec, prompt=prompt)
