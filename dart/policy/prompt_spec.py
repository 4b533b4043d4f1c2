"""The settings of a vision-language policy's prompts, shared by engines and importers. Imports no torch."""

from dataclasses import dataclass, field
from pathlib import Path

from dart.config.sections import ContextSettings
from dart.core.errors import ConfigurationError
from dart.policy.uitars import PROMPT, PROMPT_NAMES, named_prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpec:
    """How a vision-language policy sees an episode and answers. The small policy ignores it."""

    context: ContextSettings = field(default_factory=ContextSettings)
    prompt: str = PROMPT
    """Text before the instruction: the prompt or the content of the file that `context.prompt` names."""


def prompt_spec_of(context: ContextSettings) -> PromptSpec:
    """Return the prompt settings of the section `[context]`.

    Raises ConfigurationError when the file with the prompt cannot be read.
    """
    if not context.prompt:
        return PromptSpec(context=context)
    if (named := named_prompt(context.prompt)) is not None:
        return PromptSpec(context=context, prompt=named)
    try:
        return PromptSpec(context=context, prompt=Path(context.prompt).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"context.prompt names {context.prompt!r}, which cannot be read: {error}; "
            f"name a text file, or {' or '.join(PROMPT_NAMES)}, or leave it empty for the prompt of "
            "dart.policy.uitars"
        ) from error
