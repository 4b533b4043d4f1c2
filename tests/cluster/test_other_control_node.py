"""A run on PostgreSQL is taken over by another machine only if its control node is silent."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dart.config.config import Config, load_config
from dart.core.errors import RunDirectoryError
from dart.core.record_address import ServerAddress
from dart.core.run_directory import RunPaths
from dart.inspect.time_budget import SESSION
from dart.run.other_control_node import SILENT_S, is_taken_over, take_over, used_elsewhere_s
from dart.store.control_node import announce, note_end
from dart.store.errors import StoreUnavailable
from dart.store.store import Store
from tests import control_node

SEEN_UNIX_S = 1000.0
TIMES = json.dumps(dict.fromkeys(SESSION, 60.0))
NODE = replace(
    control_node.NODE,
    address="a:1",
    session=TIMES,
    began_unix_s=SEEN_UNIX_S,
    seen_unix_s=SEEN_UNIX_S,
)


@pytest.fixture
def address(database: str) -> ServerAddress:
    """A record with a run, whose control node has announced itself."""
    found = ServerAddress(database)
    with Store(found) as store:
        store.add_version()
    announce(found, NODE)
    return found


@pytest.fixture
def config(database: str) -> Config:
    return load_config(None, [f"run.record={database!r}"])


def test_the_new_directory_has_the_configuration_and_the_used_time(
    address: ServerAddress, config: Config, tmp_path: Path
) -> None:
    paths = RunPaths(tmp_path / "run")
    assert is_taken_over(config, paths)
    waited: list[float] = []
    take_over(config, paths, unix_s=lambda: SEEN_UNIX_S + 2.0, sleep=waited.append)
    assert sum(waited) == SILENT_S - 2.0
    assert used_elsewhere_s(paths) == 60.0
    assert paths.record == address
    assert not is_taken_over(config, paths)


def test_a_control_node_that_writes_its_row_meanwhile_is_not_taken_over(
    address: ServerAddress, config: Config, tmp_path: Path
) -> None:
    paths = RunPaths(tmp_path / "run")

    def live_on(_: float) -> None:
        announce(address, replace(NODE, seen_unix_s=SEEN_UNIX_S + 5.0))

    with pytest.raises(RunDirectoryError, match="is running: its control node answers at a:1; end it first"):
        take_over(config, paths, unix_s=lambda: SEEN_UNIX_S, sleep=live_on)
    assert not paths.root.exists()


def test_a_run_that_has_ended_is_taken_over_at_once(
    address: ServerAddress, config: Config, tmp_path: Path
) -> None:
    note_end(address, NODE.pid, NODE.began_unix_s, time.time())
    waited: list[float] = []
    take_over(config, RunPaths(tmp_path / "run"), unix_s=lambda: SEEN_UNIX_S, sleep=waited.append)
    assert waited == []


def test_a_database_without_a_run_is_no_run_to_resume(config: Config, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="has no schema"):
        take_over(config, RunPaths(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
