"""The settings of the curator, made from the configuration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dart.config.config import Config, trained_tasks
from dart.config.environment_kinds import kind_of
from dart.config.sections import StepCreditSettings, TaskQuarantineSettings
from dart.core.records import RECENT_REWARDS
from dart.core.seeds import TRAINING_SEEDS
from dart.core.types import SUCCESS_ABOVE
from dart.curation.admission import Scheduling
from dart.curation.experience_pool import PoolRule
from dart.curation.quota import Quota, fixed_quota
from dart.curation.step_cap import StepCap
from dart.curation.task_selection import ByExpectedSpread, RoundRobin, TaskOrder

TASK_ORDERS: Mapping[str, Callable[[Sequence[str], int], TaskOrder]] = {
    "round_robin": RoundRobin,
    "expected_spread": ByExpectedSpread,
}
"""Class of the order of tasks for each value of `curation.task_order`."""

KEPT_GROUPS = 8
"""Number of full groups of a task whose episodes are kept, if the experience pool chooses seeds by them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorSettings:
    """The curator's settings; a rule that is None is switched off."""

    tasks: tuple[str, ...]
    seeds: Sequence[int]
    """The seeds of training; may be a range."""
    quota: Quota
    largest_step_cap: int
    """The global step cap, in environment steps."""
    groups_per_update: int
    staleness_bound: int
    """K: the largest staleness of a trained step, in policy versions."""
    success_above: float = SUCCESS_ABOVE
    """An episode with a reward above this value is a success."""
    penalised_up_to: float | None = None
    """Largest reward of a failure, if a group is trained in which every rollout failed, one of them with its
    only step."""
    compared_above: float | None = None
    """Rewards above this are successes, if a group of equal successes of different lengths is trained."""
    max_attempts: int
    lease_s: float
    batch_lease_s: float = 600.0
    retry_after_s: float = 0.5
    over_provision: float = 0.0
    """APRIL's alpha: live groups outside the trainer, as a multiple of `groups_per_update`; 0: only the
    staleness bound limits them."""
    scheduling: Scheduling = Scheduling.ROLLOUT
    step_cap: StepCap | None = None
    pool: PoolRule | None = None
    task_quarantine: TaskQuarantineSettings | None = None
    task_order: Callable[[Sequence[str], int], TaskOrder] = RoundRobin
    """Returns an order of tasks, given their ids and `order_seed`."""
    order_seed: int = 0

    @property
    def kept_rewards(self) -> int:
        """Number of a task's newest rewards that its N and the order of tasks are decided from."""
        return max(RECENT_REWARDS, self.quota.most)

    @property
    def kept_episodes(self) -> int:
        """Number of a task's newest episodes that are kept: `kept_rewards`, and at least eight full groups if
        the pool chooses seeds by them (`PoolRule.seed_for`)."""
        by_seed = self.pool is not None and self.pool.matches_seeds
        return max(self.kept_rewards, KEPT_GROUPS * self.quota.most if by_seed else 0)


def settings_of(config: Config) -> CuratorSettings:
    """Return the curator's settings from the configuration. A rule that is switched off is None."""
    curation, seed = config.curation, config.run.seed
    number, length = curation.rollout_number, curation.trajectory_length
    most = curation.rollouts_per_group
    dynamic = Quota(most=most, minimum=number.minimum, threshold=number.threshold)
    cap = StepCap(largest=curation.step_cap, slack=length.slack, probe_share=length.probe_share)
    experience = curation.experience_pool
    pool = PoolRule(
        max_uses=experience.max_uses,
        order_seed=seed,
        matches_seeds=kind_of(config.environments).content_follows_from_seed,
        without_thought=experience.without_thought,
        guided_attempts=experience.self_rolled_attempts if experience.self_rolled else 0,
        success_above=curation.success_above,
    )
    return CuratorSettings(
        tasks=trained_tasks(config),
        seeds=TRAINING_SEEDS,
        quota=dynamic if number.enabled else fixed_quota(most),
        largest_step_cap=curation.step_cap,
        step_cap=cap if length.enabled else None,
        pool=pool if experience.enabled else None,
        task_quarantine=curation.task_quarantine if curation.task_quarantine.enabled else None,
        scheduling=Scheduling(curation.scheduling),
        groups_per_update=config.training.groups_per_update,
        staleness_bound=curation.staleness,
        success_above=curation.success_above,
        penalised_up_to=curation.success_above if curation.failure_penalty.enabled else None,
        compared_above=curation.success_above if _compares_lengths(curation.step_credit) else None,
        over_provision=curation.over_provision,
        max_attempts=curation.max_attempts,
        lease_s=curation.lease_s,
        batch_lease_s=curation.batch_lease_s,
        retry_after_s=curation.poll_s,
        task_order=TASK_ORDERS[curation.task_order],
        order_seed=seed,
    )


def _compares_lengths(credit: StepCreditSettings) -> bool:
    """Whether the steps of a longer way to the same reward have other advantages than those of a shorter."""
    return credit.method == "gigpo" and credit.weight > 0 and credit.discount < 1
