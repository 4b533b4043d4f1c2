"""What a node has to pass that joins a run on a cluster later, or comes back."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dart.cluster import launcher, probes
from dart.cluster.host_agent import ListeningAgent
from dart.cluster.launcher import Launcher, LaunchJob
from dart.cluster.node_facts import NodeFacts
from dart.cluster.plan import ClusterNode, NodePlan, could_carry, plan_cluster
from dart.cluster.ray_agents import Agent
from dart.config.cluster import ClusterConfig, PlaceSettings
from dart.config.config import load_config
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import read_sidecars

CONTROL = NodeFacts(
    node="a", user=os.getuid(), python="3.11.7", source="0.1.0+abc", packages={}, free_bytes=10 * 2**30
)
A, B = ClusterNode(name="a", node_id="a1", is_control=True), ClusterNode(name="b", node_id="b1")
RUN = load_config(None, ["environments.count=2", "rollout.count=1"])


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """The launcher of a run that began on the control node alone; then Ray starts on the node b."""
    config = {"cluster": ClusterConfig().model_dump(mode="json"), "run": RUN.model_dump(mode="json")}
    found = Launcher(LaunchJob(**config, run_dir="run", run_id="run", parent_pid=1), Mock())
    found.plan = plan_cluster([A], found.cluster.place, found.run)
    found._facts_of_control = CONTROL
    found.control = Agent(A, "a", Mock(), ListeningAgent(1, "wire", ()))
    found._membership.started([A], 0.0)
    monkeypatch.setattr(launcher, "living_nodes", lambda _: [A, B])
    monkeypatch.setattr(launcher, "introduce", Mock())
    agent = Agent(B, "b", Mock(), ListeningAgent(1, "wire", ()))
    monkeypatch.setattr(launcher, "start_agents", Mock(return_value=[agent]))
    monkeypatch.setattr(Launcher, "_collect_ends", lambda _: [])
    monkeypatch.setattr(Launcher, "_begin", Mock())
    return found


def facts(**of_b: Any) -> Callable[..., NodeFacts]:
    return lambda *_: replace(CONTROL, node="b", **of_b)


def look_until_b_has_answered(running: Launcher) -> None:
    running.look()
    running._starting["b"][1].exception(timeout=10.0)
    running.look()


@pytest.mark.parametrize(
    ("of_b", "reason"),
    [
        ({"source": "0.1.0+def"}, "versions: dartrl is 0.1.0+def on b, and 0.1.0+abc on a"),
        ({"clock_offset_s": 960.0}, "clocks: 1 clocks differ from that of the control node"),
        ({"missing": ("no browser",)}, "requirements: b: no browser"),
    ],
)
def test_a_node_that_comes_back_unlike_the_others_gets_no_actors_and_the_log_says_why(
    running: Launcher, monkeypatch: pytest.MonkeyPatch, of_b: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(probes, "_facts_of", facts(**of_b))

    look_until_b_has_answered(running)

    ended, *_ = running.log.warning.call_args_list
    assert ended.args == ("node_ended",)
    assert ended.kwargs["reason"].startswith(reason)
    assert "b" not in running.agents


def test_the_status_of_the_run_names_a_node_whose_probe_failed_until_its_agent_has_started(
    running: Launcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = RunPaths(tmp_path)
    paths.config.touch()
    running.job = replace(running.job, run_dir=str(tmp_path))
    monkeypatch.setattr(probes, "_facts_of", facts(missing=("no browser",)))
    look_until_b_has_answered(running)
    (shown,) = read_sidecars(paths)
    assert not shown.is_well
    assert shown.text == "node b has no agent, and is tried again: requirements: b: no browser"

    monkeypatch.setattr(probes, "_facts_of", facts())
    running._membership._members["b"].start_at_s = 0.0
    look_until_b_has_answered(running)
    assert read_sidecars(paths) == ()


def test_a_node_that_comes_back_as_it_was_gets_its_agent(
    running: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_facts_of", facts())
    look_until_b_has_answered(running)
    running.log.warning.assert_not_called()
    assert running.agents["b"].node == B


def test_a_new_node_is_probed_for_all_that_it_could_carry(running: Launcher) -> None:
    roles = running._roles_of(B)
    assert (roles.has_engines, roles.has_environments, roles.has_trainer) == (True, True, False)


def test_a_node_that_was_there_before_is_probed_for_its_part(running: Launcher) -> None:
    known = NodePlan(node="b", is_control=False, environments=("env-000",))
    running.plan = replace(running.plan, nodes=(*running.plan.nodes, known))
    roles = running._roles_of(B)
    assert (roles.has_engines, roles.has_environments) == (False, True)


def test_a_node_could_carry_only_what_it_has_the_resources_for() -> None:
    where = PlaceSettings.model_validate({"environments": {"needs": {"vm_host": 0}}, "rollout": {"gpus": 1}})
    plan = plan_cluster([replace(A, gpus=4, resources={"vm_host": 1})], where, RUN)
    part = could_carry(replace(B, gpus=1), where, plan)
    assert (list(part.engines), part.environments) == (["rollout-0"], ())
