"""The note about environments that could only wait while an update is computed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.main import app
from dart.config.config import load_config
from dart.preflight.idle_environments import idle_lines

SETS = [
    *("environments.count=80", "curation.staleness=1"),
    *("training.groups_per_update=8", "curation.rollouts_per_group=8"),
]
NOTE = (
    "16 of 80 environments only wait while an update is computed, because at most 64 rollouts are open then: "
    "curation.staleness (1) x training.groups_per_update (8) x curation.rollouts_per_group (8); lower "
    "environments.count, or raise one of these"
)


def test_more_environments_than_rollouts_beside_an_update_are_noted_with_the_arithmetic() -> None:
    assert list(idle_lines(load_config(None, SETS))) == [NOTE]


@pytest.mark.parametrize(
    "enough",
    [
        *("environments.count=64", "curation.staleness=2", "training.groups_per_update=10"),
        *("training.learner=none", "exploration.enabled=true"),
    ],
)
def test_environments_that_all_have_a_rollout_or_train_nothing_are_not_noted(enough: str) -> None:
    assert list(idle_lines(load_config(None, [*SETS, enough]))) == []


def test_config_check_shows_the_note_of_a_valid_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("")

    checked = CliRunner().invoke(app, ["config", "check", str(file), *(f"--set={one}" for one in SETS)])

    assert (checked.exit_code, checked.output) == (0, f"{file}: valid\n{file}: note: {NOTE}\n")
