"""The control node is lost, with Ray's head: the run goes on from its record on another node."""

from pathlib import Path

import pytest

from dart.cluster.local_cluster import local_cluster
from tests.cluster.ray_runs import Run, await_end, cluster_file, ended_at_last

pytestmark = pytest.mark.timeout(1200)

UPDATES = 4


def test_another_node_resumes_a_run_whose_control_node_is_lost_with_the_head_of_ray(
    database: str, s3: str, tmp_path: Path
) -> None:
    with local_cluster("a", "b", player=1) as cluster:
        file = cluster_file(tmp_path, cluster.address, database, s3, updates=UPDATES)
        with ended_at_last(Run(tmp_path, file, "run-on-a")) as lost:
            lost.up()
            lost.await_version(1)
            committed, before = lost.versions(), lost.processes()
            cluster.kill_machine("a")
            lost.kill_control_node()
            await_end(before)
    with local_cluster("b", "c", player=1) as cluster:
        file = cluster_file(tmp_path, cluster.address, database, s3, updates=UPDATES)
        with ended_at_last(Run(tmp_path, file, "run-on-b")) as run:
            run.up()
            assert run.end() == 73
            assert "--resume" in run.output()
            run.up("--resume")
            assert run.end() == 0, run.output()
            assert list(run.versions()) == list(range(UPDATES + 1))
            assert run.versions().items() >= committed.items()
            assert run.is_sound()
