"""A checkpoint's chat template: the conversation of an episode as text, with marks where others speak.

Where the instruction and the past answers go there is a mark, for they are put in as tokens. Templates differ
in what they take: some want an answer as a plain text, some refuse two answers in a row, which an episode has
where old screenshots are left out. What a template takes is found out by trying. No torch here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from dart.policy.context import AnswerTurn, Screenshot, Turn, UserTurn
from dart.policy.protocols import UnsupportedCheckpoint

MARK = re.compile("\ue000([0-9]+)\ue001")
"""Of a conversation: 0 is the instruction, the others are the answers in their order."""

LEFT_OUT = "(screenshot left out)"
"""What the user says between two answers where a template wants the user to say something."""

_SHOT = Screenshot("", "")

TRIED: tuple[Turn, ...] = (
    UserTurn(has_instruction=True, screenshots=[_SHOT]),
    AnswerTurn(()),
    AnswerTurn(()),
    UserTurn(screenshots=[_SHOT]),
)
"""An episode with everything that a conversation can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a template wants to be told."""

    answers_are_texts: bool
    """And not lists of parts."""
    alternates: bool
    """The user says something between any two answers."""


MANNERS = tuple(
    Manner(answers_are_texts=texts, alternates=alternates)
    for alternates in (False, True)
    for texts in (False, True)
)


class ChatTemplate:
    """The chat template of one checkpoint."""

    def __init__(self, tokenizer: Any, template: str | None, placeholder: str) -> None:
        """placeholder   what stands for a picture. Raises UnsupportedCheckpoint where it cannot be used."""
        if template is None:
            raise UnsupportedCheckpoint(
                "the checkpoint has no chat template: neither its processor nor its tokenizer brings one "
                "(chat_template.jinja)"
            )
        self._tokenizer = tokenizer
        self._template = template
        self._manner = self._found_out(placeholder)

    def rendered(self, turns: Sequence[Turn]) -> str:
        """The conversation up to where the next answer begins."""
        return self._rendered(turns, self._manner)

    @property
    def after_answer(self) -> str:
        """What is written after an answer that is not the last word."""
        return MARK.split(self.rendered(TRIED))[-1]

    def _found_out(self, placeholder: str) -> Manner:
        problems: dict[str, None] = {}
        for manner in MANNERS:
            try:
                text = self._rendered(TRIED, manner)
            except (TemplateError, TypeError, ValueError) as error:
                problems[str(error)] = None
                continue
            if MARK.findall(text) == ["0", "1", "2"] and text.count(placeholder) == 2:
                return manner
            problems[
                f"of a task, two answers and two screenshots it wrote {len(MARK.findall(text))} texts and "
                f"{text.count(placeholder)} placeholders {placeholder!r}"
            ] = None
        raise UnsupportedCheckpoint(
            f"the checkpoint's chat template cannot tell an episode: {'; '.join(problems)}"
        )

    def _rendered(self, turns: Sequence[Turn], manner: Manner) -> str:
        messages: list[dict[str, Any]] = []
        answers = 0
        for turn in turns:
            if isinstance(turn, UserTurn):
                parts = [_mark(0)] if turn.has_instruction else []
                messages.append(_user([*parts, *({"type": "image"} for _ in turn.screenshots)]))
                continue
            if manner.alternates and messages[-1]["role"] == "assistant":
                messages.append(_user([{"type": "text", "text": LEFT_OUT}]))
            answers += 1
            said = _mark(answers)
            content = said["text"] if manner.answers_are_texts else [said]
            messages.append({"role": "assistant", "content": content})
        return str(
            self._tokenizer.apply_chat_template(
                messages, chat_template=self._template, tokenize=False, add_generation_prompt=True
            )
        )


def _user(content: list[dict[str, str]]) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _mark(number: int) -> dict[str, str]:
    return {"type": "text", "text": f"\ue000{number}\ue001"}
