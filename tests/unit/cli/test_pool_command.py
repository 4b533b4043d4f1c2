"""Commands that change the experience pool write into the run directory."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.exit_codes import ExitCode
from dart.cli.main import app
from dart.core import run_directory
from tests.recorded_run import record_run


@pytest.mark.parametrize("words", [("drop", "1"), ("import", "FOLDER")], ids=" ".join)
def test_a_command_that_finds_no_space_in_the_run_directory_names_it(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = record_run(tmp_path / "run").root
    monkeypatch.setattr(run_directory, "write_atomically", refuse)
    ended = CliRunner().invoke(app, ["pool", *words, "--run-dir", str(run)])

    assert ended.exit_code == ExitCode.IO_ERROR
    assert f"No space left on device at {run};" in ended.stderr
    assert "affects no run" not in ended.stderr


def test_the_command_that_goes_on_with_a_running_run_can_be_pasted(tmp_path: Path) -> None:
    paths = record_run(tmp_path / "my run")
    with paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = CliRunner().invoke(app, ["pool", "drop", "1", "--run-dir", str(paths.root)])

    assert ended.exit_code == ExitCode.CANNOT_CREATE
    assert f"`dartrl train --resume --run-dir '{paths.root}'`" in ended.stderr
