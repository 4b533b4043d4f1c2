"""`dartrl up` in a process of its own, with simulated environments, engine and trainer; the rest is real."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from actors.board import Board, Vitals
from dart.config.config import load_config
from dart.core.errors import NotRunningError, SilentError
from dart.core.run_directory import RunPaths
from dart.inspect.sidecar_status import Sidecar, read_sidecar
from dart.inspect.signals import read
from dart.run.control_protocol import ControlAnswer, ControlOutcome, Ping, Request
from dart.run.control_socket import request
from dart.store.integrity import check
from dart.store.patience import Patience
from dart.store.reader import StoreReader
from tests.patience import slowness

DEADLINE_S = 90.0
CONFIG = """
run.minutes = 10.0
tasks.train = ["simulated/0", "simulated/1"]
supervision.environment_pool.shutdown_s = 1.0
environments = { kind = "simulated", count = 3, latency = { enabled = true, scale = 0.005 } }
rollout = { engine = "simulated", count = 1 }
simulation = { generate_base_s = 0.01, generate_each_s = 0.001, load_s = 0.05, update_base_s = 0.05 }
curation = { rollouts_per_group = 4, step_cap = 30 }
training = { learner = "simulated", groups_per_update = 1, updates = 100000 }
evaluation = { before = false, after = false }
"""


def events_in(log: str) -> list[dict[str, Any]]:
    """What was logged, as JSON, a line each."""
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def await_taken(paths: RunPaths, process: subprocess.Popen[Any], count: int = 1) -> None:
    """Until a run's process has taken so many signals, or has ended."""
    give_up = time.monotonic() + DEADLINE_S * slowness()
    while process.poll() is None:
        ending = read(paths)
        if ending is not None and ending.count >= count:
            return
        assert time.monotonic() < give_up, f"{count} signals were not taken within {DEADLINE_S:g} s"
        time.sleep(0.02)


class Daemon:
    """`dartrl up` in a process of its own."""

    def __init__(self, folder: Path, more: str = "", *, port: int = 0) -> None:
        self.paths = RunPaths(folder / "run")
        self.config = folder / "config.toml"
        self.config.write_text(f"{CONFIG}web.port = {port}\n{more}")
        self.start()

    def start(self) -> None:
        self.process = self.run("up", str(self.config))
        self.wait_until(self.is_up, "the root")

    def run(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dart", *words, "--run-dir", str(self.paths.root)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def is_up(self) -> bool:
        try:
            return self.ask(Ping()).outcome is ControlOutcome.DONE
        except (NotRunningError, SilentError):
            return False

    def ask(self, call: Request) -> ControlAnswer:
        return request(self.paths.root, call)

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + DEADLINE_S * slowness()
        while not holds():
            assert self.process.poll() is None, f"it ended before {what}: {self.process.communicate()[1]}"
            assert time.monotonic() < give_up, f"{what} did not come within {DEADLINE_S:g} s"
            time.sleep(0.05)

    def row(self, name: str) -> Vitals:
        board = Board(self.paths.board)
        slot = board.find(name)
        assert slot is not None
        row = board.vitals(slot)
        board.close()
        return row

    def reader(self) -> StoreReader:
        return StoreReader(self.paths.record, Patience(open_s=DEADLINE_S, read_s=DEADLINE_S))

    def trajectories(self) -> int:
        with self.reader() as reader:
            return reader.totals().trajectories

    def plays_on(self, more: int = 3) -> None:
        goal = self.trajectories() + more
        self.wait_until(lambda: self.trajectories() >= goal, f"{more} more episodes")

    def await_taken(self, count: int = 1) -> None:
        """Until so many signals were taken, or it has ended: two that come together are one."""
        await_taken(self.paths, self.process, count)

    def ended(self) -> tuple[int, list[dict[str, Any]]]:
        """Its exit code and what it logged."""
        _, log = self.process.communicate(timeout=DEADLINE_S * slowness())
        return self.process.returncode, events_in(log)

    def processes(self) -> list[psutil.Process]:
        """All that hold the run's lock or have its files open."""
        found = []
        for process in psutil.process_iter():
            try:
                if any(str(self.paths.root) in file.path for file in process.open_files()):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def sidecar(self, name: str) -> Sidecar:
        """How a process beside the run is, once it has said so."""
        said: list[Sidecar] = []

        def has_said() -> bool:
            sidecar = read_sidecar(self.paths, name)
            said.extend([sidecar] if sidecar is not None else [])
            return bool(said)

        self.wait_until(has_said, f"a word of {name}")
        return said[0]

    def assert_sound(self) -> None:
        assert check(self.paths, load_config(self.paths.config), full=True) == []

    def end(self) -> None:
        """Whatever is still there is killed."""
        for process in self.processes():
            process.kill()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)
