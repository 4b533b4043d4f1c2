"""A run directory without a lock is not the one that the control node of the record locked."""

import itertools
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dart.cli.exit_codes import ExitCode
from dart.cli.main import app as app_of_dartrl
from dart.config.config import Config
from dart.core.errors import RunDirectoryError
from dart.core.run_directory import RunPaths
from dart.inspect.time_budget import SESSION, read_session
from dart.run import app, other_control_node
from dart.run.other_control_node import WATCH_S
from dart.store.control_node import ControlNode, announce
from dart.store.errors import StoreBusy, StoreUnavailable
from dart.store.store import Store
from tests.control_node import NODE
from tests.record_places import make_older_record
from tests.recorded_run import record_run


def test_a_copied_run_directory_without_a_lock_starts_if_the_control_node_of_the_record_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.model_validate({"run": {"dir": str(tmp_path), "record": "postgresql://db.example/run_7"}})
    node = replace(NODE, seen_unix_s=time.time() - 2 * other_control_node.SILENT_S)
    looked: list[object] = []

    def read_control_node(address: object) -> ControlNode:
        looked.append(address)
        return node

    waits: list[float] = []
    monkeypatch.setattr(other_control_node, "read_control_node", read_control_node)
    monkeypatch.setattr(time, "sleep", waits.append)
    other_control_node.refuse_running_elsewhere(config, RunPaths(tmp_path))
    assert sum(waits) == WATCH_S, "the clocks may differ, so two announcements are waited for"


@pytest.mark.parametrize("ahead_s", [0.0, 10.0, 16.0, 3600.0])
def test_a_control_node_that_lives_is_seen_however_far_ahead_the_clock_of_this_machine_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    config = Config.model_validate({"run": {"dir": str(tmp_path), "record": "postgresql://db.example/run_7"}})
    now_s = [time.time()]

    def read_control_node(address: object) -> ControlNode:
        return replace(NODE, seen_unix_s=now_s[0] // 5.0 * 5.0 - ahead_s)

    def wait(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(other_control_node, "read_control_node", read_control_node)
    monkeypatch.setattr(time, "sleep", wait)
    with pytest.raises(RunDirectoryError, match="its control node answers at"):
        other_control_node.refuse_running_elsewhere(config, RunPaths(tmp_path))


def test_a_control_node_without_an_address_that_lives_has_to_be_ended_on_its_own_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.model_validate({"run": {"dir": str(tmp_path), "record": "postgresql://db.example/run_7"}})
    seen_unix_s = itertools.count(100.0, 5.0)
    monkeypatch.setattr(
        other_control_node,
        "read_control_node",
        lambda _: replace(NODE, address="", seen_unix_s=next(seen_unix_s)),
    )
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(RunDirectoryError, match="answers no other machine; end it there first, with `dartrl"):
        other_control_node.refuse_running_elsewhere(config, RunPaths(tmp_path))


@pytest.mark.parametrize("is_copy", [False, True])
def test_the_last_start_in_a_directory_is_not_waited_for_and_a_copy_waits_for_its_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_copy: bool
) -> None:
    config = Config.model_validate({"run": {"dir": str(tmp_path), "record": "postgresql://db.example/run_7"}})
    paths = RunPaths(tmp_path)
    paths.lock.write_text("1\n")
    if is_copy:  # as `cp -a` and rsync make it
        os.utime(paths.lock, (paths.lock.stat().st_mtime - 60.0,) * 2)
    node = replace(NODE, began_unix_s=paths.lock.stat().st_mtime)
    waits: list[float] = []
    monkeypatch.setattr(other_control_node, "read_control_node", lambda _: node)
    monkeypatch.setattr(time, "sleep", waits.append)

    other_control_node.refuse_running_elsewhere(config, paths)

    assert sum(waits) == (WATCH_S if is_copy else 0.0)


@pytest.mark.parametrize("look_that_fails", [1, 2])
def test_a_record_that_is_away_for_one_look_does_not_prove_that_the_control_node_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_that_fails: int
) -> None:
    config = Config.model_validate({"run": {"dir": str(tmp_path), "record": "postgresql://db.example/run_7"}})
    looks = itertools.count(1)

    def read_control_node(address: object) -> ControlNode:
        if next(looks) == look_that_fails:
            raise StoreBusy("the server does not answer")
        return NODE

    monkeypatch.setattr(other_control_node, "read_control_node", read_control_node)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(StoreBusy, match="the server does not answer"):
        other_control_node.refuse_running_elsewhere(config, RunPaths(tmp_path))


def test_a_record_that_is_lost_is_left_to_the_start_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_control_node(address: object) -> ControlNode:
        raise StoreUnavailable("the database does not exist")

    config = Config.model_validate({"run": {"dir": str(tmp_path), "record": "postgresql://db.example/run_7"}})
    monkeypatch.setattr(other_control_node, "read_control_node", read_control_node)
    other_control_node.refuse_running_elsewhere(config, RunPaths(tmp_path))


@pytest.mark.parametrize(
    "words", [("train", "--resume"), ("pool", "import", "FOLDER"), ("pool", "drop", "1")], ids=" ".join
)
def test_a_command_that_would_become_the_writer_of_the_record_refuses_a_run_on_another_machine(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(config: Config, paths: RunPaths) -> None:
        raise RunDirectoryError(f"the run in {paths.root} is running: its control node answers at a:1")

    run = record_run(tmp_path / "run").root
    before = (run / "config.toml").stat().st_mtime_ns
    monkeypatch.setattr(other_control_node, "refuse_running_elsewhere", refuse)
    monkeypatch.setattr(app, "train", lambda *_, **__: pytest.fail("the run was started"))
    ended = CliRunner().invoke(app_of_dartrl, [*words, "--run-dir", str(run)])

    assert ended.exit_code == ExitCode.CANNOT_CREATE
    assert f"the run in {run} is running: its control node answers at a:1" in ended.stderr
    assert (run / "config.toml").stat().st_mtime_ns == before


def test_a_run_whose_record_is_at_an_older_migration_is_one_to_take_over(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    make_older_record(paths.store)
    before = paths.store.read_bytes()
    other_control_node.refuse_nothing_to_take_over(Config(), paths)
    assert paths.store.read_bytes() == before


def test_a_record_without_a_version_is_no_run_to_take_over(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    Store(paths.store).close()
    with pytest.raises(StoreUnavailable, match="holds no policy version, so there is no run to resume"):
        other_control_node.refuse_nothing_to_take_over(Config(), paths)


@pytest.mark.parametrize(
    ("here_s", "row", "used_s"),
    [
        (100.0, json.dumps(dict.fromkeys(SESSION, 1000.0)), 1000.0),
        (2000.0, json.dumps(dict.fromkeys(SESSION, 1000.0)), 2000.0),
        (100.0, "", 100.0),
        (100.0, '{"elapsed_s": "damaged"}', 100.0),
        (100.0, None, 100.0),
    ],
)
def test_a_run_that_another_machine_continued_goes_on_with_the_time_that_it_used_there(
    tmp_path: Path, here_s: float, row: str | None, used_s: float
) -> None:
    paths = RunPaths(tmp_path)
    Store(paths.store).close()
    paths.session.write_text(json.dumps(dict.fromkeys(SESSION, here_s)))
    if row is not None:
        announce(paths.store, replace(NODE, session=row, ended_unix_s=time.time()))
    session = app.begin_session(Config(), paths)
    assert session.used_before_s == used_s
    assert read_session(paths)["elapsed_s"] == pytest.approx(used_s, abs=60.0)
