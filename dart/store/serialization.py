"""Trajectories and demonstrations as table rows and back: exactly what was sampled, nothing derived
(train-what-was-sampled).

Token ids and figures are MessagePack arrays: integers take 1 to 5 bytes, floats keep all 64 bits. A checksum
is of the values as the columns hold them, so that it can be computed again from the rows alone.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

import msgpack

from dart.core.types import Demonstration, PromptImage, Step, Trajectory, VersionSpan
from dart.store.errors import StoreConflict

T = TypeVar("T")

Values = dict[str, Any]

Row = Any
"""A row of the record: its columns as attributes."""


STEP_COLUMNS = (
    "step",
    "screenshot_sha256",
    "images",
    "spans",
    "prompt_ids",
    "token_ids",
    "logprobs",
    "entropies",
    "answer",
    "policy_version",
    "observe_ms",
    "generate_ms",
    "act_ms",
)
TRAJECTORY_COLUMNS = (
    "rollout_id",
    "group_id",
    "task_id",
    "seed",
    "environment",
    "instruction",
    "outcome",
    "reward",
    "num_steps",
    "oldest_version",
    "started_unix_s",
    "duration_s",
    "fence",
    "stored_unix_s",
)
DEMONSTRATION_COLUMNS = (
    "task_id",
    "seed",
    "origin",
    "instruction",
    "reward",
    "num_steps",
    "content_sha256",
    "added_unix_s",
)
"""What never changes of a row of `pool`."""
EVENT_COLUMNS = ("unix_s", "kind", "subject", "data")
PARKED_COLUMNS = ("steps", "num_steps", "oldest_version")
"""What of a row of `parked` belongs to its steps."""

_FLOATS = frozenset(
    {
        "reward",
        "started_unix_s",
        "duration_s",
        "stored_unix_s",
        "added_unix_s",
        "unix_s",
        "observe_ms",
        "generate_ms",
        "act_ms",
    }
)
"""Columns that make a float of a whole number."""


def checksum(
    row: Mapping[str, Any], columns: Sequence[str], steps: Iterable[Mapping[str, Any]] = ()
) -> bytes:
    """A hash of these columns of a row, and of its steps in order."""
    parts = [_values(row, columns), *(_values(step, STEP_COLUMNS) for step in steps)]
    return hashlib.blake2b(msgpack.packb(parts), digest_size=16).digest()


def _values(row: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    return [float(row[name]) if name in _FLOATS else row[name] for name in columns]


def row_of(record: Any, *without: str) -> Values:
    """The columns that the fields of a record are, but for those that are none."""
    names = (field.name for field in dataclasses.fields(record) if field.name not in without)
    values = {name: getattr(record, name) for name in names}
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}


def record_of(cls: type[T], row: Row, **known: Any) -> T:
    """The record that a row is: each field is the column of its name, unless its value is known already.

    Raises TypeError or ValueError for a column that holds no value of its field.
    """
    columns = {name: make(getattr(row, name)) for name, make in _makers(cast(Any, cls)) if name not in known}
    return cls(**columns, **known)


@cache
def _makers(cls: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The fields of a record, each with what makes its value of a column's."""
    hints = get_type_hints(cls)
    return tuple((field.name, _maker(hints[field.name])) for field in dataclasses.fields(cls))


def _maker(hint: Any) -> Callable[[Any], Any]:
    if hint in (bool, float) or (isinstance(hint, type) and issubclass(hint, Enum)):
        return hint  # type: ignore[no-any-return]
    return lambda value: value


def trajectory_row(
    trajectory: Trajectory, steps: Iterable[Values], *, fence: int, stored_unix_s: float
) -> Values:
    """The row of `trajectories` that belongs to its rows of `steps`."""
    row = row_of(trajectory, "steps") | {
        "num_steps": len(trajectory.steps),
        "oldest_version": min(step.policy_version for step in trajectory.steps),
        "fence": fence,
        "stored_unix_s": stored_unix_s,
    }
    return row | {"checksum": checksum(row, TRAJECTORY_COLUMNS, steps)}


def step_rows(trajectory: Trajectory) -> list[Values]:
    """The rows of `steps`, in order."""
    return [
        {"rollout_id": trajectory.rollout_id, "step": number} | step_row(step)
        for number, step in enumerate(trajectory.steps)
    ]


def step_row(step: Step) -> Values:
    return {
        "screenshot_sha256": step.screenshot_sha256,
        "images": msgpack.packb([(image.sha256, image.tokens) for image in step.images]),
        "spans": msgpack.packb([(span.version, span.end) for span in step.spans]),
        "prompt_ids": msgpack.packb(step.prompt_ids),
        "token_ids": msgpack.packb(step.token_ids),
        "logprobs": msgpack.packb(step.logprobs),
        "entropies": msgpack.packb(step.entropies),
        "answer": step.answer,
        "policy_version": step.policy_version,
        "observe_ms": step.observe_ms,
        "generate_ms": step.generate_ms,
        "act_ms": step.act_ms,
    }


