"""What the configuration says about curation, in the curator's own words."""

from dart.config.config import Config
from dart.config.environment_kinds import KINDS
from dart.core.seeds import TRAINING_SEEDS, held_out_seed
from dart.curation.curator import CuratorSettings
from dart.curation.experience_pool import PoolRule
from dart.curation.quota import DynamicQuota, FixedQuota, GroupPlan
from dart.curation.run_phases import RunPlan
from dart.curation.scheduling import Scheduling
from dart.curation.step_cap import StepCap
from dart.curation.task_quarantine import TaskQuarantineLimits


def settings_of(config: Config) -> CuratorSettings:
    """The service's settings from the configuration; a switch that is off leaves its rule out."""
    curation, seed = config.curation, config.run.seed
    number, length = curation.rollout_number, curation.trajectory_length
    quarantine = curation.task_quarantine
    group = GroupPlan(rollouts=curation.rollouts_per_group, step_cap=curation.step_cap)
    cap = StepCap(largest=curation.step_cap, slack=length.slack, probe_share=length.probe_share)
    experience = curation.experience_pool
    pool = PoolRule(
        max_uses=experience.max_uses,
        order_seed=seed,
        matches_seeds=KINDS[config.environments.kind].content_follows_from_seed,
        without_thought=experience.without_thought,
        guided_attempts=experience.self_rolled_attempts if experience.self_rolled else 0,
        success_above=curation.success_above,
    )
    limits = TaskQuarantineLimits(
        groups_without_success=quarantine.groups_without_success,
        failed_attempts=quarantine.failed_attempts,
        lost_environments=quarantine.lost_environments,
        duration_s=quarantine.duration_s,
    )
    return CuratorSettings(
        tasks=config.tasks.train,
        seeds=TRAINING_SEEDS,
        quota=DynamicQuota(group=group, minimum=number.minimum, threshold=number.threshold)
        if number.enabled
        else FixedQuota(group),
        step_cap=cap if length.enabled else None,
        pool=pool if experience.enabled else None,
        task_quarantine=limits if quarantine.enabled else None,
        scheduling=Scheduling(curation.scheduling),
        groups_per_update=config.training.groups_per_update,
        staleness_bound=curation.staleness,
        success_above=curation.success_above,
        over_provision=curation.over_provision,
        max_attempts=curation.max_attempts,
        lease_s=curation.lease_s,
        batch_lease_s=curation.batch_lease_s,
        retry_after_s=curation.poll_s,
        order_seed=seed,
    )


def plan_of(config: Config, training_ends_unix_s: float) -> RunPlan:
    """What the run is to do, from the configuration."""
    evaluation = config.evaluation
    seeds = tuple(held_out_seed(index) for index in range(evaluation.seeds_per_task))
    return RunPlan(
        tasks=config.tasks.train,
        held_out_seeds=seeds,
        greedy_seeds=seeds[: evaluation.greedy_seeds_per_task] if evaluation.temperature > 0 else (),
        before=config.evaluation.before,
        after=config.evaluation.after,
        max_updates=config.training.updates,
        max_actions=config.training.actions,
        training_ends_unix_s=training_ends_unix_s,
    )
