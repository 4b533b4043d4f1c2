"""`dartrl explore`: what it says at its end."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.config.config import Config
from dart.preflight import requirements
from dart.run import exploration
from dart.run.exploration import ExplorationProgress, ExplorationResult

pytestmark = pytest.mark.slow

DONE = ExplorationProgress(
    task_id="sites/shop/explore", actions=9, most_actions=9, screens=4, shapes=3, open_screens=1, edges=5
)


@pytest.mark.parametrize("refused", [0, 3])
def test_the_number_of_refused_contexts_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    asked: list[Config] = []

    def explore(config: Config, **_: Any) -> ExplorationResult:
        asked.append(config)
        return ExplorationResult(progress=(DONE,), stopped_by=0, contexts_refused=refused)

    monkeypatch.setattr(exploration, "explore", explore)
    monkeypatch.setattr(requirements, "require_installation", lambda *_, **__: None)
    keys = ("--set", "exploration.prior=model", "--set", "exploration.prior_context_bytes=2000")
    result = CliRunner().invoke(app, ["explore", "sites/shop", "--run-dir", str(tmp_path / "run"), *keys])

    told = " ".join(result.output.split())
    assert result.exit_code == 0, told
    assert asked[0].exploration.prior_context_bytes == 2000
    assert "4 screens of 3 shapes" in told
    assert (f"refused the text of exploration.prior_context_bytes {refused} times" in told) == bool(refused)


def test_a_limit_above_the_largest_one_and_a_misspelled_key_are_refused(tmp_path: Path) -> None:
    for words, problem in (
        ("exploration.prior_context_bytes=9000", "8192"),
        ("exploration.prior_contxt_bytes=400", "did you mean exploration.prior_context_bytes"),
    ):
        place = ("--run-dir", str(tmp_path / "run"))
        result = CliRunner().invoke(app, ["explore", "sites/shop", *place, "--set", words])
        assert result.exit_code == 78
        assert problem in " ".join(result.stderr.split())
