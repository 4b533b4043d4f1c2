"""Which GPUs a run on a cluster uses: those that Ray counts, and none where the plan has none."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dart.cluster import launcher
from dart.cluster.host_agent import ListeningAgent
from dart.cluster.launcher import Joined, Launcher, LaunchJob
from dart.cluster.plan import ClusterNode
from dart.cluster.ray_agents import Agent
from dart.cluster.site import ClusterSite
from dart.config.cluster import ClusterConfig, ClusterFile
from dart.config.config import Config, load_config

EIGHT = tuple(map(str, range(8)))


def joined_by(nodes: tuple[ClusterNode, ...], run: Config, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """Return the launcher of a cluster whose machines have eight GPUs each, whatever Ray counts."""
    agents = [Agent(node, node.name, Mock(), ListeningAgent(1, "wire", EIGHT)) for node in nodes]
    monkeypatch.setattr(launcher, "gather", Mock(return_value=[Mock()]))
    monkeypatch.setattr(launcher, "node_results", Mock(return_value=()))
    monkeypatch.setattr(launcher, "introduce", Mock())
    monkeypatch.setattr(launcher, "start_agents", Mock(return_value=agents))
    cluster = ClusterConfig().model_dump(mode="json")
    job = LaunchJob(
        cluster=cluster, run=run.model_dump(mode="json"), run_dir="run", run_id="run", parent_pid=1
    )
    return Launcher(job, Mock())


def training_of(joined: Joined, run: Config, **place: Any) -> Any:
    """Return the settings that the trainer of a cluster gets."""
    cluster = ClusterConfig.model_validate({"place": place})
    found = ClusterFile(path=Path("cluster.toml"), cluster=cluster, run=run)
    unused: Any = SimpleNamespace()
    root = ClusterSite(found, joined, unused).tree_of(run, {})
    (trainer,) = (child for child in root.args["children"] if child["id"] == "trainer")
    return Config.model_validate(trainer["args"]["config"]).training


def test_gpus_that_ray_was_not_given_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    run = load_config(None, ["rollout.count=1", "rollout.engine=transformers", "training.ranks=2"])
    nodes = ClusterNode(name="a", gpus=4, is_control=True), ClusterNode(name="b", gpus=2)
    launched = joined_by(nodes, run, monkeypatch)

    joined = launched.join(list(nodes))

    assert joined.gpus == EIGHT[:4]
    assert training_of(joined, run).gpus == launched.plan.nodes[0].trainer_gpus == ("2", "3")
    follower: Any = launched.agents["b"].handle
    (spec, _), _ = follower.run.remote.call_args
    assert spec.engine_gpus == ("0", "1")


def test_a_trainer_that_gets_no_gpu_is_on_the_processor() -> None:
    run = load_config(None, ["rollout.count=1", "rollout.engine=transformers"])
    node = ClusterNode(name="a", gpus=2, is_control=True)

    training = training_of(Joined(nodes=(node,), wire="wire", gpus=EIGHT[:2]), run, trainer={"gpus": 0})

    assert (training.gpus, training.device) == ((), "cpu")
