"""A real run in which every episode fails: the alarm pauses it, is shown, and outlives the curator."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.board import ActorState, Board
from dart.core.records import Event
from dart.core.run_directory import RunPaths
from dart.store.reader import StoreReader
from dart.telemetry.events import ALARM, WORK_HELD
from tests.patience import slowness
from tests.simulated_job import SIMULATED_JOB

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 90.0

CONFIG = f"""{SIMULATED_JOB}
alarms.episodes = 16
alarms.pause = ["equal_rewards"]
simulation.success = 0.0
web.enabled = false
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunPaths]:
    """A daemon."""
    (tmp_path / "run.toml").write_text(CONFIG)
    paths = RunPaths(tmp_path / "run")
    command = [sys.executable, "-m", "dart", "up", str(tmp_path / "run.toml"), "--run-dir", str(paths.root)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
    try:
        yield paths
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S * slowness())


def await_that(what: str, holds: Callable[[], bool]) -> None:
    wait_s = DEADLINE_S * slowness()
    give_up_s = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < give_up_s, f"waited {wait_s:g} s and it is still not so that {what}"
        time.sleep(0.2)


def dartrl(paths: RunPaths, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "dart", *words, "--run-dir", str(paths.root)]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=DEADLINE_S * slowness(), check=False
    )


def events(paths: RunPaths, kind: str) -> tuple[Event, ...]:
    if not paths.board.exists():  # it is made after the record
        return ()
    with StoreReader(paths.store) as store:
        return store.find_events(kinds=[kind])


def episodes(paths: RunPaths) -> int:
    with StoreReader(paths.store) as store:
        return len(store.finished_episodes())


def curator(paths: RunPaths) -> tuple[int, bool]:
    """Its pid, and whether it is up."""
    board = Board(paths.board)
    slot = board.find("curator")
    assert slot is not None
    pid, is_up = int(board.get(slot, "pid")), board.state(slot) is ActorState.RUNNING
    board.close()
    return pid, is_up


@pytest.mark.long
@pytest.mark.timeout(600)
def test_equal_rewards_pause_the_run_until_it_is_resumed_and_outlive_the_curator(run: RunPaths) -> None:
    await_that("the alarm pauses the run", lambda: bool(events(run, WORK_HELD)))
    (raised,) = (one for one in events(run, ALARM) if one.subject == "equal_rewards")
    assert raised.data["stage"] == "raised"
    assert events(run, WORK_HELD)[-1].data == {"is_held": True, "alarm": "equal_rewards"}

    status = dartrl(run, "status", "--json")
    assert status.returncode == 1
    told = json.loads(status.stdout)["notices"]
    assert any(one.startswith("the run has been paused by the alarm equal_rewards since") for one in told)
    assert any("alarm equal_rewards: 100% of" in one and "check the evaluator" in one for one in told)

    pid, _ = curator(run)
    os.kill(pid, signal.SIGKILL)
    await_that("another curator is up", lambda: curator(run)[0] != pid and curator(run)[1])
    before = episodes(run)
    await_that("the run is resumed", lambda: dartrl(run, "resume").returncode == 0)
    await_that("two more windows are played", lambda: episodes(run) >= before + 32)
    time.sleep(3.0)  # longer than between two looks of the alarms
    assert [one for one in events(run, ALARM) if one.subject == "equal_rewards"] == [raised]
    assert [one.data["is_held"] for one in events(run, WORK_HELD)] == [True, False], "it pauses only once"
