"""What engines and trainers need of a policy, whichever it is. No torch here.

Two kinds stand behind it: the small policy of the laptop job (`dart.policy.codec`) and vision-language
checkpoints (`dart.policy.vlm_codec`). `dart.policy.load` chooses by the checkpoint's configuration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dart.core.errors import UnavailableError
from dart.core.types import GenerateRequest, PromptImage, Step
from dart.policy.context import Screenshot, without_hint
from dart.policy.coordinates import CoordinateFrame

Pixels = npt.NDArray[np.uint8]


class UnsupportedCheckpoint(UnavailableError):
    """A checkpoint that cannot be the policy here; the text says what it lacks."""


class PixelFrameError(ValueError):
    """A screenshot is no image, or none this policy can look at."""


@dataclass(frozen=True, slots=True)
class Screen:
    """A screenshot as a policy sees it."""

    sha256: str
    """Of the screenshot's file."""
    pixels: Pixels
    """uint8 [H, W, 3], as they are given to the model's image processor."""
    frame: CoordinateFrame


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is recorded of a prompt: enough to make it again to the token."""

    token_ids: tuple[int, ...]
    images: tuple[PromptImage, ...] = ()
    """In the order of their placeholders, of which there is one each in `token_ids`; empty for a policy
    that sees the newest screenshot only and has all its placeholders there."""


class Codec(Protocol):
    """Between what is seen and said, and token ids."""

    never_sampled: tuple[int, ...]
    """Tokens that stand for pictures: an engine gives them no probability, a trainer neither."""
    ends: tuple[int, ...]
    """An answer ends with the first of these tokens."""

    @property
    def vocabulary_size(self) -> int:
        """Every token id is less."""
        ...

    def shown(self, request: GenerateRequest) -> tuple[Screenshot, ...]:
        """The screenshots the prompt of this request shows, oldest first; the last is that of now."""
        ...

    def screen(self, sha256: str, png: bytes) -> Screen:
        """A screenshot as the policy sees it. Raises PixelFrameError."""
        ...

    def prompt(self, request: GenerateRequest, screens: Sequence[Screen]) -> Prompt:
        """The prompt with these screens, those of `shown`, and with the hint, where the policy can read one.
        Raises ActionParseError where the hint holds something else than actions."""
        ...

    def say(self, action_text: str, instruction: str, frame: CoordinateFrame) -> list[int]:
        """The tokens of an answer with this action, end token included. Raises ActionParseError."""
        ...

    def answer_ids(self, text: str, instruction: str) -> list[int]:
        """The tokens of a whole answer as the policy writes it, end token included. Raises ActionParseError
        where it holds a token that no answer may hold."""
        ...

    def lacks_thought(self, token_ids: Sequence[int]) -> bool:
        """Whether an answer has no thought though this policy writes one before its action."""
        ...

    def understand(self, token_ids: Sequence[int], instruction: str, frame: CoordinateFrame) -> str:
        """The action of an answer in the grammar of the screen; what has none comes out as a text that the
        strict parser refuses. Never raises."""
        ...


def recorded_prompt(
    codec: Codec, request: GenerateRequest, screens: Sequence[Screen], shown: Prompt
) -> Prompt:
    """What is recorded of a prompt that was shown: the one without the hint. Training scores under it."""
    return codec.prompt(without_hint(request), screens) if request.hint else shown


class ForeignPrompt(ValueError):
    """A recorded prompt that this policy cannot have been given."""

    def __init__(self, step: Step, problem: str) -> None:
        super().__init__(
            f"step with answer {step.answer!r} (policy version {step.policy_version}): {problem}"
        )
        self.step = step


def screenshots_of(step: Step) -> tuple[str, ...]:
    """sha256 of every screenshot in the prompt of a recorded step, oldest first."""
    return tuple(image.sha256 for image in step.images) or (step.screenshot_sha256,)
