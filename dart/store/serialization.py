"""Converts trajectories, demonstrations and screens to rows of tables and back (train-what-was-sampled).

The steps of an episode are packed as one MessagePack array of maps: integers take 1 to 5 bytes, floats keep
all 64 bits. The packed steps are a blob, which the row names by sha256. The checksum of a row is computed
from the values of its columns, so that it can be computed again from the row alone. It covers the steps, too,
because their sha256 is one of the columns.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast, get_origin, get_type_hints

import msgspec
from msgspec.structs import asdict

from dart.core.exploration import PageScreen
from dart.core.records import EvaluationPlay
from dart.core.types import Demonstration, Step, Trajectory
from dart.store.errors import StoreConflict

T = TypeVar("T")

Values = dict[str, Any]

Row = Any
"""A row of the record: its columns as attributes."""

TRAJECTORY_COLUMNS = (
    *(field.name.replace("steps", "steps_sha256") for field in dataclasses.fields(Trajectory)),
    "num_steps",
    "oldest_version",
    "fence",
    "stored_unix_s",
)
EVALUATION_PLAY_COLUMNS = ("evaluation_id", *(field.name for field in dataclasses.fields(EvaluationPlay)))
DEMONSTRATION_COLUMNS = (
    "task_id",
    "seed",
    "origin",
    "instruction",
    "reward",
    "num_steps",
    "content_sha256",
    "added_unix_s",
    "steps_sha256",
)
"""The columns of `pool` that only an import of the same demonstration changes; its checksum covers them."""
EVENT_COLUMNS = ("unix_s", "kind", "subject", "data")
PARKED_COLUMNS = ("steps_sha256", "num_steps", "oldest_version")
"""The columns of `parked` that describe its steps; its checksum covers them."""
SCREEN_COLUMNS = (
    "task_id",
    "seed",
    "depth",
    "found_actions",
    "screenshot_sha256",
    "shape",
    "view",
    "found_unix_s",
)


def checksum(row: Mapping[str, Any], columns: Sequence[str]) -> bytes:
    """A hash of these columns of a row. Integers are hashed as floats, because a column may store them so."""
    values = (row[name] for name in columns)
    plain = [float(value) if isinstance(value, int) else value for value in values]
    return hashlib.blake2b(msgspec.msgpack.encode(plain), digest_size=16).digest()


def row_of(record: Any, *without: str) -> Values:
    """The columns of a record: its fields by name, except the fields in `without`."""
    names = (field.name for field in dataclasses.fields(record) if field.name not in without)
    values = {name: getattr(record, name) for name in names}
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}


def record_of(cls: type[T], row: Row, **known: Any) -> T:
    """Make a record from a row: each field is the column of its name, unless `known` has its value.

    Raises TypeError or ValueError for a column whose value its field cannot have.
    """
    columns = {name: make(getattr(row, name)) for name, make in _makers(cast(Any, cls)) if name not in known}
    return cls(**columns, **known)


@cache
def _makers(cls: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The fields of a record, each with the function that converts a column to its value."""
    hints = get_type_hints(cls)
    return tuple((field.name, _maker(hints[field.name])) for field in dataclasses.fields(cls))


def _maker(hint: Any) -> Callable[[Any], Any]:
    if get_origin(hint) is Mapping:
        return _read_json
    if hint in (bool, float) or (isinstance(hint, type) and issubclass(hint, Enum)):
        return hint  # type: ignore[no-any-return]
    return lambda value: value


