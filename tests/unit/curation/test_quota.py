"""The fixed quota."""

import pytest

from dart.curation.quota import FixedQuota, GroupPlan
from dart.store.records import TaskStatistics


@pytest.mark.parametrize("rewards", [(), (0.0,) * 8, (1.0,) * 8])
def test_the_fixed_quota_is_the_same_whatever_a_task_did(rewards: tuple[float, ...]) -> None:
    plan = GroupPlan(rollouts=8, step_cap=10)
    statistics = TaskStatistics(
        task_id="click-test", groups_opened=1, recent_rewards=rewards, longest_success_steps=2
    )
    assert FixedQuota(plan).plan(statistics) == plan


@pytest.mark.parametrize(("rollouts", "step_cap"), [(1, 10), (8, 0)])
def test_a_plan_that_cannot_be_compared_or_played_is_refused(rollouts: int, step_cap: int) -> None:
    with pytest.raises(ValueError, match="at least 2 rollouts of at least 1 step, got GroupPlan"):
        GroupPlan(rollouts=rollouts, step_cap=step_cap)
