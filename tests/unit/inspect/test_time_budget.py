"""How much of its time a run has used, over all its parts."""

import json
import time
from pathlib import Path

import pytest

from dart.config.config import load_config
from dart.core.run_directory import RunPaths
from dart.inspect.time_budget import SESSION, TimeBudget, read_session

NO_NUMBER = dict.fromkeys(SESSION, 500.0) | {"elapsed_s": float("nan")}
CONFIG = load_config(None, ["run.minutes=10.0"])


def test_a_later_part_goes_on_with_what_the_earlier_ones_left(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text(json.dumps(dict.fromkeys(SESSION, 500.0)))

    session = TimeBudget(RunPaths(tmp_path), CONFIG, reserve_s=20.0)

    assert session.training_ends_unix_s - session.started_unix_s == pytest.approx(80.0)
    assert json.loads((tmp_path / "session.json").read_text())["used_before_s"] == 500.0


def test_a_clock_that_is_set_back_takes_no_time_from_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = RunPaths(tmp_path)
    session = TimeBudget(paths, CONFIG, reserve_s=0.0)
    monkeypatch.setattr(time, "time", lambda: session.started_unix_s - 3600.0)

    session.keep()

    assert read_session(paths)["elapsed_s"] == 0.0


@pytest.mark.parametrize(
    "left", [b"", bytes(150), b'{"elapsed_s": 5', b"[]", b"7", b"\xff", json.dumps(NO_NUMBER).encode()]
)
def test_a_part_whose_account_a_power_failure_destroyed_keeps_no_run_from_going_on(
    tmp_path: Path, left: bytes
) -> None:
    (tmp_path / "session.json").write_bytes(left)

    assert TimeBudget(RunPaths(tmp_path), CONFIG, reserve_s=0.0).used_before_s == 0.0