def demonstration_row(demonstration: Demonstration, *, added_unix_s: float) -> Values:
    """The row of `pool`, never used yet."""
    row = row_of(demonstration, "pool_id", "steps") | {
        "num_steps": len(demonstration.steps),
        "content_sha256": content_sha256(demonstration),
        "uses": 0,
        "dropped": False,
        "added_unix_s": added_unix_s,
    }
    return row | {"checksum": checksum(row, DEMONSTRATION_COLUMNS, demonstration_step_rows(0, demonstration))}


def content_sha256(demonstration: Demonstration) -> str:
    """What makes two demonstrations the same: task, seed and what was seen and answered at each step. What
    the policy answered itself has its log-probs, so it is another one than its guide."""
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
    return hashlib.sha256(msgpack.packb(content)).hexdigest()


def demonstration_step_rows(pool_id: int, demonstration: Demonstration) -> list[Values]:
    """The rows of `pool_steps`, in order."""
    return [
        {"pool_id": pool_id, "step": number}
        | step_row(step)
        | ({} if step.has_behaviour else {"logprobs": None, "entropies": None})
        for number, step in enumerate(demonstration.steps)
    ]


def read_demonstration(row: Row, steps: Iterable[Row]) -> Demonstration:
    """The demonstration of a row of `pool` and its rows of `pool_steps` in order."""
    return record_of(Demonstration, row, steps=tuple(read_step(step) for step in steps))


def pack_steps(steps: Sequence[Step]) -> bytes:
    """The steps of a parked episode in one piece."""
    packed: bytes = msgpack.packb([dataclasses.astuple(step) for step in steps])
    return packed


def unpack_steps(blob: bytes) -> tuple[Step, ...]:
    """The steps that `pack_steps` packed, also before a step had images or spans."""
    names = [field.name for field in dataclasses.fields(Step)]
    return tuple(
        _unpacked(Step(**dict(zip(names, values, strict=False))))
        for values in msgpack.unpackb(blob, use_list=False)
    )


def _unpacked(step: Step) -> Step:
    """`images` and `spans` as plain data made what they were."""
    if not step.images and not step.spans:
        return step
    return dataclasses.replace(step, images=_images(step.images), spans=_spans(step.spans))


def _images(plain: Iterable[Any]) -> tuple[PromptImage, ...]:
    return tuple(PromptImage(sha256=sha256, tokens=tokens) for sha256, tokens in plain)


def _spans(plain: Iterable[Any]) -> tuple[VersionSpan, ...]:
    return tuple(VersionSpan(version=version, end=end) for version, end in plain)


def read_trajectory(row: Row, steps: Iterable[Row]) -> Trajectory:
    """The trajectory of a row of `trajectories` and its rows of `steps` in order."""
    return record_of(Trajectory, row, steps=tuple(read_step(step) for step in steps))


def read_step(row: Row) -> Step:
    return Step(
        screenshot_sha256=row.screenshot_sha256,
        images=_images(unpack(row.images)),
        spans=_spans(unpack(row.spans)),
        prompt_ids=unpack(row.prompt_ids),
        token_ids=unpack(row.token_ids),
        logprobs=unpack(row.logprobs),
        entropies=unpack(row.entropies),
        answer=row.answer,
        policy_version=row.policy_version,
        observe_ms=row.observe_ms,
        generate_ms=row.generate_ms,
        act_ms=row.act_ms,
    )


def unpack(blob: bytes | None) -> tuple[Any, ...]:
    return () if blob is None else tuple(msgpack.unpackb(blob))


def check_trajectory(trajectory: Trajectory) -> None:
    """Refuse what training could not use. Raises StoreConflict that names rollout, field and value."""
    name = f"trajectory of rollout {trajectory.rollout_id}"
    if not 0.0 <= trajectory.reward <= 1.0:
        raise StoreConflict(f"{name}: reward must be in [0, 1], got {trajectory.reward!r}")
    if not trajectory.steps:
        raise StoreConflict(f"{name}: a finished episode has at least one step; report a fault instead")
    check_steps(name, trajectory.steps)


def check_demonstration(demonstration: Demonstration) -> None:
    """Refuse what is no success. Raises StoreConflict that names task, field and value."""
    name = f"demonstration of {demonstration.task_id} with seed {demonstration.seed}"
    if not 0.0 < demonstration.reward <= 1.0:
        raise StoreConflict(f"{name}: its reward must be in (0, 1], got {demonstration.reward!r}")
    if not demonstration.steps:
        raise StoreConflict(f"{name}: it has no steps")
    for number, step in enumerate(demonstration.steps):
        check_step(f"{name}: step {number}", step, imported=True)


def check_steps(name: str, steps: Sequence[Step]) -> None:
    """Refuse steps this run cannot have sampled. Raises StoreConflict that names step, field and value."""
    for number, step in enumerate(steps):
        check_step(f"{name}: step {number}", step)


def check_step(name: str, step: Step, *, imported: bool = False) -> None:
    if not step.token_ids:
        raise StoreConflict(f"{name}: the answer has no tokens")
    if step.images and step.images[-1].sha256 != step.screenshot_sha256:
        raise StoreConflict(
            f"{name}: the last image of its prompt is {step.images[-1].sha256}, "
            f"its own screenshot is {step.screenshot_sha256}"
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
