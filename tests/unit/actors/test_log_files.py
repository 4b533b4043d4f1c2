"""Logs: whole lines, the previous incarnation's kept, and no more than twice their limit on the disk."""

from pathlib import Path

from actors.log import LogFile


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
