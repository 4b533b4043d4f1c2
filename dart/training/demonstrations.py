"""Demonstrations on disk, made into members of the experience pool with the policy's own codec.

A folder holds what `dart.environments.demonstrations` writes, or anybody else in that format::

    demonstrations.jsonl       one success a line: task_id, seed, instruction, reward, steps and, if it was
                               not an oracle, origin: who played it
    screenshots/<sha256>.png   what was seen
    a step                     {"screenshot_sha256": "…", "action": "click(start_box='(80,112)')"}

Token ids are made once, here, exactly as the policy's engine makes them; log-probs and entropies stay empty:
the policy did not sample these answers. Screenshots are copied into the run, which needs the folder no more.

A leaf: it loads the policy's processor. A launcher fills the pool from a process of its own
(`dart.training.experience_pool`), `python -m dart.training.demonstrations`.
"""

import argparse
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BaseModel, Field, ValidationError

from dart.config_sections import Context
from dart.environments.actions import ActionParseError
from dart.environments.seeds import is_held_out
from dart.errors import DartError, DiskError, UnavailableError
from dart.policy.context import newest_history, newest_past
from dart.policy.interface import Codec, PixelFrameError, Screen
from dart.policy.load import load_codec
from dart.policy.reading import Reading, reading_of
from dart.store.blobs import BlobStore
from dart.store.store import Store
from dart.types import Demonstration, GenerateRequest, PastStep, Step

FILE = "demonstrations.jsonl"


class BadDemonstrations(UnavailableError):
    """A folder of demonstrations that cannot be imported; nothing of it was."""


class Pool(Protocol):
    """What importing needs of the store."""

    def add_demonstrations(self, demonstrations: Sequence[Demonstration]) -> int:
        """Add what the pool does not hold yet; returns how many that were."""


class _PlayedStep(BaseModel):
    screenshot_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    action: str


class _Episode(BaseModel):
    task_id: Annotated[str, Field(min_length=1)]
    seed: Annotated[int, Field(ge=0)]
    origin: Annotated[str, Field(min_length=1)] = "oracle"
    instruction: str
    reward: Annotated[float, Field(gt=0, le=1)]
    steps: Annotated[list[_PlayedStep], Field(min_length=1)]


def import_demonstrations(
    store: Pool, folder: Path, policy: Path, blobs: Path, reading: Reading | None = None
) -> tuple[int, int]:
    """Add the successes in `folder` to the pool; how many were new, and how many it held already.

    policy    checkpoint whose codec makes the token ids
    blobs     the run's screenshots
    reading   how a vision-language policy is shown an episode

    All of the folder or nothing. Raises BadDemonstrations naming the line, CheckpointError, StoreUnavailable.
    """
    blob_store = BlobStore(blobs)
    demonstrations = read_demonstrations(folder, load_codec(policy, reading))
    for name in sorted({step.screenshot_sha256 for one in demonstrations for step in one.steps}):
        blob_store.put(screenshot_path(folder, name).read_bytes())
    added = store.add_demonstrations(demonstrations)
    return added, len(demonstrations) - added


def read_demonstrations(folder: Path, codec: Codec) -> tuple[Demonstration, ...]:
    """Every success in `folder`, its screenshots checked. Raises BadDemonstrations."""
    path = folder / FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadDemonstrations(
            f"{path} cannot be read: {error.strerror}; name a folder that "
            "'python -m dart.environments.demonstrations --out FOLDER' wrote"
        ) from error
    return tuple(_numbered(path, lines, lambda line: _demonstration(line, folder, codec)))


def screenshot_path(folder: Path, sha256: str) -> Path:
    """Where a screenshot of the folder lies."""
    return folder / "screenshots" / f"{sha256}.png"


def _numbered(
    path: Path, lines: Sequence[str], read: Callable[[str], Demonstration]
) -> Iterator[Demonstration]:
    """What each line that is not blank holds; what is wrong with one names it."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield read(line)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in problem["loc"]) or "the line"
            wrong = f"{where}: {problem['msg']}"
        except (ActionParseError, PixelFrameError, BadDemonstrations) as error:
            wrong = str(error)
        else:
            continue
        raise BadDemonstrations(
            f"{path}, line {number}: {wrong}; mend or delete that line, nothing was added"
        )


def _demonstration(line: str, folder: Path, codec: Codec) -> Demonstration:
    episode = _Episode.model_validate_json(line)
    if is_held_out(episode.seed):
        raise BadDemonstrations(
            f"seed {episode.seed} of {episode.task_id} is kept for evaluation; training must not see it"
        )
    screens = [_screen(folder, step.screenshot_sha256, codec) for step in episode.steps]
    return Demonstration(
        pool_id=0,
        task_id=episode.task_id,
        seed=episode.seed,
        origin=episode.origin,
        instruction=episode.instruction,
        reward=episode.reward,
        steps=tuple(_steps(episode, screens, folder, codec)),
    )


def _steps(episode: _Episode, screens: Sequence[Screen], folder: Path, codec: Codec) -> Iterator[Step]:
    """What the engine would have been asked, and the answer in its tokens."""
    by_name = {screen.sha256: screen for screen in screens}
    history: list[str] = []
    past: list[PastStep] = []
    for played, screen in zip(episode.steps, screens, strict=True):
        path = str(screenshot_path(folder, screen.sha256))
        request = GenerateRequest(
            screenshot_path=path,
            screenshot_sha256=screen.sha256,
            instruction=episode.instruction,
            history=newest_history(history),
            temperature=1.0,
            past=newest_past(past),
        )
        prompt = codec.prompt(request, [by_name[shown.sha256] for shown in codec.shown(request)])
        token_ids = tuple(codec.say(played.action, episode.instruction, screen.frame))
        history.append(codec.understand(token_ids, episode.instruction, screen.frame))
        past.append(PastStep(screenshot_path=path, screenshot_sha256=screen.sha256, token_ids=token_ids))
        yield Step(
            screenshot_sha256=screen.sha256,
            prompt_ids=prompt.token_ids,
            images=prompt.images,
            token_ids=token_ids,
            logprobs=(),
            entropies=(),
            answer=history[-1],
            policy_version=0,
            observe_ms=0.0,
            generate_ms=0.0,
            act_ms=0.0,
        )


def _screen(folder: Path, sha256: str, codec: Codec) -> Screen:
    path = screenshot_path(folder, sha256)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadDemonstrations(f"screenshot {path} cannot be read: {error.strerror}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise BadDemonstrations(f"screenshot {path} is not what its name says: its sha256 is {found}")
    return codec.screen(sha256, content)


def main() -> None:
    """Import folders; prints one JSON object: added and known, or failed (the message) and disk."""
    parser = argparse.ArgumentParser(description="Import demonstrations into the record of a run at rest.")
    parser.add_argument("store", type=Path, help="the run's store.db")
    parser.add_argument("blobs", type=Path, help="the run's blobs")
    parser.add_argument("policy", type=Path, help="checkpoint whose codec makes the token ids")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--context", default="{}", help="the section [context] as JSON")
    options = parser.parse_args()
    try:
        reading = reading_of(Context.model_validate_json(options.context))
        with Store(options.store) as store:
            counts = [
                import_demonstrations(store, folder, options.policy, options.blobs, reading)
                for folder in options.folders
            ]
    except DartError as error:
        print(json.dumps({"failed": str(error), "disk": isinstance(error, DiskError)}))
    else:
        print(json.dumps({"added": sum(a for a, _ in counts), "known": sum(k for _, k in counts)}))


if __name__ == "__main__":
    main()
