"""The vitals board: names and vitals that everybody can read while every actor hangs."""

import contextlib
import fcntl
import math
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from actors.board import MAX_SLOTS, SLOT_BYTES, SLOTS, ActorState, Board, Heartbeat, rows_of, size_bytes
from actors.errors import ActorError


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    board = Board.create(tmp_path / "board")
    yield board
    board.close()


def test_a_fresh_board_is_empty_and_readable_by_its_owner_alone(board: Board) -> None:
    assert board.rows() == []
    assert board.find("curator") is None
    assert board.path.stat().st_mode & 0o777 == 0o600


def test_a_name_is_placed_once_and_found_by_everybody(board: Board) -> None:
    slot = board.claim("curator", "root")
    other = Board(board.path)
    assert other.find("curator") == slot
    assert other.claim("curator", "root") == slot
    assert other.claim("store", "root") != slot
    assert [row.name for row in board.rows()] == ["curator", "store"]
    other.close()


def test_a_reader_that_looked_before_the_name_was_placed_finds_it_after(board: Board) -> None:
    reader = Board(board.path)
    assert reader.find("curator") is None
    slot = board.claim("curator", "root")
    assert reader.find("curator") == slot
    reader.close()


def test_a_board_that_may_not_be_written_is_read(board: Board) -> None:
    board.claim("curator", "root")
    with os.fdopen(os.memfd_create("board", os.MFD_ALLOW_SEALING), "wb") as sealed:  # for root, too
        sealed.write(board.path.read_bytes())
        sealed.flush()
        fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        assert [row.name for row in rows_of(Path(f"/proc/self/fd/{sealed.fileno()}"))] == ["curator"]


def test_a_name_that_begins_like_another_is_another(board: Board) -> None:
    slots = [board.claim(name, "root") for name in ("env-1", "env-10", "env")]
    assert [board.find(name) for name in ("env-1", "env-10", "env")] == slots
    assert len(set(slots)) == 3


def test_a_parent_may_change_when_the_tree_does(board: Board) -> None:
    slot = board.claim("curator", "root")
    board.claim("curator", "other_pool")
    assert board.vitals(slot).parent == "other_pool"


def test_a_name_longer_than_its_place_is_refused(board: Board) -> None:
    board.claim("n" * 64, "root")
    with pytest.raises(ActorError, match="longer than 64 bytes"):
        board.claim("ü" * 33, "root")


@pytest.mark.parametrize("name", ["", "\0a", "a\0b"])
def test_a_name_that_would_hide_the_rows_after_it_is_refused(board: Board, name: str) -> None:
    with pytest.raises(ActorError, match="is empty or has a zero byte"):
        board.claim(name, "root")


def test_a_full_board_says_so_and_names_who_found_no_place(board: Board) -> None:
    for slot in range(SLOTS):
        board.set(slot, name=f"actor-{slot}")
    with pytest.raises(ActorError, match=rf"{SLOTS} actors and is full.*'one-more'"):
        board.claim("one-more", "root")
    assert board.claim(f"actor-{SLOTS - 1}", "root") == SLOTS - 1


def test_vitals_are_what_was_written(board: Board) -> None:
    slot = board.claim("trainer", "root")
    board.set_state(slot, ActorState.BACKOFF, incarnation=4, restarts=3, retry_unix_s=12.5, last_reason="why")
    board.set(slot, ready=1, handler="update", messages=7, refused=1)
    board.set_gauges(slot, {0: 9, 3: 2})
    vitals = board.vitals(slot)
    assert (vitals.state, vitals.incarnation, vitals.restarts) == (ActorState.BACKOFF, 4, 3)
    assert (vitals.retry_unix_s, vitals.last_reason, vitals.ready) == (12.5, "why", True)
    assert (vitals.handler, vitals.messages, vitals.refused) == ("update", 7, 1)
    assert (vitals.gauges, board.gauge(slot, 3)) == ((9, 0, 0, 2), 2)


@pytest.mark.parametrize("state", list(ActorState))
def test_every_state_can_be_written_and_read(board: Board, state: ActorState) -> None:
    slot = board.claim("x", "root")
    board.set_state(slot, state)
    assert board.state(slot) is state


def test_what_never_happened_has_no_age(board: Board) -> None:
    vitals = board.vitals(board.claim("x", "root"))
    assert (vitals.beat_age_s, vitals.busy_s, vitals.work_s) == (None, None, None)


def test_ages_are_seconds_since(board: Board) -> None:
    slot = board.claim("x", "root")
    ago_ns = time.monotonic_ns() - 3_000_000_000
    board.set(slot, beat_ns=ago_ns, busy_since_ns=ago_ns, work_since_ns=ago_ns)
    vitals = board.vitals(slot)
    for age_s in (vitals.beat_age_s, vitals.busy_s, vitals.work_s):
        assert age_s is not None
        assert 3.0 <= age_s < 60.0


