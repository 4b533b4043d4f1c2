"""What a command says when a signal has stopped it."""

import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dart.cli import up
from dart.cli.exit_codes import end_stopped
from dart.cli.main import app as app_of_dartrl
from dart.preflight import requirements
from dart.run import app
from tests.recorded_run import record_run


def test_training_that_ctrl_c_stopped_names_the_command_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = record_run(tmp_path / "run").root
    stopped = SimpleNamespace(failure="", stopped_by=signal.SIGINT)
    monkeypatch.setattr(requirements, "require_installation", lambda *_: None)
    monkeypatch.setattr(app, "train", lambda *_, **__: stopped)

    ended = CliRunner().invoke(app_of_dartrl, ["train", "--resume", "--run-dir", str(root)])

    assert ended.exit_code == 130
    assert ended.stderr.splitlines()[-1] == (
        "stopped by Ctrl-C; nothing that was stored is lost. Go on with: dartrl train --resume "
        f"--run-dir {root}"
    )


def test_a_command_that_keeps_nothing_says_so_and_names_other_signals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended:
        end_stopped(signal.SIGTERM, during=" in the stage train")

    assert ended.value.exit_code == 143
    assert capsys.readouterr().err == "stopped by SIGTERM in the stage train; nothing was kept\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_drained_daemon_says_on_a_terminal_what_the_next_start_continues_from(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = record_run(tmp_path / "run").root
    result: Any = SimpleNamespace(failure="", stopped_by=signal.SIGINT, is_drained=True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)

    up._end(result, root, "the same command")

    said = capsys.readouterr().out
    assert ("stopped by Ctrl-C. Go on with: the same command" in said) is is_terminal
    assert ("continues from version 1" in said) is is_terminal
