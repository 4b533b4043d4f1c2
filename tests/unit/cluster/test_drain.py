"""How a run on a cluster drains, and how long it may take."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.board import ActorState
from actors.errors import ActorDied
from dart.cluster import site
from dart.cluster.follower import root_of
from dart.cluster.host_agent import STOP_ROOM_S, FollowerSpec
from dart.cluster.launcher import Joined, followers_stop_s
from dart.cluster.plan import ClusterNode
from dart.cluster.shards import environment_shards, longest_shard_stop_s
from dart.cluster.site import PARK_ROOM_S, ClusterSite, park_s
from dart.config.cluster import ClusterConfig, ClusterFile, PlaceSettings
from dart.config.config import Config, load_config
from dart.environments.leftovers import GIVE_BACK_S
from dart.run.site import OTHERS_STOP_S, SHORTEST_STOP_S
from supervision.host_messages import HOSTS, PLACED, Displace
from supervision.messages import TerminateChild


def config(*overrides: str) -> Config:
    return load_config(None, ["environments.count=2", *(f"supervision.{one}" for one in overrides)])


class System:
    """The tree of a control node that keeps what it is told; its shards run until a test ends them."""

    def __init__(self) -> None:
        self.root = SimpleNamespace(name="root")
        self.told: list[tuple[str, Any]] = []
        self.is_stopping = False
        self.running = {"environment_pool-0", "rollout_pool-0"}

    def tell(self, to: str, content: Any) -> bool:
        self.told.append((to, content))
        return True

    def vitals(self, name: str) -> Any:
        if name not in self.running:
            raise ActorDied(name)
        return SimpleNamespace(state=ActorState.STOPPING)

    def stop(self) -> None:
        self.is_stopping = True


class Draining:
    """A run on a cluster of one node that drains, on a clock that a test moves."""

    def __init__(self, run: Config, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.system: Any = System()
        node = ClusterNode(name="a", is_control=True)
        found = ClusterFile(path=Path("cluster.toml"), cluster=ClusterConfig(), run=run)
        launcher: Any = SimpleNamespace()
        self.site = ClusterSite(found, Joined(nodes=(node,), wire="wire", gpus=()), launcher)
        self.site.tree_of(run, {})
        monkeypatch.setattr(site, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def is_stopping_after(self, seconds: float) -> bool:
        self.now_s += seconds
        return self.site.stop(self.system)


@pytest.fixture
def draining(monkeypatch: pytest.MonkeyPatch) -> Draining:
    return Draining(config("environment_pool.shutdown_s=100.0"), monkeypatch)


def test_the_trainer_is_told_to_end_together_with_the_shards_and_only_once(draining: Draining) -> None:
    draining.is_stopping_after(0.0)
    draining.is_stopping_after(1.0)
    assert draining.system.told == [
        ("root", TerminateChild(id="trainer")),
        (HOSTS, Displace(name="rollout_pool-0")),
        (HOSTS, Displace(name="environment_pool-0")),
    ]


def test_store_and_curator_stay_up_while_a_shard_parks_its_episodes(draining: Draining) -> None:
    assert not draining.is_stopping_after(0.0)
    assert not draining.is_stopping_after(100.0)
    draining.system.running.clear()
    assert draining.is_stopping_after(1.0)
    assert draining.system.is_stopping


def test_a_shard_that_does_not_end_is_not_waited_for_for_ever(draining: Draining) -> None:
    draining.is_stopping_after(0.0)
    assert draining.is_stopping_after(100.0 + PARK_ROOM_S)


@pytest.mark.parametrize(
    ("overrides", "deadline_s"),
    [
        (["trainer.shutdown_s=300.0"], 300.0 + OTHERS_STOP_S),
        (["environment_pool.shutdown_s=90.0"], 90.0 + PARK_ROOM_S + OTHERS_STOP_S),
        (["children.env-001.shutdown_s=120.0"], 120.0 + PARK_ROOM_S + OTHERS_STOP_S),
        (["rollout_pool.shutdown_s=80.0"], 80.0 + PARK_ROOM_S + OTHERS_STOP_S),
        (["trainer.shutdown_s=0.0"], SHORTEST_STOP_S),
    ],
)
def test_a_drain_lasts_as_long_as_the_longest_shutdown_time_needs(
    overrides: list[str], deadline_s: float, draining: Draining
) -> None:
    assert draining.site.stop_deadline_s(config(*overrides)) == deadline_s


def test_every_wait_for_a_node_is_longer_than_what_it_waits_for() -> None:
    run = config("environment_pool.shutdown_s=100.0")
    spec = FollowerSpec(
        host="b",
        leader="a",
        folder="folder",
        wire="wire",
        capabilities={},
        engine_gpus=(),
        config_toml="",
        rows=1024,
        longest_shutdown_s=longest_shard_stop_s(run),
    )
    shards = environment_shards(run, {}, PlaceSettings(), [2])
    assert [shard.child.shutdown_s for shard in shards] == [spec.longest_shutdown_s]
    (machine,) = root_of(spec).args["children"]
    (placed,) = (child for child in machine["args"]["children"] if child["id"] == PLACED)
    agent_s = spec.longest_shutdown_s + STOP_ROOM_S
    assert spec.longest_shutdown_s < placed["shutdown_s"] < machine["shutdown_s"] < agent_s - GIVE_BACK_S
    assert agent_s < followers_stop_s(run)


def test_shards_park_for_as_long_as_their_environments_and_engines_may_take() -> None:
    run = config("environment_pool.shutdown_s=50.0", "children.rollout-0.shutdown_s=70.0")
    assert park_s(run) == 70.0 + PARK_ROOM_S
