"""While a run starts again, its board still shows the actors of its last start: no command shows them."""

import fcntl
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from tests.recorded_run import record_run

READING = (
    *(("status",), ("tree",), ("top",), ("actors", "list"), ("actors", "show", "env-001")),
    *(("actors", "logs", "env-001"), ("actors", "stack", "env-001"), ("why", "env-001")),
    ("quarantine", "list"),
)


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("launcher", [1, os.getpid()], ids=["another launcher", "its pid, used again"])
def test_actors_of_an_earlier_start_are_not_shown_while_the_run_starts(
    tmp_path: Path, words: tuple[str, ...], launcher: int
) -> None:
    paths = record_run(tmp_path / "run")
    (paths.root / "processes.json").write_text(f'{{"launcher": [{launcher}, 1]}}')
    paths.lock.write_text(f"{os.getpid()}\n")
    with paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = CliRunner().invoke(app, [*words, "--run-dir", str(paths.root)])

    assert ran.exit_code == 4, ran.output
    who = f"the run in {paths.root} is starting as process {os.getpid()}"
    assert ran.output == f"error: {who}; none of its actors is up yet; ask again in a moment\n"


def test_of_a_run_that_has_ended_the_actors_of_its_last_start_are_shown(tmp_path: Path) -> None:
    paths = record_run(tmp_path / "run")

    ran = CliRunner().invoke(app, ["actors", "list", "--run-dir", str(paths.root)])

    assert ran.exit_code == 0, ran.output
    assert "env-001" in ran.output
