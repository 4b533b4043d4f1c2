"""The codec interface that engines and trainers need of every policy. Imports no torch.

Two codecs implement it: one for the small policy (`dart.policy.codec`) and one for vision-language
checkpoints (`dart.policy.vlm_codec`). `dart.policy.load` chooses by the checkpoint's configuration.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dart.core.errors import UnavailableError
from dart.core.types import GenerateRequest, PromptImage, Step
from dart.policy.coordinates import CoordinateFrame

Pixels = npt.NDArray[np.uint8]

Centres = Sequence[tuple[float, float]]
"""One point (x, y) for each pointer token of a greedy answer, in order, as fractions of the screen's width
and height. The action has these points instead of the centres of the answer's patches
(`dart.core.types.Generation.centres`)."""


class UnsupportedCheckpoint(UnavailableError):
    """A checkpoint cannot be used as a policy; the message says what it lacks."""


class PixelFrameError(ValueError):
    """A screenshot cannot be decoded, or this policy does not accept its size."""


class PromptTooLong(ValueError):
    """A prompt, or a recorded answer to it, has more tokens than this policy takes."""


@dataclass(frozen=True, slots=True)
class Screen:
    """A decoded screenshot."""

    sha256: str
    """Hash of the screenshot's file."""
    pixels: Pixels
    """uint8 [H, W, 3], the input of the model's image processor."""
    frame: CoordinateFrame


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it is recorded: enough to make the same model input again."""

    token_ids: tuple[int, ...]
    images: tuple[PromptImage, ...] = ()
    """The screenshots in the order of their placeholders; each has one placeholder in `token_ids`. Empty for
    the small policy, which sees only the newest screenshot and has all its placeholders in `token_ids`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerTokens:
    """The tokens of a policy with a pointer head: after `<pointer>` comes a patch."""

    token_id: int
    """Id of `<pointer>`."""
    first_patch_id: int
    """Id of patch 0 of a screenshot; patch n has the id first_patch_id + n. Recorded answers contain such
    ids."""


class Codec(Protocol):
    """Translates between screenshots, texts and actions on one side and token ids on the other."""

    never_sampled: tuple[int, ...]
    """Ids of the tokens that stand for images; engine and trainer exclude them from the distribution."""
    end_ids: tuple[int, ...]
    """Ids of the end tokens. An answer ends where the first of them occurs."""
    vocabulary_size: int
    """Number of token ids."""
    pointer: PointerTokens | None
    """Tokens of the pointer head; None for a policy that writes coordinates in ordinary tokens."""

    def shown(self, request: GenerateRequest) -> tuple[str, ...]:
        """Return the sha256 of the screenshots in the prompt of a request, oldest first; the last is the
        current one."""
        ...

    def screen(self, sha256: str, png: bytes) -> Screen:
        """Decode a screenshot for the policy. Raises PixelFrameError."""
        ...

    def prompt(self, request: GenerateRequest, screens: Sequence[Screen]) -> Prompt:
        """Build the prompt of a request, with its hint if the policy can read hints.

        screens   the screenshots of `shown`, decoded

        Raises ActionParseError when the hint holds anything but actions.
        """
        ...

    def encode_action(self, action_text: str, instruction: str, frame: CoordinateFrame) -> list[int]:
        """Return the tokens of an answer with this action, end token included. Raises ActionParseError.

        action_text   in the action grammar, with coordinates in pixels of the screen
        """
        ...

    def encode_answer(self, text: str, instruction: str) -> list[int]:
        """Return the tokens of a whole answer that is in the policy's own format, end token included.

        Raises ActionParseError when the text contains a token that an answer must not contain.
        """
        ...

    def lacks_thought(self, token_ids: Sequence[int]) -> bool:
        """Whether an answer has no thought although this policy writes one before each action."""
        ...

    def decode_action(
        self, token_ids: Sequence[int], instruction: str, frame: CoordinateFrame, centres: Centres = ()
    ) -> str:
        """Return the action of an answer in the action grammar, with coordinates in pixels of the screen.

        Never raises: for an answer without an action it returns a text that the parser of `dart.core.actions`
        refuses.
        """
        ...


def recorded_prompt(
    codec: Codec, request: GenerateRequest, screens: Sequence[Screen], shown: Prompt
) -> Prompt:
    """Return the prompt to record, under which training scores the answer: the prompt without the hint.

    shown   the prompt that the policy was given
    """
    return codec.prompt(replace(request, hint=()), screens) if request.hint else shown


class ForeignPrompt(ValueError):
    """This policy cannot have been given a recorded prompt, or cannot have given the answer to it."""

    def __init__(self, step: Step, problem: str) -> None:
        super().__init__(
            f"step with answer {step.answer!r} (policy version {step.policy_version}): {problem}"
        )
        self.step = step


def screenshots_of(step: Step) -> tuple[str, ...]:
    """Return the sha256 of every screenshot in the prompt of a recorded step, oldest first."""
    return tuple(image.sha256 for image in step.images) or (step.screenshot_sha256,)


def check_patches(step: Step, pointer: PointerTokens | None, patches: int) -> None:
    """Check that the points of a recorded answer were drawn as patches, one after each pointer token.

    Raises ForeignPrompt.

    pointer   the tokens of the policy's pointer head; None: there is no head, and tokens are not checked
    patches   number of patches of the step's screenshot
    """
    if step.centres:
        raise ForeignPrompt(
            step,
            "its points are centres of regions, as in an evaluation: such points are not drawn, have no "
            "log-probs and are never trained on",
        )
    if pointer is None:
        return
    for before, token in pairwise((-1, *step.token_ids)):
        index = token - pointer.first_patch_id
        is_patch = 0 <= index < patches
        if (before == pointer.token_id) != is_patch:
            raise ForeignPrompt(
                step,
                f"expected one of {patches} patches after each pointer token and nowhere else, "
                f"got the token {token} after {before}",
            )