def test_a_text_too_long_for_its_place_is_cut_and_harms_no_neighbour(board: Board) -> None:
    slot = board.claim("x", "root")
    board.set(slot, ready=1, handler="short")
    board.set(slot, last_reason="r" * 5000)
    assert 100 < len(board.get(slot, "last_reason")) < 1000
    assert board.get(slot, "ready") == 1
    assert board.get(slot, "handler") == "short"


def test_a_text_is_never_cut_inside_a_letter(board: Board) -> None:
    slot = board.claim("x", "root")
    for shift in ("", "a"):
        board.set(slot, last_reason=shift + "ü" * 5000)
        assert set(board.get(slot, "last_reason")) == set(shift + "ü")


def test_a_shorter_text_leaves_nothing_of_the_longer_one(board: Board) -> None:
    slot = board.claim("x", "root")
    board.set(slot, last_reason="something long")
    board.set(slot, last_reason="short")
    assert board.get(slot, "last_reason") == "short"


def test_a_field_that_does_not_exist_is_an_error(board: Board) -> None:
    with pytest.raises(KeyError, match="mood"):
        board.set(0, mood=1)


def test_a_number_too_large_is_an_error_not_a_wrong_number(board: Board) -> None:
    with pytest.raises(ValueError):
        board.set(0, pid=2**64)


def test_a_new_run_starts_with_an_empty_board(board: Board) -> None:
    board.claim("curator", "root")
    again = Board.create(board.path)
    assert again.rows() == []
    again.close()


def _claim_many(path: Path, start: Barrier, names: list[str]) -> None:
    board = Board(path)
    start.wait()
    for name in names:
        slot = board.claim(name, "root")
        board.set(slot, pid=os.getpid())


