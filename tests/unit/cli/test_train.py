"""`dartrl train` from its own process, with a run that is none."""

from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from dart.cli.exit_codes import ExitCode
from dart.cli.main import app as app_of_dartrl
from dart.core.errors import TemporaryError
from dart.preflight import requirements
from dart.run import app
from tests.recorded_run import record_run


def test_a_run_without_a_page_says_how_to_see_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def train(*_: Any, **__: Any) -> NoReturn:
        raise TemporaryError("it came so far")

    monkeypatch.setattr(requirements, "require_installation", lambda _: None)
    monkeypatch.setattr(app, "train", train)

    ran = CliRunner().invoke(app_of_dartrl, ["train", "smoke", "--run-dir", str(tmp_path / "run")])

    assert "it came so far" in ran.stderr
    assert f"dartrl web --run-dir {tmp_path / 'run'}" in ran.stderr.replace("\n", "")


@pytest.mark.parametrize("command", ["train", "up"])
def test_the_configuration_of_a_run_that_was_moved_begins_no_run_in_the_earlier_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setattr(app, "train", lambda *_, **__: pytest.fail("a run was started"))
    moved = record_run(tmp_path / "run").root.rename(tmp_path / "moved")

    ran = CliRunner().invoke(app_of_dartrl, [command, str(moved / "config.toml")])

    assert ran.exit_code == ExitCode.CANNOT_CREATE
    said = ran.stderr.replace("\n", "")
    assert f"its run.dir is {tmp_path / 'run'}: continue that run with --run-dir {moved}" in said
    assert not (tmp_path / "run").exists()
