"""Which changes of the configuration a running run takes, and which it refuses."""

import re

import pytest

from dart.config.config import Config, load_config
from dart.core.errors import ConfigurationError
from dart.run.reload import ReloadPlan, planned
from dart.run.tree import root_spec
from supervision.messages import UpdateChild, UpdateFlags


def plan(*overrides: str, before: tuple[str, ...] = ()) -> ReloadPlan:
    def tree_of(config: Config) -> object:
        return root_spec(config, {"config": config.model_dump(mode="json")})

    old, new = (load_config(None, [*before, *more]) for more in ((), overrides))
    return planned(old, new, tree_of)  # type: ignore[arg-type]


def told(plan: ReloadPlan) -> list[tuple[str, str, dict[str, object]]]:
    """(supervisor, child or nothing, what is changed) without the arguments of the next start."""
    return [
        (
            change.supervisor,
            change.call.id if isinstance(change.call, UpdateChild) else "",
            {name: value for name, value in change.call.changes.items() if name != "args"},
        )
        for change in plan.changes
    ]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("supervision.root.max_restarts=9", [("root", "", {"max_restarts": 9})]),
        ("supervision.curator.hang_deadline_s=3.0", [("root", "curator", {"hang_deadline_s": 3.0})]),
        ("supervision.rollout_pool.max_seconds=9.0", [("rollout_pool", "", {"max_seconds": 9.0})]),
        (
            "supervision.rollout_pool.hang_deadline_s=3.0",
            [("rollout_pool", "rollout-0", {"hang_deadline_s": 3.0})],
        ),
        (
            "supervision.children.env-003.hang_deadline_s=3.0",
            [("environment_pool", "env-003", {"hang_deadline_s": 3.0})],
        ),
        ("environments.count=24", [("root", "environment_pool", {"start_deadline_s": 725.0})]),
        ("supervision.exploration.shutdown_s=9.0", []),
    ],
)
def test_what_differs_in_the_tree_is_told_to_whom_it_concerns(
    override: str, expected: list[tuple[str, str, dict[str, object]]]
) -> None:
    assert told(plan(override)) == expected


def test_a_breaker_may_be_switched_off_live() -> None:
    (change, *_) = plan("supervision.environment_pool.breaker.enabled=false").changes

    assert isinstance(change.call, UpdateChild)
    assert change.call.changes["breaker"] is None


def test_the_next_start_of_a_child_is_told_the_configuration_that_holds_then() -> None:
    (change,) = plan("supervision.curator.shutdown_s=9.0").changes

    assert not isinstance(change.call, UpdateFlags)
    assert change.call.changes["args"]["config"]["supervision"]["curator"]["shutdown_s"] == 9.0


@pytest.mark.parametrize(
    "override",
    ["training.lr=1e-5", "curation.staleness=1", "rollout.max_batch=2", "run.seed=7"],
)
def test_what_a_run_is_made_with_is_refused_by_name(override: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(override.partition('=')[0])} cannot change"):
        plan(override, "supervision.root.max_restarts=9")


def test_a_budget_of_a_kind_may_come_and_not_go() -> None:
    key = "supervision.curator.budgets.hang.max_seconds"

    assert plan(f"{key}=60.0").keys[-1] == key
    with pytest.raises(ConfigurationError, match=key):
        plan(f"{key}=0.0", before=(f"{key}=60.0",))