def test_processes_that_claim_at_once_never_share_a_slot_and_never_split_a_name(board: Board) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)
    shared = [f"shared-{n}" for n in range(20)]
    processes = [
        context.Process(
            target=_claim_many, args=(board.path, start, [*shared, *(f"own-{p}-{n}" for n in range(20))])
        )
        for p in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    names = [row.name for row in board.rows()]
    assert sorted(names) == sorted(shared + [f"own-{p}-{n}" for p in range(4) for n in range(20)])


@contextlib.contextmanager
def claim_lock_held(board: Board) -> Iterator[None]:
    """Have another thread hold the lock of all claims."""
    is_inside, may_go = threading.Event(), threading.Event()
    board.claim("held", "root")

    def hold(_: int) -> None:
        is_inside.set()
        may_go.wait(60)

    thread = threading.Thread(target=lambda: board.claim("held", "another", check=hold))
    thread.start()
    assert is_inside.wait(60)
    try:
        yield
    finally:
        may_go.set()
        thread.join(60)


@pytest.mark.parametrize("has_own_board", [True, False])
def test_two_threads_are_not_inside_the_claim_lock_together(
    board: Board, has_own_board: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.board.CLAIM_DEADLINE_S", 0.1)
    mine = Board(board.path) if has_own_board else board
    with claim_lock_held(board), pytest.raises(ActorError, match="lock is held"):
        mine.claim("mine", "root")
    assert mine.claim("mine", "root") == 1
    if has_own_board:
        mine.close()


def _claim_is_refused(path: Path) -> None:
    with pytest.raises(ActorError, match="lock is held"):
        Board(path).claim("other", "root")


def test_a_reader_that_closes_the_board_does_not_release_the_claim_lock_of_its_process(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.board.CLAIM_DEADLINE_S", 0.1)
    with claim_lock_held(board):
        rows_of(board.path)
        process = multiprocessing.get_context("fork").Process(target=_claim_is_refused, args=(board.path,))
        process.start()
        process.join(60)
    assert process.exitcode == 0


def test_a_child_that_was_forked_during_a_claim_does_not_keep_the_lock(board: Board) -> None:
    with claim_lock_held(board):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
    try:
        assert board.claim("next", "root") == 1
    finally:
        child.kill()
        child.join(60)


def test_a_name_can_move_to_another_slot_while_others_read(board: Board) -> None:
    reader = Board(board.path)
    old, spare = board.claim("env", "root"), board.claim("env~spare", "root")
    assert reader.find("env") == old
    board.set(spare, name="env")
    assert reader.find("env") == old
    board.set(old, name="env~retired")
    assert reader.find("env") == spare
    assert reader.find("env~retired") == old
    assert reader.find("env~spare") is None
    reader.close()


def test_a_name_that_moves_during_the_search_is_found(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = board.claim("spare", "root"), board.claim("env", "root")
    probe = Board._probe

    def moves_meanwhile(self: Board, wanted: bytes) -> int | None:
        monkeypatch.setattr(Board, "_probe", probe)
        board.set(first, name="env")
        board.set(second, name="retired")
        return None

    reader = Board(board.path)
    monkeypatch.setattr(Board, "_probe", moves_meanwhile)
    assert reader.find("env") == first
    reader.close()


def test_a_pulse_writes_what_everybody_reads(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "pulse")
    board.claim("before", "root")
    slot = board.claim("ann", "root")
    pulse = Heartbeat(board, slot)
    pulse.beat()
    pulse.busy("a handler with a name of more than sixty-four letters, cut where its place ends")
    vitals = board.vitals(slot)
    assert vitals.beat_age_s is not None
    assert vitals.busy_s is not None
    assert vitals.handler == "a handler with a name of more than sixty-four letters, cut where"
    pulse.busy("Short")
    assert board.vitals(slot).handler == "Short"
    pulse.idle()
    assert board.vitals(slot).busy_s is None
    assert board.vitals(0).beat_age_s is None
    board.close()


def test_a_name_without_a_parent_has_a_row_as_well(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board")
    slot = board.claim("launcher", "")
    assert board.find("launcher") == slot
    board.close()


def test_a_claim_of_another_parents_name_is_checked_and_its_own_is_not(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board")
    asked: list[int] = []
    slot = board.claim("a", "left", check=asked.append)
    board.claim("a", "left", check=asked.append)
    assert asked == []
    assert board.claim("a", "right", check=asked.append) == slot
    assert asked == [slot]
    board.close()


# ---- many rows ----


def test_a_board_has_as_many_rows_as_it_was_created_with_and_every_reader_knows(tmp_path: Path) -> None:
    small = Board.create(tmp_path / "small", 3)
    for name in ("a", "b", "c"):
        small.claim(name, "root")
    with pytest.raises(ActorError, match=r"3 actors and is full.*'d'.*more rows"):
        small.claim("d", "root")
    reader = Board(tmp_path / "small")
    assert (reader.slots, [row.name for row in rows_of(small.path)]) == (3, ["a", "b", "c"])
    for board in (small, reader):
        board.close()


@pytest.mark.parametrize("slots", [0, -1, MAX_SLOTS + 1])
def test_a_board_of_no_rows_or_too_many_is_refused(tmp_path: Path, slots: int) -> None:
    with pytest.raises(ActorError, match=f"1 to 1,048,576 rows, got {slots:,}"):
        Board.create(tmp_path / "board", slots)


def test_65_536_names_are_all_found_without_a_look_at_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board.create(tmp_path / "board", 65_536)
    for number in range(65_536):
        board.claim(f"actor-{number}", "root")
    reader = Board(board.path)
    monkeypatch.setattr(Board, "_scan_for", None)
    seen: list[int] = []
    name_at = Board._name_at
    monkeypatch.setattr(Board, "_name_at", lambda self, slot: seen.append(slot) or name_at(self, slot))
    wanted = range(0, 65_536, 97)
    assert [reader.find(f"actor-{number}") for number in wanted] == list(wanted)
    assert reader.find("nobody") is None
    assert len(seen) < 10 * len(wanted), "a few rows each, however many there are"
    for one in (board, reader):
        one.close()


def test_names_that_come_and_go_on_a_full_board_are_found_and_earlier_ones_are_not(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", 8)
    for number in range(200):  # more than the index has room for
        slot = board.claim(f"session-{number}", "sessions")
        board.set_state(slot, ActorState.FREE, incarnation=1, ended_incarnation=1)
    reader = Board(board.path)
    names = {row.name for row in reader.rows()}
    assert names == {f"session-{number}" for number in range(192, 200)}
    found = {f"session-{number}" for number in range(200) if reader.find(f"session-{number}") is not None}
    assert found == names
    for one in (board, reader):
        one.close()


def test_a_free_row_is_taken_again_under_its_own_name_before_another_can_have_it(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", 1)
    slot = board.claim("a", "root")
    board.set_state(slot, ActorState.FREE, incarnation=1, ended_incarnation=1)
    assert board.claim("a", "root") == slot
    with pytest.raises(ActorError, match="is full"):
        board.claim("b", "root")
    board.close()


def test_a_row_of_a_client_goes_to_no_actor_because_its_incarnation_is_random(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", 2)
    for name, parent, incarnation in (("client", "", 2**61), ("a", "root", 1)):
        slot = board.claim(name, parent)
        board.set_state(slot, ActorState.FREE, incarnation=incarnation, ended_incarnation=incarnation)
    assert board.get(board.claim("b", "root"), "incarnation") == 1
    assert board.get(board.claim("another-client", "", incarnation=2**61 + 1), "incarnation") == 2**61
    board.close()


def test_a_row_of_another_machines_client_goes_to_no_actor(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", 1)
    slot = board.claim("client@b", "machine-b", incarnation=2**61)
    board.set_state(slot, ActorState.FREE, incarnation=2**61, ended_incarnation=2**61)
    with pytest.raises(ActorError, match="is full"):
        board.claim("x", "root")
    assert board.claim("another-client@b", "machine-b", incarnation=2**61 + 1) == slot
    board.close()


def test_a_client_leaves_the_rows_of_ended_actors_to_actors_while_it_finds_another(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", 2)
    for name, incarnation in (("a", 57), ("client", 2**61)):
        slot = board.claim(name, "root")
        board.set_state(slot, ActorState.FREE, incarnation=incarnation, ended_incarnation=incarnation)
    for number in range(3):
        slot = board.claim(f"client-{number}", "", incarnation=2**61 + number)
        board.set_state(slot, ActorState.FREE, incarnation=2**61 + number, ended_incarnation=1)
    assert board.get(board.claim("b", "root"), "incarnation") == 57
    board.close()


def test_an_index_whose_writer_was_killed_half_way_hides_no_name(board: Board) -> None:
    slots = {name: board.claim(name, "root") for name in ("a", "b", "c")}
    state = board._header + 1
    board.whole[state] += 1  # it is being written, and empty still
    for word in range(board._index, len(board.whole)):
        board.whole[word] = 0
    reader = Board(board.path)
    assert {name: reader.find(name) for name in slots} == slots
    assert reader.find("nobody") is None
    board.claim("d", "root")
    assert board.whole[state] % 2 == 0, "the next claim has written it anew"
    again = Board(board.path)
    assert {name: again.find(name) for name in slots} == slots
    for one in (reader, again):
        one.close()


def test_every_new_name_parent_or_rename_counts_as_a_change(board: Board) -> None:
    before = board.changes
    slot = board.claim("a", "root")
    board.claim("a", "root")
    assert board.changes == before + 1
    board.claim("a", "pool")
    board.set(slot, name="b")
    board.set(slot, ready=1)
    assert board.changes == before + 3


def test_random_bytes_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "board"
    path.write_bytes(random.Random(0).randbytes(size_bytes(SLOTS)))
    assert rows_of(path) == []


@pytest.mark.parametrize("left", [b"", b"x" * 1000, bytes(SLOTS * SLOT_BYTES), bytes(size_bytes(9) + 8)])
def test_a_file_of_another_size_is_no_board(tmp_path: Path, left: bytes) -> None:
    assert rows_of(tmp_path / "none") == []
    path = tmp_path / "board"
    path.write_bytes(left)
    assert rows_of(path) == []
    with pytest.raises(ActorError, match="is not a board of actors"):
        Board(path)


def test_a_damaged_row_is_left_out_and_the_others_stay(board: Board) -> None:
    slots = [board.claim(name, "root") for name in ("env-000", "env-001", "env-002", "env-003")]
    board.set(slots[0], state=77)
    board.set(slots[1], started_unix_s=math.nan)
    board.set(slots[2], retry_unix_s=math.inf)  # waits until it is called for
    assert [row.name for row in board.rows()] == ["env-002", "env-003"]


def test_what_a_board_said_last_can_be_read_when_its_file_is_let_go(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board")
    slot = board.claim("a", "root")
    board.set(slot, pid=7, last_reason="it was enough")
    board.detach()
    assert (board.find("a"), board.vitals(slot).last_reason, board.get(slot, "pid")) == (
        slot,
        "it was enough",
        7,
    )
    assert [row.name for row in board.rows()] == ["a"]
    targets = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    assert board.path not in targets
    board.close()


def test_an_exit_code_is_the_runtimes_own_only_when_it_said_so(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board")
    slot = board.claim("a", "root")
    assert board.own_exit(slot) is None
    board.note_own_exit(slot, 0)
    assert board.own_exit(slot) == 0
    board.close()


def test_a_client_has_a_row_though_its_incarnation_is_drawn_at_random(board: Board) -> None:
    slot = board.claim("console", "")
    board.set_state(slot, ActorState.RUNNING, incarnation=2**62 - 1)
    assert [row.name for row in board.rows()] == ["console"]


def test_the_rows_behind_a_bridge_are_found_among_all_rows(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", 8)
    for name, route in (("bridge", 0), ("there@b", 1), ("here", 0), ("yonder@c", 1), ("other@d", 3)):
        board.set(board.claim(name, "root"), route=route)
    assert list(board.slots_behind(0)) == [1, 3]
    board.close()
