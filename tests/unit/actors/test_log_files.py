"""Logs: whole lines, the previous incarnation's kept, and no more than twice their limit on the disk."""

import contextlib
import errno
import logging
import os
from pathlib import Path
from typing import NoReturn

import pytest
import structlog

from actors.log import STORM_LINES, STORM_S, LogFile, StormGuard, cut, library_records, to_json


def test_lines_of_an_earlier_process_stay(tmp_path: Path) -> None:
    for line in ("first\n", "second\n"):
        log = LogFile(tmp_path / "a.jsonl")
        log.write(line)
        log.close()
    assert (tmp_path / "a.jsonl").read_text() == "first\nsecond\n"


def test_a_full_log_is_kept_once_and_begun_anew(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a.jsonl", limit_bytes=30)
    for number in range(10):
        log.write(f"line {number:04}\n")  # ten bytes
    log.close()
    assert (tmp_path / "a.jsonl").read_text() == "line 0009\n"
    assert (tmp_path / "a.jsonl.1").read_text() == "line 0006\nline 0007\nline 0008\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_log_that_was_full_before_is_renamed_by_the_next_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("x" * 40)
    log = LogFile(tmp_path / "a.jsonl", limit_bytes=30)
    log.write("new\n")
    log.close()
    assert (tmp_path / "a.jsonl").read_text() == "new\n"
    assert (tmp_path / "a.jsonl.1").read_text() == "x" * 40


def test_a_log_is_its_owners_alone(tmp_path: Path) -> None:
    LogFile(tmp_path / "a.jsonl").close()
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_costs_the_line_and_not_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogFile(tmp_path / "a.jsonl")
    log.write("before\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_space)
        log.write("lost\n")
    log.write("after\n")
    log.close()
    assert log.lost == 1
    assert (tmp_path / "a.jsonl").read_text() == "before\nafter\n"


def test_a_line_the_disk_took_half_of_leaves_the_next_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogFile(tmp_path / "a.jsonl")
    log.write("before\n")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:2]))
        log.write("lost\n")
    log.write("after\n")
    log.close()
    assert log.lost == 1
    assert (tmp_path / "a.jsonl").read_text() == "before\nlo\nafter\n"


def test_a_log_that_cannot_be_begun_anew_costs_lines_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogFile(tmp_path / "a.jsonl", limit_bytes=10)
    log.write("line 0000\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_space)
        log.write("line 0001\n")
        log.write("line 0002\n")
    log.write("line 0003\n")
    log.close()
    assert log.lost == 2
    assert (tmp_path / "a.jsonl").read_text() == "line 0003\n"
    assert (tmp_path / "a.jsonl.1").read_text() == "line 0000\n"


def test_a_folder_that_is_not_there_costs_lines_until_it_is(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "logs" / "a.jsonl")
    log.write("lost\n")
    (tmp_path / "logs").mkdir()
    log.write("line\n")
    log.close()
    assert (tmp_path / "logs" / "a.jsonl").read_text() == "line\n"


def test_half_a_letter_costs_nothing(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a.jsonl")
    log.write("\ud800\n")
    log.close()
    assert (tmp_path / "a.jsonl").read_text() == "\\ud800\n"


def no_space(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# ---- storms ----


def passed(guard: StormGuard, event: str, times: int) -> list[object]:
    """What is said of those left out by each of the lines that pass."""
    lines: list[object] = []
    for _ in range(times):
        with contextlib.suppress(structlog.DropEvent):
            lines.append(guard(None, "info", {"event": event}).get("left_out"))
    return lines


def test_an_event_that_comes_in_floods_is_left_out_counted_and_hides_no_other() -> None:
    now_s = 0.0
    guard = StormGuard(lambda: now_s)
    assert passed(guard, "refused", STORM_LINES + 30) == [None] * STORM_LINES
    assert passed(guard, "other", 1) == [None]

    now_s = STORM_S
    assert passed(guard, "refused", 2) == [30, None]
    assert passed(guard, "other", 1) == [None]


def test_a_dropped_event_is_no_line_and_no_error(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "a.jsonl")
    log = structlog.wrap_logger(structlog.WriteLogger(file), processors=to_json())
    for _ in range(STORM_LINES + 5):
        log.info("again")
    file.close()
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == STORM_LINES


def test_what_several_processes_append_to_is_kept_once_and_emptied(tmp_path: Path) -> None:
    path = tmp_path / "output"
    cut(path, 30)
    with path.open("ab", buffering=0) as one, path.open("ab", buffering=0) as other:
        for number in range(6):
            (one, other)[number % 2].write(b"line %04d\n" % number)
            cut(path, 30)

    assert path.read_text() == "line 0004\nline 0005\n"
    assert path.with_name("output.1").read_text() == "line 0000\nline 0001\nline 0002\nline 0003\n"


def test_a_library_that_logs_with_wrong_arguments_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    library = logging.Logger("library")
    library.addHandler(library_records)
    with structlog.testing.capture_logs() as events:
        library.warning("%d things", "no number")
        library.warning("%d things", 3)
    assert [event["text"] for event in events] == ["3 things"]
    assert "--- Logging error ---" in capsys.readouterr().err
