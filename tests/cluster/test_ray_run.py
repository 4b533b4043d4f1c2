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

from dart.cluster.local_cluster import LocalCluster, local_cluster
from dart.core.errors import NotRunningError
from dart.core.records import Version
from dart.core.run_directory import RunPaths, holder
from dart.store.reader import StoreReader

pytestmark = pytest.mark.timeout(420)

WAIT_S = 240.0
SECRET = "hunter2-of-the-database"

CLUSTER_FILE = """\
run = "decoupling"
record = "{record}"
blobs = "{blobs}"

[engine]
address = "{address}"
node_dir = "{node_dir}"

[place.environments]
needs = {{ player = 0 }}

[place.rollout]
needs = {{ player = 0 }}

[set.web]
enabled = false

[set.environments]
count = 6

[set.training]
updates = {updates}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster("a", "b", "c", player=1) as made:
        yield made


class Run:
    """One run on the cluster, as its operator sees it."""

    def __init__(self, folder: Path, file: Path) -> None:
        self.folder, self.file = folder, file
        self.paths = RunPaths(folder / "run")
        self.process: subprocess.Popen[str] | None = None

    def up(self) -> None:
        command = [sys.executable, "-m", "dart", "up", str(self.file), "--run-dir", str(self.paths.root)]
        with (self.folder / "output").open("a") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, text=True, env={**os.environ, "PGPASSWORD": SECRET}
            )

    def output(self) -> str:
        return (self.folder / "output").read_text()

    def await_version(self, number: int) -> None:
        give_up_s = time.monotonic() + WAIT_S
        while (newest := self.newest()) is None or newest.version < number:
            assert self.process is not None
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < give_up_s, self.output()
            time.sleep(0.2)

    def newest(self) -> Version | None:
        if not self.paths.config.exists():
            return None
        with StoreReader(self.paths.record) as reader:
            return reader.latest_version()

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(WAIT_S)

    def is_sound(self) -> bool:
        command = [sys.executable, "-m", "dart", "doctor", "--data", "--run-dir", str(self.paths.root)]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        return "the data is sound" in checked.stdout

    def followers(self) -> list[str]:
        """The actor systems of nodes that still run."""
        return [line for line in command_lines() if "dart.cluster.follower" in line]


def command_lines() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


@pytest.fixture
def run(cluster: LocalCluster, database: str, s3: str, tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path, tmp_path / "cluster.toml")
    made.file.write_text(
        CLUSTER_FILE.format(
            record=database, blobs=s3, address=cluster.address, node_dir=tmp_path / "nodes", updates=3
        )
    )
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def test_a_node_that_is_killed_costs_no_rollout_and_no_update(cluster: LocalCluster, run: Run) -> None:
    cluster.join("lost")
    run.up()
    run.await_version(1)
    cluster.kill("lost")
    assert run.end() == 0, run.output()
    newest = run.newest()
    assert newest is not None
    assert newest.version == 3
    assert run.is_sound()
    assert run.followers() == []


def test_a_signal_drains_the_run_and_up_goes_on_with_it_and_no_password_is_seen(run: Run) -> None:
    run.up()
    run.await_version(1)
    assert [line for line in command_lines() if SECRET in line] == []
    assert run.process is not None
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0, run.output()
    assert run.followers() == []
    drained = run.newest()
    assert drained is not None
    with pytest.raises(NotRunningError):
        _refuse_ended(run)
    assert run.is_sound()
    run.up()
    assert run.end() == 0, run.output()
    newest = run.newest()
    assert newest is not None
    assert newest.version == 3
    kept = [file for file in run.folder.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
    assert kept == []


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
