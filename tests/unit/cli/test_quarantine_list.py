"""What `dartrl quarantine list` prints."""

import fcntl
import os
from pathlib import Path

from typer.testing import CliRunner

from actors.board import ActorState, Board
from dart.cli.main import app
from tests.recorded_run import record_run


def test_an_actor_that_an_outage_holds_back_has_no_time_of_its_next_start(
    tmp_path: Path,
) -> None:
    paths = record_run(tmp_path / "run")
    (paths.root / "processes.json").write_text(f'{{"launcher": [{os.getpid()}, 0]}}')
    paths.lock.write_text(f"{os.getpid()}\n")
    board = Board(paths.board)
    slot = board.find("env-001")
    assert slot is not None
    board.set_state(slot, ActorState.QUARANTINED, retry_unix_s=0.0)
    board.close()
    with paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = CliRunner().invoke(app, ["quarantine", "list", "--run-dir", str(paths.root)])

    assert ran.output.splitlines()[1].split() == ["env-001", "–", "3", "signal", "9"]
