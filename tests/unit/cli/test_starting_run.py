"""While a run starts again, its board still shows the actors of its last start: no command shows them."""

import fcntl
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from actors.process import start_ticks
from dart.cli.main import app
from dart.inspect import snapshot_reader
from dart.store.errors import StoreBusy
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


@pytest.mark.parametrize("words", [("-o", "table"), ("-o", "json")], ids=" ".join)
def test_the_actors_of_a_run_whose_record_is_away_are_shown_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    away = Mock(side_effect=StoreBusy("postgresql://db/run: its server does not answer"))
    monkeypatch.setattr(snapshot_reader, "read_snapshot", away)
    paths = record_run(tmp_path / "run")
    (paths.root / "processes.json").write_text(f'{{"launcher": [{os.getpid()}, {start_ticks(os.getpid())}]}}')
    paths.lock.write_text(f"{os.getpid()}\n")
    with paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = CliRunner().invoke(app, ["status", "--run-dir", str(paths.root), *words])

    assert ran.exit_code == 4, ran.output
    assert "its server does not answer. The run waits for its record, and goes on by itself" in ran.stderr
    assert ("env-001" in ran.stdout) == ("table" in words)


def test_of_a_run_that_has_ended_the_actors_of_its_last_start_are_shown(tmp_path: Path) -> None:
    paths = record_run(tmp_path / "run")

    ran = CliRunner().invoke(app, ["actors", "list", "--run-dir", str(paths.root)])

    assert ran.exit_code == 0, ran.output
    assert "env-001" in ran.output
