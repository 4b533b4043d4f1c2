"""Commands that change the experience pool write into the run directory."""

import errno
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
