"""`dartrl eval`: what it refuses before it starts."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.preflight import requirements

MISSING = (requirements.missing_policy,)


@pytest.fixture(autouse=True)
def only_the_policy_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a browser is installed does not matter here."""
    monkeypatch.setattr(requirements.require_installation, "__defaults__", (MISSING,))


def test_a_checkpoint_that_does_not_exist_is_named_again_as_the_argument(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["eval", str(tmp_path / "nothing")])

    assert ended.exit_code == 69
    assert f"no policy checkpoint in {tmp_path / 'nothing'}: name another one as CHECKPOINT;" in ended.output
    assert "training.policy" not in ended.output


def test_a_damaged_checkpoint_is_named_again_as_the_argument(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[]")
    (tmp_path / "model.safetensors").touch()

    ended = CliRunner().invoke(app, ["eval", str(tmp_path)])

    assert ended.exit_code == 69
    assert "config.json holds no JSON object; name another one as CHECKPOINT;" in ended.output
