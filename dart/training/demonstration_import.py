"""Import of demonstrations from disk into the experience pool, with the policy's own codec.

A folder has the format that `dart.environments.browser.demonstrations` writes
(`dart.training.demonstration_format` checks it)::

    demonstrations.jsonl       one successful episode per line: task_id, seed, instruction, reward, steps and,
                               unless an oracle played it, origin: the name of the player
    screenshots/<sha256>.png   the screenshots
    a step                     {"screenshot_sha256": "…", "action": "click(start_box='(80,112)')"}
    or                         {"screenshot_sha256": "…", "answer": "Thought: …\\nAction: …"}
    or                         {"screenshot_sha256": "…", "token_ids": […], "logprobs": […]}

An `action` is in pixels of the screenshot; the policy's codec turns it into an answer without a thought. An
`answer` is text in the policy's own format. `token_ids` are the tokens of an answer; only a step with
`token_ids` may have `logprobs`, those of the policy that sampled the tokens. The steps have no entropies. The
import makes token ids once, exactly as the policy's engine makes them. It copies the screenshots into the
run, which then no longer needs the folder.

This module loads the policy's processor, so the main process of a run uses it in another process
(`dart.run.folder_import`).
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from dart.core.actions import ActionParseError, parse_actions
from dart.core.types import Demonstration, GenerateRequest, PastStep, Step
from dart.policy.context import history_answer, newest_history, newest_past
from dart.policy.load import check_recorded_length, load_codec
from dart.policy.prompt_spec import PromptSpec
from dart.policy.protocols import Codec, PixelFrameError, PromptTooLong, Screen
from dart.store.blobs import BlobStore
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

T = TypeVar("T")

NAME_A_FOLDER = "name a folder that 'python -m dart.environments.miniwob.demonstrations --out FOLDER' wrote"

SCREENS_HELD = 16
"""Number of decoded screenshots kept in memory; more than a prompt usually holds."""


def import_demonstrations(
    add: Callable[[Sequence[Demonstration]], int],
    folder: Path,
    policy: Path,
    screenshots: BlobStore,
    prompt_spec: PromptSpec | None = None,
    *,
    tasks: Collection[str] | None = None,
) -> tuple[int, int]:
    """Add the demonstrations of a folder to the pool, all of them or none.

    add           `add_demonstrations` of the store
    policy        checkpoint whose codec makes the token ids
    screenshots   where the run's screenshots go
    prompt_spec   settings of a vision-language policy's prompts
    tasks         ids of the tasks whose demonstrations are added; None: of all

    Returns the number of new demonstrations and the number that the pool held already. Raises
    BadDemonstrations, which names the line, CheckpointError or StoreUnavailable.
    """
    demonstrations = read_demonstrations(folder, load_codec(policy, prompt_spec), tasks)
    for name in sorted({step.screenshot_sha256 for one in demonstrations for step in one.steps}):
        screenshots.put(screenshot_path(folder, name).read_bytes())
    added = add(demonstrations)
    return added, len(demonstrations) - added


def read_demonstrations(
    folder: Path, codec: Codec, tasks: Collection[str] | None = None
) -> tuple[Demonstration, ...]:
    """Read the demonstrations of some tasks in a folder, of all with None, and check their screenshots.

    Raises BadDemonstrations, also if the folder has no demonstration of any task.
    """

    def made(episode: DemonstrationEpisode) -> Demonstration | None:
        is_wanted = tasks is None or episode.task_id in tasks
        return demonstration_of(episode, folder, codec) if is_wanted else None

    found = read_episodes(folder, made)
    if not found:
        raise BadDemonstrations(f"expected episodes in {folder / FILE}, found none; {NAME_A_FOLDER}")
    return tuple(one for one in found if one is not None)


def read_episodes(folder: Path, make: Callable[[DemonstrationEpisode], T]) -> tuple[T, ...]:
    """Call `make` with each episode in a folder and return the results.

    Raises BadDemonstrations, which names the line of an episode that cannot be read or that `make` refuses.
    """
    path = folder / FILE
    try:
        return tuple(_made(path, make))
    except OSError as error:
        raise BadDemonstrations(f"{path} cannot be read: {error.strerror}; {NAME_A_FOLDER}") from error


def _made(path: Path, make: Callable[[DemonstrationEpisode], T]) -> Iterator[T]:
    for number, line in numbered_lines(path):
        try:
            yield make(episode_of(line))
        except (ActionParseError, PixelFrameError, PromptTooLong, BadDemonstrations) as error:
            raise BadDemonstrations(
                f"{path}, line {number}: {error}; correct or delete that line; nothing was added"
            ) from error


def demonstration_of(episode: DemonstrationEpisode, folder: Path, codec: Codec) -> Demonstration:
    """Convert an episode into a demonstration, with prompts and answers as tokens of the policy's codec.

    Raises ActionParseError, PixelFrameError, PromptTooLong or BadDemonstrations.
    """
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
    """Yield the steps of an episode, each with the prompt that an engine would build for it."""
    screen_of = lru_cache(SCREENS_HELD)(lambda sha256: _screen(folder, sha256, codec))
    history: list[str] = []
    past: list[PastStep] = []
    for played in episode.steps:
        screen = screen_of(played.screenshot_sha256)
        request = GenerateRequest(
            screenshot_sha256=screen.sha256,
            instruction=episode.instruction,
            history=newest_history(history),
            temperature=1.0,
            past=newest_past(past),
        )
        prompt = codec.prompt(request, [screen_of(shown) for shown in codec.shown(request)])
        token_ids = _answer_ids(played, episode.instruction, screen, codec)
        check_recorded_length(codec, prompt.token_ids, token_ids)
        answer, box = codec.decode_action(token_ids, episode.instruction, screen.frame), _box(played, screen)
        history.append(history_answer(answer, box))
        past.append(PastStep(screenshot_sha256=screen.sha256, token_ids=token_ids))
        yield Step(
            screenshot_sha256=screen.sha256,
            prompt_ids=prompt.token_ids,
            images=prompt.images,
            token_ids=token_ids,
            logprobs=tuple(played.logprobs or ()),
            entropies=(),
            answer=answer,
            box=box,
            policy_version=0,
            observe_ms=0.0,
            generate_ms=0.0,
            act_ms=0.0,
        )


def _box(played: DemonstrationStep, screen: Screen) -> tuple[float, float, float, float] | None:
    """Return the box of a step's element. Raises BadDemonstrations for one that is not on the screenshot."""
    if played.box is None:
        return None
    left, top, right, bottom = played.box
    width, height = screen.frame.width_px, screen.frame.height_px
    if not (left < right <= width and top < bottom <= height):
        raise BadDemonstrations(
            f"expected a box [left, top, right, bottom] inside the screenshot of {width}x{height} pixels, "
            f"got {list(played.box)}; correct or remove it"
        )
    return played.box


