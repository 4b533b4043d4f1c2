"""A whole run on three real Ray nodes with PostgreSQL and S3: a lost node, a drain, an open cluster.

Environments, engines and trainer are simulated, so that a run is short; `make cluster` has real ones.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.board import rows_of
from dart.cluster.local_cluster import LocalCluster, local_cluster
from dart.core.errors import NotRunningError
from dart.core.run_directory import holder
from dart.inspect.exit_reports import RESTARTED
from supervision.reports import read
from tests.cluster.ray_runs import SECRET, WAIT_S, Run, await_end, cluster_file, command_lines, ended_at_last
from tests.patience import slowness

pytestmark = pytest.mark.timeout(1200)

UPDATES = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster("a", "b", "c", player=1) as made:
        yield made


@pytest.fixture
def run(cluster: LocalCluster, database: str, s3: str, tmp_path: Path) -> Iterator[Run]:
    file = cluster_file(tmp_path, cluster.address, database, s3, updates=UPDATES)
    with ended_at_last(Run(tmp_path, file)) as made:
        yield made


def test_a_node_that_is_killed_costs_no_rollout_and_no_update(cluster: LocalCluster, run: Run) -> None:
    cluster.join("lost")
    run.up()
    run.await_version(1)
    cluster.kill("lost")
    assert run.end() == 0, run.output()
    newest = run.newest()
    assert newest is not None
    assert newest.version == UPDATES
    assert run.is_sound()
    assert run.followers_left() == []


def test_a_signal_drains_the_run_and_up_goes_on_with_it_and_no_password_is_seen(run: Run) -> None:
    run.up()
    run.await_version(1)
    assert [line for line in command_lines() if SECRET in line] == []
    assert run.process is not None
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0, run.output()
    assert run.followers_left() == []
    drained = run.newest()
    assert drained is not None
    with pytest.raises(NotRunningError):
        _refuse_ended(run)
    assert run.is_sound()
    run.up()
    assert run.end() == 0, run.output()
    newest = run.newest()
    assert newest is not None
    assert newest.version == UPDATES
    kept = [file for file in run.folder.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
    assert kept == []


def test_a_run_goes_on_after_the_launcher_and_after_the_whole_control_node_was_killed(run: Run) -> None:
    run.up()
    run.await_version(1)
    committed = run.versions()
    assert run.process is not None
    before = run.processes()
    run.launcher().kill()
    assert run.end() == os.EX_TEMPFAIL, run.output()
    assert f"go on with `dartrl up {run.file} --run-dir " in run.output()
    await_end(before)
    assert run.versions().items() >= committed.items()

    run.up("--resume")
    run.await_version(max(run.versions()) + 1)
    committed = run.versions()
    before = run.processes()
    run.kill_control_node()
    await_end(before)
    assert run.versions().items() >= committed.items()

    run.up("--resume")
    assert run.end() == 0, run.output()
    assert list(run.versions()) == list(range(UPDATES + 1))
    assert run.versions().items() >= committed.items()
    assert run.is_sound()


def test_a_run_goes_on_after_the_agent_of_its_control_node_was_killed(run: Run) -> None:
    run.up()
    run.await_version(1)
    run.agent_of_control_node().kill()
    assert run.end() == 0, run.output()
    assert list(run.versions()) == list(range(UPDATES + 1))
    assert run.is_sound()
    assert "node_starting" in (run.paths.logs / "cluster.jsonl").read_text()
    failed = {one.offender.id for one in read(run.paths.root, "machine-a") if one.context == RESTARTED}
    assert failed == {"bridge"}, "the shards of the control node went on"


@pytest.fixture
def trains_on(cluster: LocalCluster, database: str, s3: str, tmp_path: Path) -> Iterator[Run]:
    """A run that has trained and goes on until it is asked to end."""
    file = cluster_file(tmp_path, cluster.address, database, s3, updates=1000)
    with ended_at_last(Run(tmp_path, file)) as run:
        run.up()
        run.await_version(1)
        yield run


def _ended_by_signal(run: Run) -> int:
    assert run.process is not None
    run.process.send_signal(signal.SIGTERM)
    return run.end()


def test_actors_of_every_node_and_all_that_nodes_carry_are_restarted_but_no_part_of_a_pool(
    trains_on: Run,
) -> None:
    run = trains_on
    for command in ("restart", "stop"):
        refused = run.ask("actors", command, "environment_pool-0")
        assert refused.returncode != 0
        assert "the actors below it, such as env-0" in refused.stderr
    (machine,) = (
        row.name
        for row in rows_of(run.paths.board)
        if row.name.startswith("machine-") and row.parent == "root"
    )
    for name in (*(f"env-{number:03d}" for number in range(4)), machine):
        restarted = run.ask("actors", "restart", name, "--wait", "120")
        assert restarted.returncode == 0, restarted.stdout + restarted.stderr
    newest = run.newest()
    assert newest is not None
    run.await_version(newest.version + 3)
    assert _ended_by_signal(run) == 0, run.output()
    assert run.is_sound()


def test_a_node_that_joins_later_passes_the_probes_and_gets_its_agent(
    trains_on: Run, cluster: LocalCluster
) -> None:
    cluster.join("late")
    log = trains_on.paths.logs / "cluster.jsonl"
    give_up_s = time.monotonic() + WAIT_S * slowness()
    while '"late"' not in "".join(line for line in log.read_text().splitlines() if "node_joined" in line):
        assert time.monotonic() < give_up_s, log.read_text()
        time.sleep(0.2)
    cluster.kill("late")
    assert _ended_by_signal(trains_on) == 0, trains_on.output()


def _refuse_ended(run: Run) -> None:
    """Raise NotRunningError if no process holds the run directory."""
    if holder(run.paths.root) is None:
        raise NotRunningError("it has ended")


OPEN_CLUSTER = """
import subprocess, sys
from pathlib import Path
from dart.cluster.local_cluster import local_cluster
file = Path(sys.argv[1])
with local_cluster("a", needs_token=False) as cluster:
    file.write_text(file.read_text().replace("ADDRESS", cluster.address))
    for trusted in ("", "trusted_network = true\\n"):
        file.write_text(trusted + file.read_text())
        ran = subprocess.run([sys.executable, "-m", "dart", "up", str(file), "--dry-run"], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(ran.returncode, ran.stdout)
"""


def test_a_cluster_that_asks_for_no_token_is_refused_unless_its_network_is_trusted(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        'run = "decoupling"\nrecord = "postgresql://me@db/x"\nblobs = "file:///tmp/x"\n'
        '[engine]\naddress = "ADDRESS"\n'
    )
    command = [sys.executable, "-c", OPEN_CLUSTER, str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "78 error: the Ray cluster at" in ran.stdout, ran.stdout + ran.stderr
    assert "answers without a token" in ran.stdout
    assert "env-000" in ran.stdout
