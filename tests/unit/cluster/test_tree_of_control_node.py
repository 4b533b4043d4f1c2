"""The tree of a control node."""

from pathlib import Path
from typing import Any

from dart.cluster.launcher import Joined
from dart.cluster.plan import ClusterNode
from dart.cluster.site import ClusterSite
from dart.config.cluster import ClusterConfig, ClusterFile
from dart.config.config import load_config


def test_failures_of_all_shards_have_the_limit_of_the_root_for_each_shard_of_the_larger_pool() -> None:
    limits = ["supervision.root.max_restarts=4", "supervision.root.max_seconds=900.0"]
    run = load_config(None, ["rollout.count=3", "rollout.engine=transformers", *limits])
    found = ClusterFile(path=Path("cluster.toml"), cluster=ClusterConfig(), run=run)
    unused: Any = None
    joined = Joined(nodes=(ClusterNode(name="a", is_control=True),), wire="wire", gpus=())
    root = ClusterSite(found, joined, unused).tree_of(run, {})
    (machine,) = (child for child in root.args["children"] if child["id"] == "machine-a")
    (hosts,) = (child for child in machine["args"]["children"] if child["id"] == "hosts")
    assert hosts["args"]["failures"] == {"max_restarts": 3 * 4, "max_seconds": 900.0}
    assert not machine["budgets"]
    assert not hosts["budgets"]
