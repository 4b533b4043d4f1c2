"""Commands and pages over a run with damaged data explain what they cannot read, without a traceback."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import corruptions
from dart.core.run_directory import RunPaths
from tests.recorded_run import record_run

pytestmark = pytest.mark.slow


def change(statement: str) -> Callable[[RunPaths], object]:
    def damage(paths: RunPaths) -> None:
        connection = sqlite3.connect(paths.store)
        with connection:
            connection.executescript(statement)
        connection.close()

    return damage


DAMAGE: dict[str, Callable[[RunPaths], object]] = {
    "metrics that are no JSON": change("UPDATE versions SET metrics = '{'"),
    "an event that is no JSON": change("UPDATE events SET data = 'no json'"),
    "a reward that is text": change("UPDATE trajectories SET reward = 'abc'"),
    "text that is no text": change(
        "UPDATE trajectories SET instruction = CAST(x'ff' AS TEXT), task_id = x'ff'"
    ),
    "no table of tasks": change("DROP TABLE task_statistics"),
    "a record from before the first migration": change("UPDATE alembic_version SET version_num = '0007'"),
    "a record of newer code": change("UPDATE alembic_version SET version_num = '9999'"),
    "a record of random bytes": lambda paths: paths.store.write_bytes(os.urandom(9000)),
    "a session that is a list": lambda paths: (paths.root / "session.json").write_text("[]"),
    "a board of random bytes": lambda paths: paths.board.write_bytes(os.urandom(paths.board.stat().st_size)),
    "a board that was cut": lambda paths: paths.board.write_bytes(b"x" * 999),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunPaths:
    return record_run(tmp_path_factory.mktemp("recorded") / "run")


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_damaged_is_explained(tmp_path: Path, recorded: RunPaths, kind: str) -> None:
    paths = RunPaths(tmp_path / "run")
    shutil.copytree(recorded.root, paths.root)
    DAMAGE[kind](paths)
    assert [*corruptions.failing_commands(paths), *corruptions.failing_pages(paths)] == []
