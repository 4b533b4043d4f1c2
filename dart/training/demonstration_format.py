"""The file format of demonstrations, with its limits. Needs no policy.

Demonstrations may come from elsewhere, so every size is limited before anything is decoded. Unknown keys are
refused instead of ignored, because their values would be lost silently.
"""

import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dart.core.errors import UnavailableError
from dart.core.png import png_size
from dart.core.seeds import TRAINING_SEEDS, is_held_out
from dart.core.suggestions import did_you_mean, near

FILE = "demonstrations.jsonl"

MOST_LINE_BYTES = 64 * 2**20
MOST_SCREENSHOT_BYTES = 64 * 2**20

Text = Annotated[str, Field(max_length=32_000)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Side = Annotated[float, Field(ge=0, le=10**6)]
LogProb = Annotated[float, Field(le=0, allow_inf_nan=False)]

MAX_EPISODES = 100_000
MAX_STEPS = 1_000
MAX_ANSWER_TOKENS = 16_384


class BadDemonstrations(UnavailableError):
    """A folder of demonstrations cannot be imported; nothing of it was added."""


class DemonstrationStep(BaseModel):
    """One step of a demonstration: a screenshot and an answer."""

    model_config = ConfigDict(extra="forbid")

    screenshot_sha256: Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
    action: Text | None = None
    """The action alone, in the action grammar, with points in pixels of the screenshot."""
    answer: Text | None = None
    """The whole answer in the policy's own format."""
    token_ids: Annotated[list[TokenId], Field(max_length=MAX_ANSWER_TOKENS)] | None = None
    """The whole answer in tokens of this policy, end token included."""
    logprobs: Annotated[list[LogProb], Field(max_length=MAX_ANSWER_TOKENS)] | None = None
    """Log-prob of each of `token_ids` in the distribution from which it was sampled."""
    box: tuple[Side, Side, Side, Side] | None = None
    """Left, top, right and bottom of the element that the step acts on, in pixels of the screenshot."""

    @model_validator(mode="after")
    def _one_answer(self) -> Self:
        if sum(given is not None for given in (self.action, self.answer, self.token_ids)) != 1:
            raise ValueError("give exactly one of action, answer and token_ids for a step")
        if self.logprobs is None:
            return self
        if self.token_ids is None:
            raise ValueError("logprobs belong to token_ids: give the answer's tokens, or leave logprobs out")
        if len(self.logprobs) != len(self.token_ids):
            raise ValueError(
                f"expected one log-prob for each of {len(self.token_ids)} token_ids, got {len(self.logprobs)}"
            )
        return self


class DemonstrationEpisode(BaseModel):
    """One line of the file: an episode, usually a success."""

    model_config = ConfigDict(extra="forbid")

    task_id: Name
    seed: Annotated[int, Field(ge=0)]
    origin: Name = "oracle"
    instruction: Text
    reward: Annotated[float, Field(gt=0, le=1)]
    """A run uses the episode only if this is above its `curation.success_above`."""
    steps: Annotated[list[DemonstrationStep], Field(min_length=1, max_length=MAX_STEPS)]


def episode_of(line: bytes) -> DemonstrationEpisode:
    """Parse one line. Raises BadDemonstrations, which says what is wrong with the line."""
    try:
        line.decode("utf-8")
        episode = DemonstrationEpisode.model_validate_json(line)
    except UnicodeDecodeError as error:
        raise BadDemonstrations(f"the line is not UTF-8: {error.reason} at byte {error.start}") from error
    except ValidationError as error:
        raise BadDemonstrations(_description(error)) from error
    if is_held_out(episode.seed):
        raise BadDemonstrations(
            f"seed {episode.seed} of {episode.task_id} is reserved for evaluation; use a training seed from "
            f"{TRAINING_SEEDS.start} to {TRAINING_SEEDS.stop - 1}"
        )
    if episode.seed not in TRAINING_SEEDS:
        raise BadDemonstrations(
            f"expected a training seed from {TRAINING_SEEDS.start} to {TRAINING_SEEDS.stop - 1}, got seed "
            f"{_short(episode.seed)} of {episode.task_id}"
        )
    return episode


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield every line that is not blank, with its number. Raises BadDemonstrations, OSError."""
    with os.fdopen(_open_plain(path, str(path)), "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_LINE_BYTES + 1), b""), 1):
            if len(line) > MOST_LINE_BYTES:
                raise BadDemonstrations(
                    f"{path}, line {number}: the line has more than {MOST_LINE_BYTES} bytes; "
                    "split or delete that episode; nothing was added"
                )
            if number > MAX_EPISODES:
                raise BadDemonstrations(
                    f"{path} has more than {MAX_EPISODES} lines; spread them over several folders"
                )
            if line.strip():
                yield number, line


def screenshot_path(folder: Path, sha256: str) -> Path:
    """Return the path of a screenshot in a folder of demonstrations."""
    return folder / "screenshots" / f"{sha256}.png"


def read_screenshot(path: Path) -> bytes:
    """Read a screenshot. Raises BadDemonstrations when it is too large or not a PNG."""
    try:
        with os.fdopen(_open_plain(path, f"screenshot {path}"), "rb") as file:
            content = file.read(MOST_SCREENSHOT_BYTES + 1)
    except OSError as error:
        raise BadDemonstrations(f"screenshot {path} cannot be read: {error.strerror}") from error
    if len(content) > MOST_SCREENSHOT_BYTES:
        raise BadDemonstrations(f"screenshot {path} has more than {MOST_SCREENSHOT_BYTES} bytes; compress it")
    try:
        png_size(content)
    except ValueError as error:
        raise BadDemonstrations(f"expected a PNG screenshot in {path}: {error}") from error
    return content


def _open_plain(path: Path, name: str) -> int:
    """Open a regular file and return its descriptor.

    Raises BadDemonstrations for pipes and devices, because reading from them could block or never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadDemonstrations(f"{name} is not a regular file; put a file in its place")
    return descriptor


def _description(error: ValidationError) -> str:
    """Return the first problem of a validation error with its place and, for an unknown key, the remedy."""
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "the line"
    if problem["type"] != "extra_forbidden":
        return f"{where[:200]}: {problem['msg'].removeprefix('Value error, ')}"
    return f"{where[:200]}: unknown key{_remedy(str(problem['loc'][-1]), is_of_step=len(problem['loc']) > 1)}"


def _remedy(key: str, *, is_of_step: bool) -> str:
    model: type[BaseModel] = DemonstrationStep if is_of_step else DemonstrationEpisode
    known = list(model.model_fields)
    if key == "thought":
        return "; write the thought into `answer`, before its action, in the policy's own format"
    if key == "target":
        return "; give the box of a step's target as `box`: [left, top, right, bottom] in pixels"
    return did_you_mean(near(key, known)) or f"; known are {', '.join(known)}"


def _short(number: int) -> str:
    return str(number) if number < 10**18 else f"with {math.floor(math.log10(number)) + 1} digits"
