"""The main job in small, by its real command, with real browsers and real kills."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.board import Board, Vitals
from benchmarks.peers.protocol import MARK, marked_pids
from benchmarks.runs import marked_processes
from dart.core.run_directory import RunPaths
from dart.store.reader import StoreReader

REPOSITORY = Path(__file__).resolve().parents[2]
SMOKE = REPOSITORY / "configs" / "smoke.toml"
DEADLINE_S = 150.0

pytestmark = pytest.mark.timeout(400)


class Run:
    """One `dartrl train` in a process of its own."""

    def __init__(self, root: Path) -> None:
        self.paths = RunPaths(root)
        self.mark = uuid.uuid4().hex
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "dart", "train", *options, "--run-dir", str(self.paths.root)]
        self.process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=os.environ | {MARK: self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stop(self) -> None:
        """The first signal: the run drains."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> tuple[int, str]:
        assert self.process is not None
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, output

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        assert self.process is not None
        give_up = time.monotonic() + DEADLINE_S
        while not holds():
            assert self.process.poll() is None, f"the run ended before {what}"
            assert time.monotonic() < give_up, f"{what} did not come within {DEADLINE_S} s"
            time.sleep(0.05)

    def version(self) -> int:
        if not self.paths.board.exists():  # made after the record
            return -1
        with StoreReader(self.paths.store) as reader:
            newest = reader.latest_version()
            return -1 if newest is None else newest.version

    def actor(self, name: str) -> Vitals | None:
        if not self.paths.board.exists():
            return None
        board = Board(self.paths.board)
        slot = board.find(name)
        found = None if slot is None else board.vitals(slot)
        board.close()
        return found

    def is_up(self, name: str, since_incarnation: int = 0) -> bool:
        row = self.actor(name)
        return (
            row is not None and row.incarnation > since_incarnation and row.state == "running" and row.ready
        )

    def hit(self, name: str, number: int = signal.SIGKILL) -> None:
        """Signal an actor and wait until another incarnation of it is up."""
        self.wait_until(lambda: self.is_up(name), f"{name} up")
        row = self.actor(name)
        assert row is not None
        os.kill(row.pid, number)
        self.wait_until(lambda: self.is_up(name, row.incarnation), f"{name} back after {number}")

    def assert_nothing_left(self) -> None:
        give_up = time.monotonic() + 5.0
        while (left := marked_processes(self.mark)) and time.monotonic() < give_up:
            time.sleep(0.05)
        assert left == {}

    def assert_sound(self) -> None:
        with StoreReader(self.paths.store) as reader:
            assert reader.conservation().holds
            assert reader.integrity(staleness_bound=2) == ()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "run")
    yield run
    for pid in marked_pids(run.mark):
        os.kill(pid, signal.SIGKILL)
    if run.process is not None:
        run.process.wait()


@pytest.mark.long
def test_a_run_goes_on_while_its_actors_are_killed_and_ends_with_sound_books(run: Run) -> None:
    # It must not be done before the last victim is back, however fast the machine: a signal ends it.
    run.start(str(SMOKE), "--set", "run.minutes=30", "--set", "training.updates=100000")
    run.wait_until(lambda: run.version() >= 1, "the first update")

    for victim in ("env-000", "rollout-0", "trainer", "curator", "store"):
        run.hit(victim)
    run.hit("env-001", signal.SIGSTOP)
    learned = run.version()
    run.wait_until(lambda: run.version() > learned, "an update after the last fault")
    run.stop()
    code, output = run.ended()

    assert code == 143, output
    run.assert_nothing_left()
    run.assert_sound()


@pytest.mark.long
def test_a_first_signal_drains_and_a_resumed_run_trains_nothing_twice(run: Run) -> None:
    run.start(str(SMOKE), "--set", "run.minutes=4", "--set", "training.updates=4")
    run.wait_until(lambda: run.version() >= 1, "the first update")
    run.stop()
    code, output = run.ended()

    assert code == 143, output
    assert "--resume" in output
    run.assert_nothing_left()
    run.assert_sound()

    run.start("--resume")
    code, output = run.ended()

    assert code == 0, output
    assert run.version() == 4
    run.assert_sound()
    report = json.loads(run.paths.report.read_text())
    assert report["completed"]
    assert report["updates"] == 4
    assert report["mean"]["after"] is not None
    assert run.paths.curve.stat().st_size > 0


@pytest.mark.long
def test_no_process_outlives_a_killed_command_and_the_run_can_be_resumed(run: Run) -> None:
    run.start(
        str(SMOKE),
        "--set",
        "run.minutes=4",
        "--set",
        "training.updates=3",
        "--set",
        "evaluation.before=false",
    )
    run.wait_until(lambda: run.version() >= 1, "the first update")
    assert run.process is not None
    run.process.kill()
    run.ended()

    run.assert_nothing_left()
    run.start("--resume")
    code, output = run.ended()

    assert code == 0, output
    run.assert_sound()


@pytest.mark.long
def test_a_root_that_hangs_ends_the_run_with_75_and_leaves_nothing(run: Run) -> None:
    run.start(str(SMOKE), "--set", "run.minutes=4", "--set", "evaluation.before=false")
    run.wait_until(lambda: run.is_up("root"), "the root up")
    root = run.actor("root")
    assert root is not None
    os.kill(root.pid, signal.SIGSTOP)

    code, output = run.ended()

    assert code == 75, output
    assert "no sign of life" in output
    run.assert_nothing_left()
