"""The configuration in the curator's words: each switch puts its rule in or leaves it out."""

import pytest

from dart.config.config import load_config
from dart.config.sections import TaskQuarantineSettings
from dart.core.records import RECENT_REWARDS
from dart.curation.admission import Scheduling
from dart.curation.experience_pool import PoolRule
from dart.curation.quota import Quota, fixed_quota
from dart.curation.settings import CuratorSettings, settings_of
from dart.curation.step_cap import StepCap
from dart.curation.task_selection import ByExpectedSpread


def settings_with(*overrides: str) -> CuratorSettings:
    return settings_of(load_config(None, [f"curation.{override}" for override in overrides]))


def test_by_default_groups_are_fixed_and_only_quarantine_is_on() -> None:
    settings = settings_with()
    assert settings.quota == fixed_quota(8)
    assert (settings.step_cap, settings.pool) == (None, None)
    assert (settings.penalised_up_to, settings.compared_above) == (None, None)
    assert settings.task_quarantine == TaskQuarantineSettings(
        groups_without_success=0, failed_attempts=20, lost_environments=5, duration_s=300.0
    )
    assert (settings.scheduling, settings.over_provision) == (Scheduling.ROLLOUT, 0.0)


@pytest.mark.parametrize(
    ("override", "rule", "value"),
    [
        (
            "rollout_number.enabled=true",
            "quota",
            Quota(most=8, minimum=2, threshold=0.6),
        ),
        ("trajectory_length.enabled=true", "step_cap", StepCap(largest=10, slack=1, probe_share=0.1)),
        ("experience_pool.enabled=true", "pool", PoolRule(max_uses=0, matches_seeds=True)),
        ("task_quarantine.enabled=false", "task_quarantine", None),
        ("scheduling=batch", "scheduling", Scheduling.BATCH),
        ("over_provision=1.5", "over_provision", 1.5),
        ("step_credit.method=gigpo", "compared_above", 0.5),
        ("failure_penalty.enabled=true", "penalised_up_to", 0.5),
        ("task_order=expected_spread", "task_order", ByExpectedSpread),
        ("batch_lease_s=900.0", "batch_lease_s", 900.0),
        ("lease_s=90.0", "lease_s", 90.0),
        ("poll_s=0.25", "retry_after_s", 0.25),
        ("max_attempts=7", "max_attempts", 7),
        ("staleness=5", "staleness_bound", 5),
        ("step_cap=12", "largest_step_cap", 12),
    ],
)
def test_a_switch_puts_its_rule_in(override: str, rule: str, value: object) -> None:
    assert getattr(settings_with(override), rule) == value


@pytest.mark.parametrize("override", ["method=trajectory", "weight=0.0", "discount=1.0"])
def test_lengths_are_compared_only_where_they_change_an_advantage(override: str) -> None:
    settings = settings_with("step_credit.method=gigpo", f"step_credit.{override}")
    assert settings.compared_above is None


def test_what_counts_as_a_success_does_so_in_every_rule() -> None:
    switches = ("experience_pool.enabled=true", "failure_penalty.enabled=true", "step_credit.method=gigpo")
    settings = settings_with("success_above=0.3", *switches)
    assert settings.pool is not None
    assert settings.pool.success_above == 0.3
    assert settings.success_above == settings.penalised_up_to == settings.compared_above == 0.3


def test_the_seed_of_the_run_orders_its_tasks_and_its_demonstrations() -> None:
    settings = settings_of(load_config(None, ["run.seed=7", "curation.experience_pool.enabled=true"]))
    assert settings.pool is not None
    assert (settings.order_seed, settings.pool.order_seed) == (7, 7)


def test_a_task_of_osworld_begins_alike_for_every_seed_and_its_demonstrations_join_any_group() -> None:
    config = load_config(None, ["curation.experience_pool.enabled=true"])
    environments = config.environments.model_copy(update={"kind": "osworld"})
    pool = settings_of(config.model_copy(update={"environments": environments})).pool
    assert pool is not None
    assert not pool.matches_seeds


@pytest.mark.parametrize(
    ("rollouts", "kept"), [(8, RECENT_REWARDS), (RECENT_REWARDS + 1, RECENT_REWARDS + 1)]
)
def test_as_many_rewards_of_a_task_are_kept_as_its_largest_group_needs(rollouts: int, kept: int) -> None:
    settings = settings_with(f"rollouts_per_group={rollouts}")
    assert settings.kept_rewards == settings.kept_episodes == kept


def test_the_episodes_of_eight_full_groups_are_kept_where_the_pool_chooses_seeds_by_them() -> None:
    settings = settings_with("rollouts_per_group=8", "experience_pool.enabled=true")
    assert (settings.kept_rewards, settings.kept_episodes) == (RECENT_REWARDS, 64)


def test_demonstrations_are_used_and_tried_as_often_as_is_said() -> None:
    on = ("experience_pool.enabled=true", "experience_pool.self_rolled=true")
    bare = (*on, "experience_pool.without_thought=true", "experience_pool.max_uses=2")
    assert settings_with(*on).pool == PoolRule(max_uses=0, matches_seeds=True, guided_attempts=4)
    assert settings_with(*bare).pool == PoolRule(
        max_uses=2, matches_seeds=True, guided_attempts=4, without_thought=True
    )
