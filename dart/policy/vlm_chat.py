"""A checkpoint's chat template: renders the conversation of an episode as text.

The text has numbered marks in place of the instruction and the past answers, which are inserted later as
tokens. Templates differ in what they accept: some need an answer as plain text, some refuse two answers in a
row, which an episode has where old screenshots are left out. A trial rendering finds out what a template
accepts. Imports no torch.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from dart.policy.protocols import UnsupportedCheckpoint

MARK = re.compile("\ue000([0-9]+)\ue001")
"""A mark in the rendered text: 0 is the instruction, the others are the answers in order."""

PLACEHOLDER_TURN = "(screenshot left out)"
"""The user's message between two answers, for templates that need one."""

TRIAL = (True, False, True)
"""An episode that tests a template, as flags for `rendered`: two answers in a row and two screenshots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateStyle:
    """The form of messages that a template accepts."""

    answers_are_texts: bool
    """Whether the content of an answer is a plain text instead of a list of parts."""
    alternates: bool
    """Whether a message of the user is required between any two answers."""


STYLES = tuple(
    TemplateStyle(answers_are_texts=texts, alternates=alternates)
    for alternates in (False, True)
    for texts in (False, True)
)


class ChatTemplate:
    """The chat template of one checkpoint."""

    def __init__(self, tokenizer: Any, template: str | None, placeholder: str) -> None:
        """placeholder   the text that stands for an image

        Raises UnsupportedCheckpoint when there is no template or it cannot render an episode.
        """
        if template is None:
            raise UnsupportedCheckpoint(
                "the checkpoint has no chat template, neither in its processor nor in its tokenizer; "
                "add a chat_template.jinja or use another checkpoint"
            )
        self._tokenizer = tokenizer
        self._template = template
        self._style = self._detect_style(placeholder)

    @property
    def after_answer(self) -> str:
        """The text that the template writes after an answer."""
        return MARK.split(self.rendered(TRIAL))[-1]

    def _detect_style(self, placeholder: str) -> TemplateStyle:
        problems: list[str] = []
        for style in STYLES:
            try:
                text = self.rendered(TRIAL, style)
            except (TemplateError, TypeError, ValueError) as error:
                problems.append(str(error))
                continue
            if MARK.findall(text) == ["0", "1", "2"] and text.count(placeholder) == 2:
                return style
            problems.append(
                f"for a task, two answers and two screenshots it wrote {len(MARK.findall(text))} texts and "
                f"{text.count(placeholder)} placeholders {placeholder!r}"
            )
        raise UnsupportedCheckpoint(
            f"the checkpoint's chat template cannot render an episode: {'; '.join(dict.fromkeys(problems))}; "
            "use another checkpoint or chat template"
        )

    def rendered(self, shown: Sequence[bool], style: TemplateStyle | None = None) -> str:
        """Render the conversation up to the beginning of the next answer.

        shown   for each past answer and then for the next answer: whether a screenshot comes before it
        style   form of the messages; None: the one that the template accepts
        """
        style = style or self._style
        messages: list[dict[str, Any]] = []
        for number, is_shown in enumerate(shown):
            if number > 0:
                content = _mark(number) if style.answers_are_texts else [_text(_mark(number))]
                messages.append({"role": "assistant", "content": content})
            parts = [_text(_mark(0))] if number == 0 else []
            if is_shown:
                parts.append({"type": "image"})
            elif number > 0 and style.alternates:
                parts.append(_text(PLACEHOLDER_TURN))
            if parts:
                messages.append({"role": "user", "content": parts})
        return self.apply(messages)

    def apply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Render messages as text, up to the beginning of the next answer."""
        return str(
            self._tokenizer.apply_chat_template(
                messages, chat_template=self._template, tokenize=False, add_generation_prompt=True
            )
        )


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _mark(number: int) -> str:
    return f"\ue000{number}\ue001"
