"""What `dartrl train --resume` and `dartrl up` say at once about the run that they continue."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dart.cli.main import app as app_of_dartrl
from dart.core.errors import TemporaryError
from dart.core.run_directory import RunPaths
from dart.preflight import requirements
from dart.run import app
from tests.recorded_run import TASKS, record_run

STARTED = "the run was started"

TASKS_ADDED = ("miniwob/click-test",)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    def train(*_: Any, **__: Any) -> None:
        raise TemporaryError(STARTED)

    monkeypatch.setattr(requirements, "require_installation", lambda *_: None)
    monkeypatch.setattr(app, "train", train)
    return record_run(tmp_path / "run")


def said_by(paths: RunPaths, *words: str) -> str:
    ended = CliRunner().invoke(app_of_dartrl, [*words, "--run-dir", str(paths.root)])
    return " ".join(ended.output.split())


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("words", [("train", "--resume"), ("up",)], ids=" ".join)
def test_a_run_that_goes_on_with_other_values_names_them_with_the_earlier_ones(
    paths: RunPaths, words: tuple[str, ...]
) -> None:
    said = said_by(paths, *words, "--set", "environments.count=3", "--set", "training.lr=0.5")

    assert "this run goes on with other values than before: " in said
    assert "environments.count (before: " in said
    assert "training.lr (before: " in said
    assert STARTED in said


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("words", [("train", "--resume"), ("up",)], ids=" ".join)
def test_a_run_that_goes_on_with_its_own_values_says_nothing_of_them(
    paths: RunPaths, words: tuple[str, ...]
) -> None:
    said = said_by(paths, *words)

    assert "other values" not in said
    assert STARTED in said


@pytest.mark.usefixtures("hangup")
def test_many_other_values_are_counted_and_long_ones_cut(paths: RunPaths) -> None:
    tasks = f"tasks.train={json.dumps([*TASKS, *TASKS_ADDED])}"
    training = ("lr=0.5", "updates=7", "weight_decay=0.5", "groups_per_update=3")
    sets = [tasks, "run.seed=7", *(f"training.{one}" for one in training)]

    said = said_by(paths, "up", *(word for one in sets for word in ("--set", one)))

    assert "and 2 more." in said
    assert "run.seed (before: 0), " in said
