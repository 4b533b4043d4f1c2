"""Environments of other nodes explore a real site in Chromium while the curator has no work for them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.cluster.local_cluster import local_cluster
from dart.core.exploration import ExploredStep
from dart.exploration.follower import GraphFollower
from dart.store.reader import StoreReader
from tests.cluster.ray_runs import WAIT_S, Run, cluster_file, ended_at_last
from tests.patience import slowness

pytestmark = pytest.mark.timeout(600)

SITE = "sites/calendar/explore"

WITH_SITE = f"""
[set.environments]
count = 2
kind = "sites"

[set.environments.latency]
enabled = false

[set.tasks]
train = ["sites/calendar/easy"]

[set.exploration]
enabled = true
tasks = ["{SITE}"]
lease_actions = 5

[set.curation.task_quarantine]
groups_without_success = 1 # the simulated policy has none here, so then there is no work
"""


@pytest.fixture
def run(database: str, s3: str, tmp_path: Path) -> Iterator[Run]:
    with local_cluster("a", "b", player=1) as cluster:
        file = cluster_file(tmp_path, cluster.address, database, s3, updates=1)
        file.write_text(file.read_text().replace("\n[set.environments]\ncount = 4\n", WITH_SITE))
        with ended_at_last(Run(tmp_path, file)) as made:
            yield made


def test_idle_environments_of_another_node_explore_and_the_graph_outlives_the_run(run: Run) -> None:
    run.up()
    run.await_version(0)
    explored = _await_steps(run, 12)
    assert run.process is not None
    run.process.terminate()
    assert run.end() == 0, run.output()
    assert run.is_sound()
    with StoreReader(run.paths.record) as reader:
        assert _steps(reader)[: len(explored)] == explored


def _await_steps(run: Run, number: int) -> list[ExploredStep]:
    give_up_s = time.monotonic() + WAIT_S * slowness()
    with StoreReader(run.paths.record) as reader:
        while len(steps := _steps(reader)) < number:
            assert run.process is not None
            assert run.process.poll() is None, run.output()
            assert time.monotonic() < give_up_s, (steps, run.output())
            time.sleep(0.2)
    return steps


def _steps(reader: StoreReader) -> list[ExploredStep]:
    follower = GraphFollower(reader, SITE, 0)
    follower.follow()
    return list(follower.graph.steps)
