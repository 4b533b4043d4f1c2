"""`dartrl train` from its own process, with a run that is none."""

from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from dart.cli.main import app as app_of_dartrl
from dart.core.errors import TemporaryError
from dart.preflight import requirements
from dart.run import app


def test_a_run_without_a_page_says_how_to_see_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def train(*_: Any, **__: Any) -> NoReturn:
        raise TemporaryError("it came so far")

    monkeypatch.setattr(requirements, "require_installation", lambda _: None)
    monkeypatch.setattr(app, "train", train)

    ran = CliRunner().invoke(app_of_dartrl, ["train", "smoke", "--run-dir", str(tmp_path / "run")])

    assert "it came so far" in ran.stderr
    assert f"dartrl web --run-dir {tmp_path / 'run'}" in ran.stderr.replace("\n", "")
