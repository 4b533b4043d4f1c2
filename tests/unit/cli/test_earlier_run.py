"""Commands that only read a run also read one whose configuration a start refuses today."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dart.cli.exit_codes import ExitCode
from dart.cli.main import app
from dart.preflight import doctor
from tests.recorded_run import record_run


@pytest.mark.parametrize(
    "words",
    [("status",), ("top",), ("metrics",), ("tasks", "list"), ("policy", "versions"), ("doctor", "--data")],
    ids=" ".join,
)
def test_a_run_that_began_with_a_limit_that_has_no_effect_can_be_looked_at(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    paths = record_run(tmp_path / "run")
    kept = paths.config.read_text()
    paths.config.write_text(kept.replace("max_uses = 0", "max_uses = 9"))
    result = CliRunner().invoke(app, [*words, "--run-dir", str(paths.root)])
    assert "max_uses" not in result.output
    assert result.exit_code != ExitCode.USAGE
    resumed = CliRunner().invoke(app, ["train", "--resume", "--run-dir", str(paths.root)])
    assert "supervision.store.retirement.max_uses has no effect" in resumed.output


@pytest.mark.parametrize("words", [[], ["--config", "laptop"]], ids=" ".join)
def test_doctor_checks_the_machine_although_the_newest_start_left_no_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "x"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    checked: list[Any] = []

    def run_checks(target: Any) -> list[Any]:
        checked.append(target)
        return []

    monkeypatch.setattr(doctor, "run_checks", run_checks)

    ran = CliRunner().invoke(app, ["doctor", *words])

    assert ran.exit_code == 0, ran.output
    assert [target.paths for target in checked] == [None]
    named = CliRunner().invoke(app, ["doctor", *words, "--run-dir", str(folder)])
    assert named.exit_code == ExitCode.NOT_RUNNING
