"""A whole run on a disk that is full for a while, or with a record that somebody else locks: it waits.

Environments, engine and trainer are simulated; the actors, the record and the files are the real ones.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dart.config.config import Config
from dart.core.records import Totals
from dart.core.run_directory import RunPaths
from dart.store.integrity import check
from dart.store.reader import StoreReader
from tests.fault.daemons import CONFIG
from tests.patience import slowness
from tests.small_disk import small_disk

DEADLINE_S = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own that can be filled."""
    with small_disk(tmp_path / "disk", "128m") as disk:
        yield disk


class Run:
    """`dartrl train` in a process of its own."""

    def __init__(self, root: Path, config: Path) -> None:
        self.paths = RunPaths(root)
        config.write_text(CONFIG)
        command = [sys.executable, "-m", "dart", "train", str(config), "--run-dir", str(root)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=Path.cwd()
        )

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + DEADLINE_S * slowness()
        while not holds():
            assert self.process.poll() is None, f"the run ended before {what}:\n{self.output()}"
            assert time.monotonic() < give_up, f"{what} did not come in time"
            time.sleep(0.1)

    def totals(self) -> Totals:
        with StoreReader(self.paths.store) as reader:
            return reader.totals()

    def plays_on(self, more: int, what: str) -> None:
        """Wait until so many more episodes are stored."""
        self.wait_until(lambda: self.paths.board.exists(), "the board")
        goal = self.totals().trajectories + more
        self.wait_until(lambda: self.totals().trajectories >= goal, what)

    def log_of(self, actor: str) -> str:
        return "".join(path.read_text() for path in sorted(self.paths.logs.glob(f"{actor}*")))

    def output(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def stop(self) -> str:
        """Ctrl-C; what it printed."""
        self.process.send_signal(signal.SIGINT)
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        return output


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Path], Run]]:
    runs: list[Run] = []

    def start(root: Path) -> Run:
        runs.append(Run(root, tmp_path / "config.toml"))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.communicate(timeout=DEADLINE_S)


def fill(disk: Path) -> Path:
    """Leave not one page free."""
    ballast = disk / "ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 20, 4096):
            while True:
                os.write(fd, b"0" * size)
    except OSError:
        pass
    finally:
        os.close(fd)
    return ballast


def assert_sound(run: Run) -> None:
    assert check(run.paths, Config(), full=True) == []
    with StoreReader(run.paths.store) as reader:
        assert reader.conservation().holds
        pauses = reader.find_events(kinds=["paused"], limit=100_000)
    assert "store" in {event.subject for event in pauses}
    assert json.loads(run.paths.report.read_text())["violations"] == []


@pytest.mark.long
@pytest.mark.slow
def test_a_run_waits_while_the_disk_is_full_and_goes_on_when_there_is_room(
    disk: Path, started: Callable[[Path], Run]
) -> None:
    run = started(disk / "run")
    run.plays_on(20, "the first episodes")
    ballast = fill(disk)
    run.wait_until(lambda: is_paused(run), "a sign of the pause on the board")
    before = run.totals().trajectories
    time.sleep(3.0)
    assert run.process.poll() is None, run.output()
    assert run.totals().trajectories == before
    ballast.unlink()
    run.plays_on(20, "episodes after there was room")
    assert "the disk is full: free space there" in run.log_of("store")
    assert "data sound" in run.stop()
    assert_sound(run)


def is_paused(run: Run) -> bool:
    """As anybody sees it from outside."""
    command = [sys.executable, "-m", "dart", "status", "--json", "--run-dir", str(run.paths.root)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    actors = {actor["name"]: actor for actor in json.loads(told.stdout)["actors"]}
    return not actors["store"]["ready"]


@pytest.mark.long
@pytest.mark.slow
def test_a_run_waits_while_somebody_else_locks_its_record(
    tmp_path: Path, started: Callable[[Path], Run]
) -> None:
    run = started(tmp_path / "run")
    run.plays_on(5, "the first episodes")
    other = sqlite3.connect(run.paths.store, isolation_level=None, timeout=30.0)
    other.execute("BEGIN IMMEDIATE")
    run.wait_until(lambda: is_paused(run), "a sign of the pause on the board")
    other.execute("ROLLBACK")
    other.close()
    run.plays_on(20, "episodes after the lock")
    assert "another process held it" in run.log_of("store")
    assert "data sound" in run.stop()
    assert_sound(run)
