"""A run whose actors cannot be started ends with the reason and what to do."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.errors import SystemStartFailed
from dart.config.config import Config, load_config
from dart.core.errors import RunDirectoryError, TemporaryError
from dart.run import app, exploration

SIMULATED = (
    'environments.kind="simulated"',
    'tasks.train=["simulated/0"]',
    'rollout.engine="simulated"',
    'training.learner="simulated"',
)

STARTS = pytest.mark.parametrize(
    ("start", "settings"), [(app.train, SIMULATED), (exploration.explore, ())], ids=["train", "explore"]
)


@STARTS
def test_actors_that_cannot_be_started_are_a_temporary_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[Config], object],
    settings: tuple[str, ...],
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise SystemStartFailed("the machine may be overloaded, so try again")

    for module in (app, exploration):
        monkeypatch.setattr(module, "ActorSystem", refuse)
    config = load_config(None, [*settings, f'run.dir="{tmp_path / "run"}"'])

    with pytest.raises(TemporaryError, match=r"overloaded, so try again; .* continue with --resume"):
        start(config)


@STARTS
@pytest.mark.parametrize("error", [FileNotFoundError("session.new"), TemporaryError("the store died")])
def test_a_run_whose_directory_was_deleted_says_so_whatever_fails_then(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[Config], object],
    settings: tuple[str, ...],
    error: Exception,
) -> None:
    def delete(*_: Any, **__: Any) -> Any:
        shutil.rmtree(tmp_path / "run")
        raise error

    for module in (app, exploration):
        monkeypatch.setattr(module, "ActorSystem", delete)

    with pytest.raises(RunDirectoryError, match=r"run was deleted or moved while the run used it"):
        start(load_config(None, [*settings, f'run.dir="{tmp_path / "run"}"']))
