"""`dartrl up` as a process: steered while a part of it hangs, drained, killed with all it has, and again.

Environments, engine and trainer are modelled; the actors, the record and the files are the real ones.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from actors.board import Board, Vitals
from dart.config import load_config
from dart.control.client import request
from dart.control.protocol import Answer, Outcome, Pause, Ping, Request, RestartActor, Resume, Scale
from dart.control.socket import connect
from dart.errors import NotRunningError, SilentError
from dart.rundir import RunPaths
from dart.store.check import check
from dart.store.reader import StoreReader

DEADLINE_S = 90.0
CONFIG = """
run.minutes = 10.0
tasks.train = ["modelled/0", "modelled/1"]
supervision.environment_pool.shutdown_s = 1.0
environments = { kind = "modelled", count = 3, latency = { enabled = true, scale = 0.005 } }
rollout = { engine = "modelled", count = 1 }
modelled = { generate_base_s = 0.01, generate_each_s = 0.001, load_s = 0.05, update_base_s = 0.05 }
curation = { rollouts_per_group = 4, step_cap = 30 }
training = { learner = "modelled", groups_per_update = 1, updates = 100000 }
evaluation = { before = false, after = false }
"""


class Daemon:
    """`dartrl up` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.paths = RunPaths(folder / "run")
        self.config = folder / "config.toml"
        self.config.write_text(CONFIG)
        self.start()

    def start(self) -> None:
        self.process = self.run("up", str(self.config))
        self.wait_until(self.is_up, "the root")

    def run(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dart", *words, "--run-dir", str(self.paths.root)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def is_up(self) -> bool:
        try:
            return self.ask(Ping()).outcome is Outcome.DONE
        except (NotRunningError, SilentError):
            return False

    def ask(self, call: Request) -> Answer:
        return request(self.paths.root, call)

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + DEADLINE_S
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

    def trajectories(self) -> int:
        with StoreReader(self.paths.store) as reader:
            return reader.totals().trajectories

    def plays_on(self, more: int = 3) -> None:
        goal = self.trajectories() + more
        self.wait_until(lambda: self.trajectories() >= goal, f"{more} more episodes")

    def ended(self) -> tuple[int, list[dict[str, Any]]]:
        """Its exit code and what it logged."""
        _, log = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, [
            json.loads(line) for line in log.splitlines() if line.startswith("{")
        ]

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

    def assert_sound(self) -> None:
        assert check(self.paths, load_config(self.paths.config), full=True) == []


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    for process in daemon.processes():
        process.kill()
    if daemon.process.poll() is None:
        daemon.process.kill()
    daemon.process.communicate(timeout=DEADLINE_S)


@pytest.mark.slow
def test_it_is_steered_while_a_part_of_it_hangs_and_drains_when_it_is_told_to(daemon: Daemon) -> None:
    with pytest.raises(NotRunningError):
        request(daemon.paths.root.parent / "other", Ping())
    second = daemon.run("up", str(daemon.config))
    assert f"is taken by process {daemon.process.pid}" in second.communicate(timeout=DEADLINE_S)[1]
    assert second.returncode == 73

    hung = daemon.row("env-001")
    os.kill(hung.pid, signal.SIGSTOP)
    assert daemon.ask(RestartActor(name="env-001", wait_ms=0)).outcome is Outcome.UNDER_WAY
    assert daemon.ask(Ping(wait_ms=30_000)).outcome is Outcome.DONE
    assert daemon.ask(Scale(environments=4, wait_ms=60_000)).text == "4 environments"
    daemon.wait_until(lambda: daemon.row("env-001").pid not in (0, hung.pid), "a new env-001")

    os.kill(daemon.row("root").pid, signal.SIGSTOP)
    assert daemon.ask(RestartActor(name="store", wait_ms=100)).outcome is not Outcome.DONE
    assert daemon.ask(Pause(wait_ms=30_000)).outcome is Outcome.DONE
    assert daemon.ask(Resume(wait_ms=30_000)).outcome is Outcome.DONE
    os.kill(daemon.row("root").pid, signal.SIGCONT)
    for frame in (b"\xc1", os.urandom(1000), b"\x81\xa2do\xa4root"):
        with connect(daemon.paths.control, DEADLINE_S) as connection:
            connection.send(frame)
            connection.recv(1 << 16)
    daemon.plays_on()

    daemon.process.send_signal(signal.SIGHUP)
    daemon.plays_on()
    daemon.process.send_signal(signal.SIGTERM)
    code, log = daemon.ended()

    assert code == 0
    assert [line["event"] for line in log if line["event"] != "run_stands"] == [
        "daemon_started",
        "run_is_up",
        "configuration_read",
        "drain_began",
        "daemon_ended",
    ]
    assert log[-1]["is_drained"] is True
    assert not daemon.paths.control.exists()
    assert daemon.processes() == []
    daemon.assert_sound()


@pytest.mark.slow
def test_after_everything_was_killed_at_once_the_next_start_says_so_and_goes_on(daemon: Daemon) -> None:
    daemon.plays_on()
    daemon.ask(Pause(wait_ms=30_000))
    for process in daemon.processes():
        process.kill()
    assert daemon.ended()[0] == -signal.SIGKILL
    played = daemon.trajectories()

    daemon.start()
    assert daemon.trajectories() == played, "it was paused, and still is"
    daemon.ask(Resume(wait_ms=30_000))
    daemon.plays_on()
    daemon.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)  # two that come together are one
    daemon.process.send_signal(signal.SIGTERM)
    code, log = daemon.ended()

    (found,) = (line for line in log if line["event"] == "run_taken_up")
    assert found["killed"] >= 8
    assert found["is_held"] is True
    assert found["trajectories"] == played
    assert code in (0, 143), "a drain may be over before the second signal comes"
    assert daemon.processes() == []
    daemon.assert_sound()
