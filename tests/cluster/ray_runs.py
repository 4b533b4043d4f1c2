"""Runs on Ray nodes with simulated environments, engines and trainer, as their operator sees them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from dart.cluster.host_agent import wire_path
from dart.core.records import Version
from dart.core.run_directory import RunPaths
from dart.store.reader import StoreReader
from tests.patience import slowness

FOLLOWERS_END_S = 15.0
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

[set.run]
cache_bytes = 1_000_000_000 # of each node, all on one disk

[set.web]
enabled = false

[set.environments]
count = 4

[set.curation]
rollouts_per_group = 4

[set.training]
groups_per_update = 1
updates = {updates}
"""


def cluster_file(folder: Path, address: str, record: str, blobs: str, *, updates: int) -> Path:
    """Write the cluster file of a run."""
    file = folder / "cluster.toml"
    text = CLUSTER_FILE.format(
        record=record, blobs=blobs, address=address, node_dir=folder / "nodes", updates=updates
    )
    file.write_text(text)
    return file


class Run:
    """One run on the cluster, as its operator sees it."""

    def __init__(self, folder: Path, file: Path, run_dir: str = "run") -> None:
        self.folder, self.file = folder, file
        self.paths = RunPaths(folder / run_dir)
        self.process: subprocess.Popen[str] | None = None

    def up(self, *words: str) -> None:
        place = "--run-dir", str(self.paths.root)
        command = [sys.executable, "-m", "dart", "up", str(self.file), *place, *words]
        with (self.folder / "output").open("a") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, text=True, env={**os.environ, "PGPASSWORD": SECRET}
            )

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Carry out another command on the run."""
        command = [sys.executable, "-m", "dart", *words, "--run-dir", str(self.paths.root)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=WAIT_S * slowness(), check=False
        )

    def output(self) -> str:
        return (self.folder / "output").read_text()

    def await_version(self, number: int) -> None:
        give_up_s = time.monotonic() + WAIT_S * slowness()
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
        return self.process.wait(WAIT_S * slowness())

    def is_sound(self) -> bool:
        checked = self.ask("doctor", "--data")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        return "the data is sound" in checked.stdout

    def versions(self) -> dict[int, float]:
        """When each version was committed."""
        with StoreReader(self.paths.record) as reader:
            return {one.version: one.created_unix_s for one in reader.versions()}

    def processes(self) -> list[psutil.Process]:
        """What belongs to the run on any node: its main process, the followers, and all below them."""
        tops = [one for one in psutil.process_iter(["cmdline"]) if is_follower(one.info["cmdline"])]
        if self.process is not None:
            tops.append(psutil.Process(self.process.pid))
        return [*tops, *(below for top in tops for below in top.children(recursive=True))]

    def launcher(self) -> psutil.Process:
        """The process of the run that is connected to Ray."""
        assert self.process is not None
        (found,) = (
            one
            for one in psutil.Process(self.process.pid).children()
            if lives(one) and "dart.cluster.launcher" in one.cmdline()
        )
        return found

    def agent_of_control_node(self) -> psutil.Process:
        """The process of Ray that listens at the socket for the bridge of the control node."""
        wire = str(wire_path(self.paths.root))
        agents = (
            one
            for one in psutil.process_iter(["name"])
            if (one.info["name"] or "").startswith("ray::HostAgent")
        )
        (found,) = (
            agent for agent in agents if wire in {socket.laddr for socket in agent.net_connections("unix")}
        )
        return found

    def kill_control_node(self) -> None:
        """SIGKILL the main process, the launcher and all actors of the control node."""
        assert self.process is not None
        for one in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()

    def followers_left(self) -> list[str]:
        """The processes of nodes' actor systems that have not ended some seconds after the run."""
        give_up_s = time.monotonic() + FOLLOWERS_END_S * slowness()
        while left := [line for line in command_lines() if "dart.cluster.follower" in line]:
            if time.monotonic() > give_up_s:
                break
            time.sleep(0.2)
        return left


def command_lines() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def is_follower(command: list[str] | None) -> bool:
    """Whether a process is the actor system of a node."""
    return "dart.cluster.follower" in (command or ())


@contextmanager
def ended_at_last(run: Run) -> Iterator[Run]:
    """A run whose processes are killed when the block ends."""
    try:
        yield run
    finally:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.wait()


def await_end(processes: Iterable[psutil.Process]) -> float:
    """Wait until processes have ended; returns the seconds until the last of them had."""
    began_s = time.monotonic()
    left = list(processes)
    while left := [one for one in left if lives(one)]:
        assert time.monotonic() < began_s + WAIT_S * slowness(), f"{left} have not ended"
        time.sleep(0.1)
    return time.monotonic() - began_s


def lives(process: psutil.Process) -> bool:
    """Whether a process runs: neither gone, nor only waiting to be reaped."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
