"""Explorers and the owner of the graph are killed: no screen is lost, and none is expanded twice."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.board import ActorState, rows_of
from dart.core.exploration import Effect
from dart.core.run_directory import RunPaths
from dart.store.reader import StoreReader
from dart.store.run_blobs import local_blobs
from tests.fault.terminals import Terminal

TASK = "miniwob/navigate-tree"
DEADLINE_S = 240.0

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@contextmanager
def exploring(run_dir: Path, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "dart", "explore", "--run-dir", str(run_dir), *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def steps_recorded(run_dir: Path) -> int:
    record = RunPaths(run_dir).root / "store.db"
    if not record.exists():
        return 0
    with StoreReader(record) as reader:
        return len(reader.explored_steps(TASK, 0))


def await_steps(process: "subprocess.Popen[Any]", run_dir: Path, least: int) -> None:
    give_up_s = time.monotonic() + DEADLINE_S
    while not (run_dir / "config.toml").exists() or steps_recorded(run_dir) < least:
        assert process.poll() is None, f"the exploration ended with {process.poll()} before step {least}"
        assert time.monotonic() < give_up_s, f"no {least} steps within {DEADLINE_S:g} s"
        time.sleep(0.1)


def kill_actor(run_dir: Path, name: str) -> None:
    """Kill the process of an actor that runs; wait for one that is being started again."""
    give_up_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up_s:
        for row in rows_of(RunPaths(run_dir).board):
            if row.name == name and row.state is ActorState.RUNNING and row.pid:
                os.kill(row.pid, signal.SIGKILL)
                return
        time.sleep(0.1)
    raise AssertionError(f"{name} did not run within {DEADLINE_S:g} s")


def check_whole(run_dir: Path) -> None:
    """Every step's screens are there with their pictures, and each action has one first try."""
    with StoreReader(run_dir / "store.db") as reader:
        nodes = {node.screen_id: node for node in reader.screens(TASK, 0)}
        steps = reader.explored_steps(TASK, 0)
        assert reader.damaged_rows(full=True) == []
        assert reader.integrity() == ()
    assert {step.target_id for step in steps if step.target_id is not None} == set(nodes)
    found = Counter(step.target_id for step in steps if step.effect in (Effect.NEW_SHAPE, Effect.NEW_SCREEN))
    assert set(found.values()) <= {1}, "a screen was found twice"
    first_tries = Counter((step.source_id, step.action) for step in steps if step.is_expansion)
    assert set(first_tries.values()) <= {1}, "an action was tried for the first time twice"
    screenshots = local_blobs(run_dir).screenshots
    assert all(screenshots.read(node.screen.screenshot_sha256) for node in nodes.values())
    assert [step.actions for step in steps] == sorted(step.actions for step in steps)


@pytest.mark.long
def test_kills_of_explorers_and_of_the_owner_lose_no_screen_and_repeat_no_expansion(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with exploring(run_dir, TASK, "--actions", "60", "--explorers", "2") as process:
        for number, victim in enumerate(("explorer-000", "exploration", "explorer-001", "exploration")):
            await_steps(process, run_dir, 5 + 6 * number)
            kill_actor(run_dir, victim)
        assert process.wait(DEADLINE_S) == 0
    check_whole(run_dir)
    with StoreReader(run_dir / "store.db") as reader:
        assert reader.held_leases() == ()
        assert reader.explored_steps(TASK, 0)[-1].actions >= 60


@pytest.mark.long
def test_an_exploration_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with exploring(run_dir, TASK, "--actions", "40", "--explorers", "1") as process:
        await_steps(process, run_dir, 6)
        process.kill()
        process.wait()
    before = steps_recorded(run_dir)
    with exploring(run_dir, "--resume") as process:
        assert process.wait(DEADLINE_S) == 0
    assert steps_recorded(run_dir) > before
    check_whole(run_dir)


def test_the_first_signal_drains_and_the_exploration_can_be_resumed(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with exploring(run_dir, TASK, "--actions", "400", "--explorers", "1") as process:
        await_steps(process, run_dir, 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    with StoreReader(run_dir / "store.db") as reader:
        ended = reader.held_leases()
    assert ended == (), "the explorer gave its lease back before it ended"
    check_whole(run_dir)


def test_an_exploration_whose_terminal_is_closed_is_drained(tmp_path: Path) -> None:
    terminal, run_dir = Terminal(), tmp_path / "run"
    process = terminal.start(
        "explore", TASK, "--actions", "9000", "--explorers", "1", "--run-dir", str(run_dir)
    )
    try:
        await_steps(process, run_dir, 3)
        terminal.close()
        assert process.wait(DEADLINE_S) == 143
    finally:
        process.kill()
    check_whole(run_dir)
