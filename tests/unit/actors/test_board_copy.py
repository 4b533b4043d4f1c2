"""A copy of a board shows the same rows with the same ages, whatever the clocks of the two machines count."""

from dataclasses import replace
from pathlib import Path

import pytest

from actors.board import ActorState, Board, Vitals, rows_of
from actors.board_copy import READ_SLOTS, copy_of, write_copy

S_NS = 10**9
AGED = ("beat_age_s", "busy_s", "work_s", "progress_age_s")


def board_of(path: Path, count: int, slots: int = 1024) -> Path:
    board = Board.create(path, slots)
    now_ns = board.now_ns()
    for number in range(count):
        board.set_state(
            board.claim(f"actor-{number}", "root"),
            ActorState.RUNNING,
            ready=1,
            beat_ns=now_ns - 3 * S_NS,
            busy_since_ns=now_ns - 2 * S_NS,
            handler="on_tick",
            gauge_0=number,
            last_reason="broke once",
        )
    board.close()
    return path


def without_ages(rows: list[Vitals]) -> list[Vitals]:
    return [replace(row, **dict.fromkeys(AGED, None)) for row in rows]


@pytest.mark.parametrize("count", [0, 1, READ_SLOTS, READ_SLOTS + 1])
def test_a_copy_has_every_named_row(tmp_path: Path, count: int) -> None:
    original = board_of(tmp_path / "board", count)
    write_copy(tmp_path / "copy", copy_of(original))

    found = rows_of(tmp_path / "copy")

    assert len(found) == count
    assert without_ages(found) == without_ages(rows_of(original))
    assert (tmp_path / "copy").stat().st_size == original.stat().st_size
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("ahead_s", [-(10**6), -5, 0, 10**6])
def test_ages_do_not_depend_on_the_clock_of_the_other_machine(tmp_path: Path, ahead_s: int) -> None:
    """The other machine has run for longer or shorter: its clock counts from another moment."""
    copy = copy_of(board_of(tmp_path / "board", 1))
    write_copy(tmp_path / "other", replace(copy, now_ns=copy.now_ns - ahead_s * S_NS))
    there = copy_of(tmp_path / "other")  # the moments as the clock of the other machine has them

    write_copy(tmp_path / "copy", replace(there, now_ns=there.now_ns + ahead_s * S_NS))
    (row,) = rows_of(tmp_path / "copy")

    assert row.beat_age_s is not None
    assert row.busy_s is not None
    assert 3.0 <= row.beat_age_s < 60.0
    assert 2.0 <= row.busy_s < 60.0
    assert (row.work_s, row.progress_age_s) == (None, None)


def test_a_large_board_with_few_actors_is_a_small_copy(tmp_path: Path) -> None:
    copy = copy_of(board_of(tmp_path / "board", 10, slots=65_536))

    assert copy.file_bytes > 65_536 * 1024
    assert len(copy.rows) == 10 * 1024
