"""The tree in code is the tree of the plan."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from actors.codec import from_plain
from dart.config.config import Config, load_config
from dart.run.app import final_reserve_s
from dart.run.tree import children, root_spec
from supervision.actions import Ended, Status
from supervision.child_spec import Budget, ChildSpec, Failure, Restart, Strategy, SupervisorFlags
from supervision.core import SupervisorCore


def test_the_tree_starts_its_owners_before_those_who_depend_on_them() -> None:
    ids = [child.id for child in children(load_config(), {})]

    assert ids == ["store", "curator", "rollout_pool", "weight_sync", "environment_pool", "trainer"]


def test_a_dead_owner_takes_the_rest_along_and_pools_do_not() -> None:
    args = root_spec(load_config(), {}).args
    pool = next(child for child in args["children"] if child["id"] == "environment_pool")

    assert from_plain(args["flags"], SupervisorFlags).strategy is Strategy.REST_FOR_ONE
    assert from_plain(pool["args"]["flags"], SupervisorFlags) == SupervisorFlags(
        max_restarts=20, max_seconds=60.0, max_quarantined=0.5, ordered=False
    )


def test_what_has_loaded_a_policy_or_a_browser_goes_on_without_store_and_curator() -> None:
    independent = [child.id for child in children(load_config(), {}) if child.independent]

    assert independent == ["rollout_pool", "environment_pool", "trainer"]


def test_the_run_ends_with_its_trainer_and_with_nobody_else() -> None:
    significant = [child for child in children(load_config(), {}) if child.significant]

    assert [(child.id, child.restart) for child in significant] == [("trainer", Restart.TRANSIENT)]


def test_the_run_ends_with_the_third_update_that_overruns_its_deadline() -> None:
    config = load_config(Path("configs/osworld-uitars-7b.toml"))
    args = root_spec(config, {}).args
    specs = tuple(from_plain(child, ChildSpec) for child in args["children"])
    root = SupervisorCore(from_plain(args["flags"], SupervisorFlags), specs, draw=lambda: 0.0)
    now_s = start(root, 0.0)

    for _ in range(2):
        now_s = overrun(root, now_s + config.training.update_deadline_s)
        assert root.finishing is None
    overrun(root, now_s + config.training.update_deadline_s)

    assert root.finishing is not None
    assert "over 2 failures of kind 'overdue' in 86400 s" in root.finishing.reason


def start(root: SupervisorCore, now_s: float) -> float:
    """Bring every child up, one after the other; returns the time when all of them run."""
    while any(child.status is not Status.RUNNING for child in root.children.values()):
        now_s += 1.0
        root.tick(now_s)
        for child in root.children.values():
            if child.status is Status.STARTING:
                root.ready(child.spec.id, child.incarnation, now_s)
    return now_s


def overrun(root: SupervisorCore, now_s: float) -> float:
    """Have the trainer's update pass its deadline; returns the time when the trainer runs again."""
    trainer = root.children["trainer"]
    root.exited("trainer", trainer.incarnation, Ended("exit code 77", overdue=True), now_s)
    return now_s if root.finishing is not None else start(root, now_s)


def test_counts_and_limits_come_from_the_configuration() -> None:
    config = load_config(
        None, ["environments.count=3", "rollout.count=2", "supervision.environment_pool.hang_deadline_s=4.5"]
    )
    pools = {child.id: child for child in children(config, {"store": "x"})}
    environments = [from_plain(spec, ChildSpec) for spec in pools["environment_pool"].args["children"]]

    assert [spec.id for spec in environments] == ["env-000", "env-001", "env-002"]
    assert {spec.hang_deadline_s for spec in environments} == {4.5}
    assert environments[0].args["engines"] == ["rollout-0", "rollout-1"]


