"""The phases of a run: evaluation of the base policy, training, evaluation of the trained policy, done.

The phase follows from the record and the time alone, so a restarted curator is in the same phase as before.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from dart.config.config import Config
from dart.core.records import Evaluation, EvaluationPhase, RunPhase
from dart.core.seeds import HELD_OUT_SEEDS


class EvaluationEpisode(NamedTuple):
    """One episode of an evaluation. The evaluations before and after training each play it once."""

    task_id: str
    seed: int
    is_greedy: bool = False
    """Whether the episode is played with the most likely answers instead of sampled ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Which evaluations a run plays and when its training ends, according to its configuration."""

    config: Config
    training_ends_s: float
    """When training ends and the final evaluation begins, by the clock that `phase_now` gets; infinity: no
    limit."""

    @property
    def episodes(self) -> frozenset[EvaluationEpisode]:
        """All episodes of one evaluation: sampled ones and greedy ones, of each task and held-out seed."""
        tasks, evaluation = self.config.tasks.train, self.config.evaluation
        seeds = HELD_OUT_SEEDS[: evaluation.seeds_per_task]
        greedy_seeds = seeds[: evaluation.greedy_seeds_per_task] if evaluation.temperature > 0 else ()
        sampled = {EvaluationEpisode(task, seed) for task in tasks for seed in seeds}
        greedy = {EvaluationEpisode(task, seed, is_greedy=True) for task in tasks for seed in greedy_seeds}
        return frozenset(sampled | greedy)

    def is_measured(self, phase: EvaluationPhase) -> bool:
        """Whether the configuration has an evaluation in this phase."""
        evaluation = self.config.evaluation
        return evaluation.before if phase is EvaluationPhase.BEFORE else evaluation.after


def that_count(
    evaluations: Iterable[Evaluation], phase: EvaluationPhase, newest_version: int | None
) -> tuple[Evaluation, ...]:
    """Return the recorded results that count for the evaluation of a phase.

    For the evaluation after training, only results of the newest version count, because a run that was
    resumed may have measured an older version.
    """
    return tuple(
        one
        for one in evaluations
        if one.phase is phase and (phase is EvaluationPhase.BEFORE or one.policy_version == newest_version)
    )


def turn(episode: EvaluationEpisode) -> tuple[int, bool, str]:
    """Return the rank by which the episodes of an evaluation are ordered: by seed first, so that tasks are
    mixed."""
    return episode.seed, episode.is_greedy, episode.task_id


def missing(plan: RunPlan, done: Iterable[Evaluation]) -> list[EvaluationEpisode]:
    """Return the evaluation episodes that have no result in `done`, in the order of `turn`."""
    played = {EvaluationEpisode(one.task_id, one.seed, one.is_greedy) for one in done}
    return sorted(plan.episodes - played, key=turn)


def still_to_play(
    plan: RunPlan, evaluations: Iterable[Evaluation], phase: EvaluationPhase, newest_version: int | None
) -> list[EvaluationEpisode]:
    """Return the episodes that the evaluation of a phase still has to play, in the order of `turn`.

    Version 0 is the base policy. A run that measured it before training does not measure it again after it.
    """
    is_after = phase is EvaluationPhase.AFTER
    if is_after and newest_version == 0 and plan.is_measured(EvaluationPhase.BEFORE):
        return []
    return missing(plan, that_count(evaluations, phase, newest_version))


def phase_now(
    plan: RunPlan, *, updates: int, actions: int, now_s: float, missing_before: int, missing_after: int
) -> RunPhase:
    """Return the phase of a run.

    updates          number of committed updates
    actions          number of environment steps played for training; 0 if `training.actions` is 0
    now_s            the time by the clock of `plan.training_ends_s`
    missing_before   number of episodes that the evaluation before training still has to play
    missing_after    the same of the evaluation after training
    """
    evaluation, training = plan.config.evaluation, plan.config.training
    if evaluation.before and missing_before and updates == 0:
        return RunPhase.BASE_EVALUATION
    is_spent = 0 < training.updates <= updates or 0 < training.actions <= actions
    if training.learner != "none" and not is_spent and now_s < plan.training_ends_s:
        return RunPhase.TRAINING
    if evaluation.after and missing_after:
        return RunPhase.FINAL_EVALUATION
    return RunPhase.DONE