def _answer_ids(played: DemonstrationStep, instruction: str, screen: Screen, codec: Codec) -> tuple[int, ...]:
    """Return the tokens of a step's answer.

    Raises ActionParseError for an answer without an action, BadDemonstrations for a token id that is unknown
    or that this policy never samples.
    """
    if played.action is not None:
        return tuple(codec.encode_action(played.action, instruction, screen.frame))
    if played.answer is not None:
        token_ids = tuple(codec.encode_answer(played.answer, instruction))
    else:
        token_ids = tuple(played.token_ids or ())
        if unknown := [token for token in token_ids if token >= codec.vocabulary_size]:
            raise BadDemonstrations(
                f"token id {min(unknown)} is outside this policy's vocabulary of {codec.vocabulary_size} "
                "tokens; give the answer as text"
            )
        if forbidden := set(token_ids) & set(codec.never_sampled):
            raise BadDemonstrations(
                f"token id {min(forbidden)} stands for images, and this policy never samples it; leave it "
                "out, or give the answer as text"
            )
    parse_actions(codec.decode_action(token_ids, instruction, screen.frame))
    return token_ids


def _screen(folder: Path, sha256: str, codec: Codec) -> Screen:
    path = screenshot_path(folder, sha256)
    content = read_screenshot(path)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise BadDemonstrations(
            f"screenshot {path} does not match its name: its sha256 is {found}; copy the right file there"
        )
    return codec.screen(sha256, content)
