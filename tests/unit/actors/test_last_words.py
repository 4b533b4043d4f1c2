"""Last words: whatever bytes they are, they name the reason and end nobody else."""

import contextlib
import os
from pathlib import Path

import pytest

from actors.board import INCARNATIONS_PER_PLACEMENT, Board
from actors.errors import ActorError
from actors.last_words import (
    CONSOLE_BYTES,
    CRASHES_KEPT,
    GROUP_LEVELS,
    REASON_CHARACTERS,
    WORDS_CHARACTERS,
    crash_file,
    crash_report,
    last_words,
    reason_of,
    remove_old_crashes,
    say_on_console,
)
from actors.runtime import Identity
from actors.thespian_host import leave_last_words


def identity(run_dir: Path) -> Identity:
    (run_dir / "crash").mkdir()
    Board.create(run_dir / "board").close()
    return Identity(name="a", parent="sup", slot=0, incarnation=3, run_dir=run_dir, mail_dir=run_dir)


def on_the_board(run_dir: Path) -> str:
    board = Board(run_dir / "board")
    error = str(board.get(0, "last_error"))
    board.close()
    return error


def test_the_last_line_is_the_reason_on_disk_and_on_the_board(tmp_path: Path) -> None:
    leave_last_words(identity(tmp_path), "Traceback:\n  here\nKeyError: 'ü'\n")
    assert last_words(tmp_path, "a", 3) == "KeyError: 'ü'"
    assert on_the_board(tmp_path) == "KeyError: 'ü'"


def test_words_with_half_a_letter_are_left_and_read(tmp_path: Path) -> None:
    leave_last_words(identity(tmp_path), "ValueError: \ud800 is no letter")
    assert last_words(tmp_path, "a", 3) == "ValueError: \\ud800 is no letter"
    assert on_the_board(tmp_path) == "ValueError: \\ud800 is no letter"


def test_bytes_that_are_no_text_are_read_as_far_as_they_are(tmp_path: Path) -> None:
    who = identity(tmp_path)
    (tmp_path / "crash" / f"{who.name}.{who.incarnation}.txt").write_bytes(b"Traceback:\n\xff broke\n")
    assert last_words(tmp_path, "a", 3) == "\ufffd broke"


def test_there_are_no_words_where_nothing_can_be_read(tmp_path: Path) -> None:
    identity(tmp_path)
    assert last_words(tmp_path, "a", 3) == ""
    (tmp_path / "crash" / "a.3.txt").mkdir()
    assert last_words(tmp_path, "a", 3) == ""
    (tmp_path / "crash" / "a.4.txt").write_text("")
    assert last_words(tmp_path, "a", 4) == ""


# ---- the reason of an exception ----


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def noted() -> ValueError:
    error = ValueError("the cause")
    error.add_note("a note of somebody else")
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("wrong"), "ValueError: wrong"),
        (noted(), "ValueError: the cause"),
        (
            RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to see more.\n"),
            "RuntimeError: CUDA error: out of memory Compile with `TORCH_USE_CUDA_DSA` to see more.",
        ),
        (
            ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
            "ExceptionGroup: several (2 sub-exceptions): ValueError: one; KeyError: 'two'",
        ),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ActorError("ours"), "actors.errors.ActorError: ours"),
        (Unsayable(), f"{__name__}.Unsayable: <its str() failed>"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_the_reason_is_type_and_message_of_the_exception_whatever_else_its_traceback_says(
    error: BaseException, reason: str, tmp_path: Path
) -> None:
    assert reason_of(error) == reason
    leave_last_words(identity(tmp_path), crash_report(error))
    assert last_words(tmp_path, "a", 3) == reason
    assert on_the_board(tmp_path) == reason[:120]


def test_groups_in_groups_are_named_only_so_deep() -> None:
    error: Exception = ValueError("at the bottom")
    for level in range(500):
        error = ExceptionGroup(f"level {level}", [error])
    assert reason_of(error).count("ExceptionGroup") == GROUP_LEVELS + 1


def test_an_exception_text_of_megabytes_is_cut_where_it_is_written_and_where_it_is_read(
    tmp_path: Path,
) -> None:
    error = ValueError("x" * 5_000_000)
    text = crash_report(error)
    assert len(text) < WORDS_CHARACTERS + 2 * REASON_CHARACTERS
    assert len(reason_of(error)) == REASON_CHARACTERS
    leave_last_words(identity(tmp_path), text)
    assert last_words(tmp_path, "a", 3) == reason_of(error)
    (tmp_path / "crash" / "a.3.txt").write_text("y" * 5_000_000)
    assert last_words(tmp_path, "a", 3) == "y" * REASON_CHARACTERS


# ---- the console ----


def in_a_child_that_says(write_fd: int, text: str) -> int:
    """The exit code of a forked child that says it on a standard error of its own."""
    pid = os.fork()
    if pid == 0:
        os.dup2(write_fd, 2)
        say_on_console(text)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_is_said_on_the_console_keeps_its_end_and_never_waits_for_a_reader() -> None:
    reading, writing = os.pipe()
    assert in_a_child_that_says(writing, "x" * 10_000 + "the end\n") == 0
    said = os.read(reading, 100_000)
    assert len(said) == CONSOLE_BYTES
    assert said.endswith(b"the end\n")
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    assert in_a_child_that_says(writing, "nobody reads this") == 0
    os.close(reading)
    os.close(writing)


def test_the_crash_files_of_the_five_newest_incarnations_are_kept_also_across_placements(
    tmp_path: Path,
) -> None:
    (tmp_path / "crash").mkdir()
    others = [crash_file(tmp_path, name, 1, "txt") for name in ("a.7", "b", "7")]
    for other in others:
        other.touch()
    first = 3 * INCARNATIONS_PER_PLACEMENT
    incarnations = [1, 2, 3, *range(first + 1, first + 9)]
    for done, incarnation in enumerate(incarnations, 1):
        remove_old_crashes(tmp_path, "a", incarnation)
        for suffix in ("fault", "txt"):
            crash_file(tmp_path, "a", incarnation, suffix).touch()
        kept = incarnations[max(0, done - CRASHES_KEPT) : done]
        files = {crash_file(tmp_path, "a", number, suffix) for number in kept for suffix in ("fault", "txt")}
        assert {*(tmp_path / "crash").iterdir()} == {*files, *others}
