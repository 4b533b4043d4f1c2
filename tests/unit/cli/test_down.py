"""`dartrl down` says what the run has left for its next start."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from tests.recorded_run import record_run


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs every run, and ends when it is asked to."""
    monkeypatch.setattr("dart.core.run_directory.holder", lambda root: 7)
    monkeypatch.setattr("dart.cli.up._end_process", lambda root, pid, *, now: True)


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
