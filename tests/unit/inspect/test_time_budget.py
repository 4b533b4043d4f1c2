"""How much of its time a run has used, over all its parts."""

import errno
import json
import os
from pathlib import Path
from typing import NoReturn

import pytest

from actors.clock import ManualClock
from dart.config.config import load_config
from dart.core.disk_errors import FULL_DISK
from dart.core.run_directory import RunPaths
from dart.inspect.time_budget import SESSION, TimeBudget, read_session

NO_NUMBER = dict.fromkeys(SESSION, 500.0) | {"elapsed_s": float("nan")}
CONFIG = load_config(None, ["run.minutes=10.0"])
HOUR_S = 3600.0


def test_a_later_part_goes_on_with_what_the_earlier_ones_left(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text(json.dumps(dict.fromkeys(SESSION, 500.0)))

    clock = ManualClock(now_s=7.0)
    session = TimeBudget(RunPaths(tmp_path), CONFIG, reserve_s=20.0, clock=clock)

    assert session.training_ends_boot_s == 87.0
    assert json.loads((tmp_path / "session.json").read_text())["used_before_s"] == 500.0


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
def test_a_wall_clock_that_is_set_neither_takes_time_from_the_run_nor_gives_it_time(
    tmp_path: Path, ahead_s: float
) -> None:
    paths, clock = RunPaths(tmp_path), ManualClock()
    session = TimeBudget(paths, CONFIG, reserve_s=0.0, clock=clock)
    before = read_session(paths)

    clock.set_unix_ahead(ahead_s)
    clock.advance(1.0)
    session.keep()

    after = read_session(paths)
    assert after["elapsed_s"] == 1.0
    for moment in ("started_unix_s", "training_ends_unix_s"):
        assert after[moment] - before[moment] == ahead_s, "it is a time of the clock as it is set now"


def test_a_clock_that_is_corrected_by_degrees_leaves_the_start_of_a_session(tmp_path: Path) -> None:
    clock = ManualClock()
    session = TimeBudget(RunPaths(tmp_path), CONFIG, reserve_s=0.0, clock=clock)
    started_unix_s = session.started_unix_s

    clock.set_unix_ahead(0.5)
    session.keep()

    assert session.started_unix_s == started_unix_s


@pytest.mark.parametrize(
    "left", [b"", bytes(150), b'{"elapsed_s": 5', b"[]", b"7", b"\xff", json.dumps(NO_NUMBER).encode()]
)
def test_a_part_whose_account_a_power_failure_destroyed_keeps_no_run_from_going_on(
    tmp_path: Path, left: bytes
) -> None:
    (tmp_path / "session.json").write_bytes(left)

    assert TimeBudget(RunPaths(tmp_path), CONFIG, reserve_s=0.0).used_before_s == 0.0


def refusing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the disk refuse every write of a file with this error."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_text", refuse)


@pytest.mark.parametrize("number", FULL_DISK)
def test_on_a_full_disk_the_earlier_times_are_kept_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    paths, clock = RunPaths(tmp_path), ManualClock()
    session = TimeBudget(paths, CONFIG, reserve_s=0.0, clock=clock)
    clock.advance(5.0)
    with monkeypatch.context() as patched:
        refusing(patched, number)
        session.keep()
    assert read_session(paths)["elapsed_s"] == 0.0
    session.keep()
    assert read_session(paths)["elapsed_s"] == 5.0


def test_a_disk_that_fails_and_a_first_start_on_a_full_one_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        refusing(patched, errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            TimeBudget(RunPaths(tmp_path), CONFIG, reserve_s=0.0)
    session = TimeBudget(RunPaths(tmp_path), CONFIG, reserve_s=0.0)
    refusing(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        session.keep()
