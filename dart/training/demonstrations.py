"""Demonstrations on disk, made into members of the experience pool with the policy's own codec.

A folder holds what `dart.environments.miniwob.demonstrations` writes, or anybody else in that format
(`dart.training.demonstration_format` holds it to its bounds)::

    demonstrations.jsonl       one success a line: task_id, seed, instruction, reward, steps and, if it was
                               not an oracle, origin: who played it
    screenshots/<sha256>.png   what was seen
    a step                     {"screenshot_sha256": "…", "action": "click(start_box='(80,112)')"}
    or                         {"screenshot_sha256": "…", "answer": "Thought: …\\nAction: …"}
    or                         {"screenshot_sha256": "…", "token_ids": […], "logprobs": […]}

An `action` is in pixels of the screenshot; the policy's codec makes an answer of it that has no thought. An
`answer` is text as this policy writes it, `token_ids` are its tokens; only with these the log-probs of the
policy that sampled them may be given. Entropies stay empty. Token ids are made once, here, exactly as the
policy's engine makes them. Screenshots are copied into the run, which needs the folder no more.

A leaf: it loads the policy's processor. A launcher fills the pool from a process of its own
(`dart.training.demonstration_loading`), `python -m dart.training.demonstrations`.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from dart.config.sections import ContextSettings
from dart.core.actions import ActionParseError, parse_action
from dart.core.errors import DartError, DiskError
from dart.core.types import Demonstration, GenerateRequest, PastStep, Step
from dart.policy.context import newest_history, newest_past
from dart.policy.load import load_codec
from dart.policy.prompt_spec import PromptSpec, prompt_spec_of
from dart.policy.protocols import Codec, PixelFrameError, Screen
from dart.store.blobs import BlobStore
from dart.store.store import Store
from dart.training.demonstration_format import (
    FILE,
    BadDemonstrations,
    DemonstrationEpisode,
    DemonstrationStep,
    episode_of,
    numbered_lines,
    read_screenshot,
    screenshot_path,
)

SCREENS_HELD = 16
"""Decoded screenshots of an episode in memory at a time; more than a prompt usually shows."""


class DemonstrationSink(Protocol):
    """What importing needs of the store."""

    def add_demonstrations(self, demonstrations: Sequence[Demonstration]) -> int:
        """Add what the pool does not hold yet; returns how many that were."""


def import_demonstrations(
    store: DemonstrationSink, folder: Path, policy: Path, blobs: Path, reading: PromptSpec | None = None
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
        return tuple(_demonstrations(path, folder, codec))
    except OSError as error:
        raise BadDemonstrations(
            f"{path} cannot be read: {error.strerror}; name a folder that "
            "'python -m dart.environments.miniwob.demonstrations --out FOLDER' wrote"
        ) from error


def _demonstrations(path: Path, folder: Path, codec: Codec) -> Iterator[Demonstration]:
    """What each line holds; what is wrong with one names it."""
    for number, line in numbered_lines(path):
        try:
            yield _demonstration(episode_of(line), folder, codec)
        except (ActionParseError, PixelFrameError, BadDemonstrations) as error:
            raise BadDemonstrations(
                f"{path}, line {number}: {error}; correct or delete that line, nothing was added"
            ) from error


def _demonstration(episode: DemonstrationEpisode, folder: Path, codec: Codec) -> Demonstration:
    steps = tuple(_steps(episode, folder, codec))
    return Demonstration(
        pool_id=0,
        task_id=episode.task_id,
        seed=episode.seed,
        origin=episode.origin,
        instruction=episode.instruction,
        reward=episode.reward,
        steps=steps,
        lacks_thought=any(codec.lacks_thought(step.token_ids) for step in steps),
    )


def _steps(episode: DemonstrationEpisode, folder: Path, codec: Codec) -> Iterator[Step]:
    """What the engine would have been asked, and the answer in its tokens."""
    screen_of = lru_cache(SCREENS_HELD)(lambda sha256: _screen(folder, sha256, codec))
    history: list[str] = []
    past: list[PastStep] = []
    for played in episode.steps:
        screen = screen_of(played.screenshot_sha256)
        path = str(screenshot_path(folder, screen.sha256))
        request = GenerateRequest(
            screenshot_path=path,
            screenshot_sha256=screen.sha256,
            instruction=episode.instruction,
            history=newest_history(history),
            temperature=1.0,
            past=newest_past(past),
        )
        prompt = codec.prompt(request, [screen_of(shown.sha256) for shown in codec.shown(request)])
        token_ids = _answer_ids(played, episode.instruction, screen, codec)
        history.append(codec.understand(token_ids, episode.instruction, screen.frame))
        past.append(PastStep(screenshot_path=path, screenshot_sha256=screen.sha256, token_ids=token_ids))
        yield Step(
            screenshot_sha256=screen.sha256,
            prompt_ids=prompt.token_ids,
            images=prompt.images,
            token_ids=token_ids,
            logprobs=tuple(played.logprobs or ()),
            entropies=(),
            answer=history[-1],
            policy_version=0,
            observe_ms=0.0,
            generate_ms=0.0,
            act_ms=0.0,
        )


def _answer_ids(played: DemonstrationStep, instruction: str, screen: Screen, codec: Codec) -> tuple[int, ...]:
    """The tokens of an answer, which must be an action. Raises ActionParseError, BadDemonstrations."""
    if played.action is not None:
        return tuple(codec.say(played.action, instruction, screen.frame))
    if played.answer is not None:
        token_ids = tuple(codec.answer_ids(played.answer, instruction))
    else:
        token_ids = tuple(played.token_ids or ())
        if strange := [token for token in token_ids if token >= codec.vocabulary_size]:
            raise BadDemonstrations(
                f"token id {min(strange)} is outside this policy's vocabulary of {codec.vocabulary_size}: "
                "give the answer as text"
            )
    parse_action(codec.understand(token_ids, instruction, screen.frame))
    return token_ids


def _screen(folder: Path, sha256: str, codec: Codec) -> Screen:
    path = screenshot_path(folder, sha256)
    content = read_screenshot(path)
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
        reading = prompt_spec_of(ContextSettings.model_validate_json(options.context))
        with Store(options.store, create=False) as store:
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
