"""Commands that only read a run also read one whose configuration a start refuses today."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.exit_codes import ExitCode
from dart.cli.main import app
from tests.recorded_run import record_run


@pytest.mark.parametrize(
    "words",
    [("status",), ("top",), ("metrics",), ("tasks", "list"), ("policy", "versions"), ("doctor", "--data")],
    ids=" ".join,
)
def test_a_run_that_began_when_environments_could_have_a_warm_spare_can_be_looked_at(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    paths = record_run(tmp_path / "run")
    kept = paths.config.read_text()
    paths.config.write_text(kept.replace("warm_spare = false", "warm_spare = true"))
    result = CliRunner().invoke(app, [*words, "--run-dir", str(paths.root)])
    assert "warm_spare" not in result.output
    assert result.exit_code != ExitCode.USAGE
    resumed = CliRunner().invoke(app, ["train", "--resume", "--run-dir", str(paths.root)])
    assert "supervision.environment_pool.retirement.warm_spare must be false" in resumed.output