def _read_json(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


def trajectory_row(trajectory: Trajectory, steps_sha256: str, *, fence: int, stored_unix_s: float) -> Values:
    """Make a row of the table `trajectories`. `steps_sha256` names the blob of the steps."""
    row = row_of(trajectory, "steps") | {
        "steps_sha256": steps_sha256,
        "num_steps": len(trajectory.steps),
        "oldest_version": min(step.policy_version for step in trajectory.steps),
        "fence": fence,
        "stored_unix_s": stored_unix_s,
    }
    return row | {"checksum": checksum(row, TRAJECTORY_COLUMNS)}


def evaluation_play_row(play: EvaluationPlay, evaluation_id: int) -> Values:
    """Make a row of the table `evaluation_episodes`."""
    row = row_of(play) | {"evaluation_id": evaluation_id}
    return row | {"checksum": checksum(row, EVALUATION_PLAY_COLUMNS)}


def demonstration_row(demonstration: Demonstration, steps_sha256: str, *, added_unix_s: float) -> Values:
    """Make a row of the table `pool`. `steps_sha256` names the blob of the steps."""
    row = row_of(demonstration, "pool_id", "steps") | {
        "steps_sha256": steps_sha256,
        "num_steps": len(demonstration.steps),
        "content_sha256": content_sha256(demonstration),
        "uses": 0,
        "dropped": False,
        "added_unix_s": added_unix_s,
    }
    return row | {"checksum": checksum(row, DEMONSTRATION_COLUMNS)}


def content_sha256(demonstration: Demonstration) -> str:
    """A hash of task, seed, instruction, screenshots, prompts and answers; the pool holds each hash once.

    For a self-rolled demonstration the id of its guide is hashed, too. So both stay in the pool even if their
    answers are equal; they differ, because only the self-rolled one has log-probs.
    """
    steps = [
        (step.screenshot_sha256, step.prompt_ids, step.token_ids, step.answer) for step in demonstration.steps
    ]
    content: tuple[Any, ...] = (
        demonstration.task_id,
        demonstration.seed,
        demonstration.instruction,
        steps,
    )
    if demonstration.guide_id is not None:
        content = (*content, demonstration.guide_id)
    return hashlib.sha256(msgspec.msgpack.encode(content)).hexdigest()


def screen_row(screen: PageScreen, **known: Any) -> Values:
    """Make a row of the table `screens`.

    known   the values of the columns that do not come from the screen
    """
    row = known | {
        "screenshot_sha256": screen.screenshot_sha256,
        "shape": screen.shape,
        "view": msgspec.msgpack.encode(screen),
    }
    return row | {"checksum": checksum(row, SCREEN_COLUMNS)}


def unpack_screen(packed: bytes) -> PageScreen:
    """The screen from the bytes in the column `view`. Raises ValueError if they are no packed screen."""
    try:
        return _screen.decode(packed)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ValueError(f"a screen cannot be read: {error}") from error


pack_steps = msgspec.msgpack.Encoder().encode
"""Encode the steps of an episode as bytes."""


def unpack_steps(packed: bytes) -> tuple[Step, ...]:
    """The steps that `pack_steps` packed. Raises ValueError if the bytes are no packed steps."""
    return _unpacked(packed, _steps)


def unpack_without_prompts(packed: bytes) -> tuple[Step, ...]:
    """The steps with empty prompts. Decoding prompts would take most of the time, and the store checks none.

    Raises ValueError if the bytes are no packed steps.
    """
    return tuple(Step(prompt_ids=(), **asdict(step)) for step in _unpacked(packed, _without_prompts))


def screenshots_in(packed: bytes) -> frozenset[str]:
    """The sha256 of each screenshot in packed steps. Raises ValueError if the bytes are no packed steps."""
    return frozenset(step.screenshot_sha256 for step in _unpacked(packed, _seen))


class _Seen(msgspec.Struct):
    """The part of a step that `screenshots_in` decodes."""

    screenshot_sha256: str


def _struct_without(cls: type, left_out: str) -> Any:
    """A msgspec struct with all fields of a dataclass except `left_out`, which decoding then skips."""
    kinds = get_type_hints(cls)
    kept = [field for field in dataclasses.fields(cls) if field.name != left_out]
    return msgspec.defstruct(
        f"{cls.__name__}Without",
        [
            (field.name, kinds[field.name])
            if field.default is dataclasses.MISSING
            else (field.name, kinds[field.name], field.default)
            for field in kept
        ],
    )


_screen = msgspec.msgpack.Decoder(PageScreen)
_steps = msgspec.msgpack.Decoder(tuple[Step, ...])
_StepWithoutPrompt: Any = _struct_without(Step, "prompt_ids")
_without_prompts: Any = msgspec.msgpack.Decoder(tuple[_StepWithoutPrompt, ...])
_seen = msgspec.msgpack.Decoder(tuple[_Seen, ...])


def _unpacked(packed: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    try:
        return decoder.decode(packed)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ValueError(f"its steps cannot be read: {error}") from error


def check_trajectory(trajectory: Trajectory) -> None:
    """Check that a trajectory can be trained. Raises StoreConflict, which names rollout, field and value."""
    name = f"trajectory of rollout {trajectory.rollout_id}"
    if not 0.0 <= trajectory.reward <= 1.0:
        raise StoreConflict(f"{name}: reward must be in [0, 1], got {trajectory.reward!r}")
    if not trajectory.steps:
        raise StoreConflict(f"{name}: a finished episode has at least one step; report a fault instead")
    check_steps(name, trajectory.steps)


def check_demonstration(demonstration: Demonstration) -> None:
    """Check that a demonstration can be used. Raises StoreConflict, which names task, field and value."""
    name = f"demonstration of {demonstration.task_id} with seed {demonstration.seed}"
    if not 0.0 < demonstration.reward <= 1.0:
        raise StoreConflict(f"{name}: its reward must be in (0, 1], got {demonstration.reward!r}")
    if not demonstration.steps:
        raise StoreConflict(f"{name}: it has no steps")
    for number, step in enumerate(demonstration.steps):
        check_step(f"{name}: step {number}", step, imported=True)


def check_steps(name: str, steps: Sequence[Step]) -> None:
    """Check steps that this run sampled. Raises StoreConflict, which names step, field and value.

    name   what the steps belong to, for the message
    """
    for number, step in enumerate(steps):
        check_step(f"{name}: step {number}", step)


def check_step(name: str, step: Step, *, imported: bool = False) -> None:
    if not step.token_ids:
        raise StoreConflict(f"{name}: the answer has no tokens")
    if step.images and step.images[-1].sha256 != step.screenshot_sha256:
        raise StoreConflict(
            f"{name}: expected its screenshot {step.screenshot_sha256} as the last image of its prompt, "
            f"got {step.images[-1].sha256}"
        )
    if imported and not step.logprobs and not step.entropies:
        return
    check_figures(name, "logprobs", step.logprobs, len(step.token_ids))
    if not imported or step.entropies:
        check_figures(name, "entropies", step.entropies, len(step.token_ids))


def check_figures(name: str, field: str, figures: Sequence[float], tokens: int) -> None:
    if len(figures) != tokens:
        raise StoreConflict(f"{name}: {len(figures)} {field} for {tokens} tokens")
    if not all(math.isfinite(figure) for figure in figures):
        raise StoreConflict(f"{name}: {field} must be finite, got {list(figures)!r}")
