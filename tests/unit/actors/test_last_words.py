"""Last words: whatever bytes they are, they name the reason and end nobody else."""

from pathlib import Path

from actors.actor import Identity
from actors.board import Board
from actors.shell import last_words, leave_last_words


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
