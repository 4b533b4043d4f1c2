"""What is said of an engine that is gone or gives no token."""

import os
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from actors.process import ExitReason, start_ticks
from dart.inference import engine_processes
from dart.inference.engine_processes import (
    Member,
    last_words,
    launcher_script,
    tie_spawned_processes,
    why_died,
    why_wedged,
)

GONE = Member("engine core", 2**22 + 1, 1)
"""No pid is as large."""


def test_the_last_error_of_a_log_is_quoted_and_not_the_first(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(
        "ValueError: an early one\nINFO all is well\n"
        "  RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory\nINFO bye\n"
    )
    assert last_words(log) == "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory"


def test_a_log_without_an_error_or_no_log_has_no_last_words(tmp_path: Path) -> None:
    assert last_words(tmp_path / "none.log") == ""
    (tmp_path / "engine.log").write_text("INFO all is well\n")
    assert last_words(tmp_path / "engine.log") == ""


def test_a_death_names_the_process_its_signal_and_the_log(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    told = why_died((GONE,), {GONE.pid: ExitReason(code=None, signal=9)}, 0, log)
    assert f"engine core {GONE.pid} ended (SIGKILL)" in told
    assert str(log) in told
    assert "memory" not in told


def test_a_death_for_want_of_memory_says_what_to_lower(tmp_path: Path) -> None:
    told = why_died((GONE,), {}, 1, tmp_path / "engine.log")
    assert "want of memory" in told
    assert "rollout.vllm.memory" in told


def test_a_process_that_ended_by_itself_was_not_what_the_kernel_killed(tmp_path: Path) -> None:
    told = why_died((GONE,), {GONE.pid: ExitReason(code=1)}, 1, tmp_path / "engine.log")
    assert "want of memory" not in told


def test_an_engine_does_not_die_with_the_last_words_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_processes.multiprocessing, "resource_tracker", MagicMock())
    monkeypatch.setattr(engine_processes.multiprocessing, "spawn", MagicMock())
    log = tmp_path / "rollout-0.vllm.log"
    log.write_text("RuntimeError: of long ago\n")
    tie_spawned_processes(log)
    assert last_words(log) == ""
    assert "long ago" in (tmp_path / "rollout-0.vllm.previous.log").read_text()


def test_a_wedged_engine_is_told_with_how_each_process_is(tmp_path: Path) -> None:
    here = Member("worker", os.getpid(), start_ticks(os.getpid()))
    told = why_wedged("no token", (GONE, here), 20.0, tmp_path / "engine.log")
    assert told.startswith("no token came within 20 s")
    assert f"engine core {GONE.pid} is gone, worker {os.getpid()} is running" in told


def test_a_launcher_quotes_names_with_spaces(tmp_path: Path) -> None:
    script = launcher_script("/opt/my python/bin/python", 7, tmp_path / "a b.log")
    assert "'/opt/my python/bin/python' \"$@\"" in script
    assert "a b.log" in script