def test_every_limit_of_an_environment_and_of_its_pool_is_that_of_the_configuration() -> None:
    given = (
        *("max_restarts=21", "max_seconds=61.0", "max_quarantined=0.75", "max_failing=0.25"),
        *("start_deadline_s=31.0", "hang_deadline_s=9.0", "probe_every_s=2.0", "shutdown_s=7.0"),
        *("backoff.initial_s=3.0", "breaker.open_s=88.0", "retirement.max_age_s=555.0"),
        *("preemptions.max_restarts=4", "preemptions.max_seconds=44.0"),
        *("budgets.hang.max_restarts=6", "budgets.hang.max_seconds=66.0"),
    )
    config = load_config(None, [f"supervision.environment_pool.{one}" for one in given])
    flags, environment = environments_of(config)

    assert (flags.max_restarts, flags.max_seconds) == (21, 61.0)
    assert (flags.max_quarantined, flags.max_failing) == (0.75, 0.25)
    assert (environment.start_deadline_s, environment.hang_deadline_s) == (31.0, 9.0)
    assert (environment.probe_every_s, environment.shutdown_s) == (2.0, 7.0)
    assert (environment.backoff.initial_s, environment.retirement.max_age_s) == (3.0, 555.0)
    assert environment.breaker is not None
    assert environment.breaker.open_s == 88.0
    assert environment.preemptions == Budget(max_restarts=4, max_seconds=44.0)
    assert environment.budgets == {Failure.HANG: Budget(max_restarts=6, max_seconds=66.0)}


def test_a_limit_that_is_switched_off_is_none() -> None:
    _, environment = environments_of(
        load_config(None, ["supervision.environment_pool.breaker.enabled=false"])
    )

    assert (environment.breaker, environment.budgets, environment.retirement.max_age_s) == (
        None,
        {},
        math.inf,
    )


def environments_of(config: Config) -> tuple[SupervisorFlags, ChildSpec]:
    """The flags of the pool of environments, and the spec of the first of them."""
    (pool,) = (child for child in children(config, {}) if child.id == "environment_pool")
    return from_plain(pool.args["flags"], SupervisorFlags), from_plain(pool.args["children"][0], ChildSpec)


def test_time_for_the_final_evaluation_is_kept_free_only_when_there_is_one() -> None:
    with_it, without = load_config(), load_config(None, ["evaluation.after=false"])

    assert final_reserve_s(with_it) > final_reserve_s(without) > 0


HEAVY = "{'torch', 'transformers', 'vllm'}"


def preloaded(config: Config) -> dict[str, set[str]]:
    """By supervisor: what it imports before it forks."""
    found: dict[str, set[str]] = {}
    for spec in children(config, {}):
        found.setdefault("root", set()).update(spec.preload)
        for child in spec.args.get("children", ()):
            found.setdefault(spec.id, set()).update(from_plain(child, ChildSpec).preload)
    return found


def test_only_the_supervisor_of_the_engines_holds_a_heavy_library() -> None:
    """The others would hand it, and its memory, to actors that never use it."""
    modules = preloaded(load_config())
    light = sorted(set().union(*(modules[name] for name in modules if name != "rollout_pool")))

    code = f"import sys, {', '.join(light)}; assert not {HEAVY} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "dart.inference.transformers_engine" in modules["rollout_pool"]


def test_the_pool_of_a_vision_language_policy_preloads_what_loads_it(tmp_path: Path) -> None:
    modules = preloaded(with_policy_of_type("qwen2_5_vl", tmp_path))["rollout_pool"]
    assert "dart.policy.vlm_load" in modules
    assert "dart.policy.vlm_load" not in preloaded(load_config())["rollout_pool"]


def with_policy_of_type(model_type: str, folder: Path) -> Config:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return load_config(None, [f"training.policy={folder}"])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["gui_policy", "qwen2_5_vl"])
def test_what_is_preloaded_may_be_forked_afterwards(model_type: str, tmp_path: Path) -> None:
    modules = sorted(set().union(*preloaded(with_policy_of_type(model_type, tmp_path)).values()))

    code = (
        f"import threading, torch, {', '.join(modules)}; "
        "assert threading.active_count() == 1; "
        "assert not torch.cuda.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_engines_that_only_wait_bring_no_heavy_library() -> None:
    modules = preloaded(load_config(None, ["rollout.engine=simulated", "training.learner=simulated"]))[
        "rollout_pool"
    ]

    code = f"import sys, {', '.join(sorted(modules))}; assert not {HEAVY} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
