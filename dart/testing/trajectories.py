"""Trajectories, evaluation episodes and demonstrations for tests.

They are valid, and their values differ from each other, so that a test notices if two values are swapped.
"""

from collections.abc import Sequence

from dart.core.records import Evaluation, EvaluationPhase, EvaluationPlay
from dart.core.types import Demonstration, Outcome, RolloutLease, Step, Trajectory


def step_at(version: int, number: int = 0) -> Step:
    """Return a step of a policy version; `number` determines its screenshot, prompt and answer."""
    return Step(
        screenshot_sha256=f"{number:064x}",
        prompt_ids=tuple(range(number, number + 20)),
        token_ids=(7, 70_000 + number, 2),
        logprobs=(-0.1, -1.0 / 3.0, -2.5e-8),
        entropies=(0.5, 1.0 / 7.0, 0.0),
        answer=f"click(point='<point>{number} 2</point>')",
        policy_version=version,
        observe_ms=1.5,
        generate_ms=20.25,
        act_ms=3.0,
    )


def trajectory_for(
    lease: RolloutLease, reward: float = 1.0, versions: Sequence[int] = (0, 0), environment: str = "env-000"
) -> Trajectory:
    """Return the trajectory that an environment would report for a lease.

    versions   the policy version of each step
    """
    return Trajectory(
        rollout_id=lease.rollout_id,
        group_id=lease.group_id,
        task_id=lease.task_id,
        seed=lease.seed,
        environment=environment,
        instruction=f"click on {lease.task_id}, then “submit”",
        outcome=Outcome.FINISHED,
        reward=reward,
        steps=tuple(step_at(version, number) for number, version in enumerate(versions)),
        started_unix_s=1000.0,
        duration_s=2.5,
    )


def demonstration_of(task_id: str, seed: int, steps: Sequence[Step]) -> Demonstration:
    """Return a success on a task that an oracle played."""
    return Demonstration(
        pool_id=0,
        task_id=task_id,
        seed=seed,
        origin="oracle",
        instruction=f"click on {task_id}",
        reward=1.0,
        steps=tuple(steps),
    )


EVALUATION = Evaluation(
    phase=EvaluationPhase.BEFORE, policy_version=0, task_id="click-test", seed=1_000_001, reward=1.0
)
"""An evaluation episode of the base policy."""


def evaluation_play(environment: str = "env-000", steps_sha256: str = "0" * 64) -> EvaluationPlay:
    """Return how an evaluation episode was played, with numbers that are whole and not."""
    return EvaluationPlay(
        environment=environment,
        instruction="click on click-test, then “submit”",
        outcome=Outcome.FINISHED,
        num_steps=1,
        steps_sha256=steps_sha256,
        started_unix_s=1000,
        duration_s=2.5,
    )
