"""Training in the foreground of a terminal: what its keys do, and what becomes of it when it is closed."""

import subprocess
import time
from pathlib import Path

import pytest

from dart.config.config import load_config
from dart.core.run_directory import RunPaths
from dart.inspect.signals import read
from dart.store.integrity import check
from dart.store.reader import StoreReader
from tests.fault.daemons import CONFIG, DEADLINE_S, await_taken
from tests.fault.terminals import Terminal

CTRL_C = b"\x03"


@pytest.mark.long
@pytest.mark.slow
def test_training_is_drained_by_ctrl_c_and_a_terminal_that_is_closed_then_hurries_nobody(
    tmp_path: Path,
) -> None:
    terminal, paths, config = Terminal(), RunPaths(tmp_path / "run"), tmp_path / "config.toml"
    config.write_text(CONFIG)
    process = terminal.start("train", str(config), "--run-dir", str(paths.root))
    try:
        await_trajectory(paths, process)
        terminal.press(CTRL_C)
        await_taken(paths, process)
        terminal.close()
        assert process.wait(DEADLINE_S) == 130
    finally:
        process.kill()

    assert read(paths) is None
    assert paths.report.exists()
    assert ends_of_the_trainer(paths) == 1
    assert check(paths, load_config(paths.config), full=True) == []


def await_trajectory(paths: RunPaths, process: "subprocess.Popen[str]") -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not (paths.board.exists() and trajectories(paths)):
        assert process.poll() is None
        assert time.monotonic() < give_up, "no episode was played"
        time.sleep(0.1)


def trajectories(paths: RunPaths) -> int:
    with StoreReader(paths.store) as reader:
        return reader.totals().trajectories


def ends_of_the_trainer(paths: RunPaths) -> int:
    """How often it ended by itself, which it says; it is the first that is told to, and has long enough."""
    return (paths.logs / "trainer.jsonl").read_text().count('"actor_stopped"')
