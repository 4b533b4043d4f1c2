"""Trajectories as table rows and back: exactly what was sampled, nothing derived (train-what-was-sampled).

Token ids and figures are MessagePack arrays: integers take 1 to 5 bytes, floats keep all 64 bits.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgpack
from sqlalchemy import Row

from dart.store.errors import StoreConflict
from dart.types import Outcome, Step, Trajectory

Values = dict[str, Any]


def trajectory_row(trajectory: Trajectory, *, fence: int, stored_unix_s: float) -> Values:
    """The row of `trajectories`."""
    return {
        "rollout_id": trajectory.rollout_id,
        "group_id": trajectory.group_id,
        "task_id": trajectory.task_id,
        "seed": trajectory.seed,
        "environment": trajectory.environment,
        "instruction": trajectory.instruction,
        "outcome": trajectory.outcome.value,
        "reward": trajectory.reward,
        "num_steps": len(trajectory.steps),
        "oldest_version": min(step.policy_version for step in trajectory.steps),
        "started_unix_s": trajectory.started_unix_s,
        "duration_s": trajectory.duration_s,
        "fence": fence,
        "stored_unix_s": stored_unix_s,
    }


def step_rows(trajectory: Trajectory) -> list[Values]:
    """The rows of `steps`, in order."""
    return [step_row(trajectory.rollout_id, number, step) for number, step in enumerate(trajectory.steps)]


def step_row(rollout_id: int, number: int, step: Step) -> Values:
    return {
        "rollout_id": rollout_id,
        "step": number,
        "screenshot_sha256": step.screenshot_sha256,
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


def read_trajectory(row: Row[Any], steps: Iterable[Row[Any]]) -> Trajectory:
    """The trajectory of a row of `trajectories` and its rows of `steps` in order."""
    return Trajectory(
        rollout_id=row.rollout_id,
        group_id=row.group_id,
        task_id=row.task_id,
        seed=row.seed,
        environment=row.environment,
        instruction=row.instruction,
        outcome=Outcome(row.outcome),
        reward=row.reward,
        steps=tuple(read_step(step) for step in steps),
        started_unix_s=row.started_unix_s,
        duration_s=row.duration_s,
    )


def read_step(row: Row[Any]) -> Step:
    return Step(
        screenshot_sha256=row.screenshot_sha256,
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


def unpack(blob: bytes) -> tuple[Any, ...]:
    return tuple(msgpack.unpackb(blob))


def check_trajectory(trajectory: Trajectory) -> None:
    """Refuse what training could not use. Raises StoreConflict that names rollout, field and value."""
    name = f"trajectory of rollout {trajectory.rollout_id}"
    if not 0.0 <= trajectory.reward <= 1.0:
        raise StoreConflict(f"{name}: reward must be in [0, 1], got {trajectory.reward!r}")
    if not trajectory.steps:
        raise StoreConflict(f"{name}: a finished episode has at least one step; report a fault instead")
    for number, step in enumerate(trajectory.steps):
        check_step(f"{name}: step {number}", step)


def check_step(name: str, step: Step) -> None:
    if not step.token_ids:
        raise StoreConflict(f"{name}: the answer has no tokens")
    check_figures(name, "logprobs", step.logprobs, len(step.token_ids))
    check_figures(name, "entropies", step.entropies, len(step.token_ids))


def check_figures(name: str, field: str, figures: Sequence[float], tokens: int) -> None:
    if len(figures) != tokens:
        raise StoreConflict(f"{name}: {len(figures)} {field} for {tokens} tokens")
    if not all(math.isfinite(figure) for figure in figures):
        raise StoreConflict(f"{name}: {field} must be finite, got {list(figures)!r}")
