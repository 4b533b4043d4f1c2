"""Groups made by hand for the training tests."""

from collections.abc import Callable

import pytest

from dart.core.types import Demonstration, Group, Outcome, Step, Trajectory


def step_of(sha256: str = "0" * 64, token_ids: tuple[int, ...] = (1, 2, 3), **changes: object) -> Step:
    fields: dict[str, object] = {
        "screenshot_sha256": sha256,
        "prompt_ids": (5, 6),
        "token_ids": token_ids,
        "logprobs": tuple(-0.5 for _ in token_ids),
        "entropies": tuple(0.7 for _ in token_ids),
        "answer": "finished()",
        "policy_version": 0,
        "observe_ms": 1.0,
        "generate_ms": 1.0,
        "act_ms": 1.0,
    }
    return Step(**(fields | changes))  # type: ignore[arg-type]


def trajectory_of(steps: tuple[Step, ...], reward: float, rollout_id: int = 1) -> Trajectory:
    return Trajectory(
        rollout_id=rollout_id,
        group_id=1,
        task_id="click-test",
        seed=7,
        environment="env-000",
        instruction="Click the button.",
        outcome=Outcome.TERMINATED,
        reward=reward,
        steps=steps,
        started_unix_s=0.0,
        duration_s=1.0,
    )


def _group(rewards: list[float], lengths: list[int], **step_changes: object) -> Group:
    trajectories = tuple(
        trajectory_of(tuple(step_of(**step_changes) for _ in range(length)), reward, index)  # type: ignore[arg-type]
        for index, (reward, length) in enumerate(zip(rewards, lengths, strict=True))
    )
    return Group(group_id=1, task_id="click-test", seed=7, trajectories=trajectories)


@pytest.fixture
def group_of() -> Callable[..., Group]:
    """`group_of(rewards=[...], lengths=[...])`: a group whose trajectory i has lengths[i] equal steps."""
    return _group


def _demonstration(steps: int, reward: float = 1.0, **step_changes: object) -> Demonstration:
    played = step_of(**(step_changes | {"logprobs": (), "entropies": ()}))  # type: ignore[arg-type]
    return Demonstration(
        pool_id=1,
        task_id="click-test",
        seed=3,
        origin="oracle",
        instruction="Click the button.",
        reward=reward,
        steps=(played,) * steps,
    )


@pytest.fixture
def demonstration_of() -> Callable[..., Demonstration]:
    """`demonstration_of(steps=2)`: a success of two equal steps without log-probs and entropies."""
    return _demonstration
