"""An engine is stopped under a real run: whoever waits says for what, and that it is over when it goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.board import Board
from dart.core.records import Event
from dart.core.run_directory import RunPaths
from dart.curation.stall_diagnosis import Part, Stage
from dart.store.reader import StoreReader
from dart.telemetry.events import STARVED
from tests.simulated_job import SIMULATED_JOB

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 90.0

CONFIG = f"""{SIMULATED_JOB}
curation.starved_after_s = 3.0
simulation.update_base_s = 0.1
supervision.rollout_pool.hang_deadline_s = 120.0
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunPaths]:
    """A run that has trained once."""
    (tmp_path / "run.toml").write_text(CONFIG)
    paths = RunPaths(tmp_path / "run")
    command = [
        sys.executable,
        "-m",
        "dart",
        "train",
        str(tmp_path / "run.toml"),
        "--run-dir",
        str(paths.root),
    ]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
    try:
        await_that("the run trains", lambda: has_trained(paths))
        yield paths
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)


def has_trained(paths: RunPaths) -> bool:
    if not paths.store.exists() or not paths.board.exists():
        return False
    with StoreReader(paths.store) as store:
        newest = store.latest_version()
        return newest is not None and newest.version > 0


def await_that(what: str, holds: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < give_up_s, f"waited {DEADLINE_S} s and it is still not so that {what}"
        time.sleep(0.2)


def newest_told(paths: RunPaths) -> Event | None:
    with StoreReader(paths.store) as store:
        return store.newest_event(STARVED)


def is_told(paths: RunPaths, **wanted: str) -> bool:
    event = newest_told(paths)
    return event is not None and wanted.items() <= event.data.items()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_stopped_engine_is_named_and_later_that_it_goes_on(run: RunPaths) -> None:
    board = Board(run.board)
    slot = board.find("rollout-0")
    assert slot is not None
    engine = int(board.get(slot, "pid"))
    board.close()

    os.kill(engine, signal.SIGSTOP)
    try:
        await_that("the stopped engine is to blame", lambda: is_told(run, cause=Part.ENGINES.value))
        shown = subprocess.run(
            [sys.executable, "-m", "dart", "status", "--run-dir", str(run.root), "--json"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    finally:
        os.kill(engine, signal.SIGCONT)
    await_that("nobody starves any more", lambda: is_told(run, stage=Stage.ENDED.value))

    status = json.loads(shown.stdout)
    assert shown.returncode == 1
    assert not status["healthy"]
    assert "rollout-0 has" in status["notices"][0]
    assert "(cause: engines)" in status["notices"][0]
