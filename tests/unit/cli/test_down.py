"""`dartrl down` says what the run has left for its next start."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.exit_codes import ExitCode
from dart.cli.main import app
from tests.recorded_run import record_run


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs every run, and ends when it is asked to."""
    monkeypatch.setattr("dart.core.run_directory.holder", lambda root: 7)
    monkeypatch.setattr("dart.cli.up._end_process", lambda root, pid, wait_s, *, now: wait_s > 1.0)


def test_it_says_from_where_the_next_start_continues(tmp_path: Path) -> None:
    record_run(tmp_path / "run")
    result = CliRunner().invoke(app, ["down", "--run-dir", str(tmp_path / "run")])
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    assert "has ended the next start: " in said
    assert "continues from version 1 with 7 trajectories; 1 rollouts that were being played" in said


def test_a_run_that_ended_before_it_had_a_record_leaves_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    result = CliRunner().invoke(app, ["down", "--run-dir", str(tmp_path / "run")])
    assert result.exit_code == 0
    assert result.output.endswith("has ended\n")


def test_a_run_that_drains_for_longer_can_be_waited_for_as_the_message_says(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    runner, at_run = CliRunner(), ["--run-dir", str(tmp_path / "run")]
    early = runner.invoke(app, ["down", "--wait", "1", *at_run])
    assert early.exit_code == ExitCode.TEMPORARY
    assert "still runs the run" in early.output
    assert "after 1 s; wait for longer with `dartrl down --wait SECONDS`" in " ".join(early.output.split())
    assert runner.invoke(app, ["down", "--wait", "1800", *at_run]).exit_code == 0
