"""Clients come and go, and leave no row behind."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from actors.board import LAUNCHER, MAX_PLACED_INCARNATION, ActorState, Board
from actors.client import Client
from actors.errors import ActorError
from actors.scratch import scratch_folder
from actors.testing import KEY


@pytest.fixture
def board() -> Iterator[Board]:
    """A board of four rows, in a folder whose path is short enough for sockets."""
    with scratch_folder(40) as folder, closing(Board.create(folder / "board", 4)) as board:
        yield board


def client(board: Board, name: str, incarnation: int | None = None) -> Client:
    return Client(board, board.path.parent, KEY, name=name, incarnation=incarnation)


def test_more_clients_than_the_board_has_rows_come_and_go(board: Board) -> None:
    for number in range(10):
        client(board, f"request-{number}").close()
    assert {row.state for row in board.rows()} == {ActorState.FREE}


def test_clients_with_many_names_leave_rows_to_actors(board: Board) -> None:
    for number in range(10):
        client(board, f"request-{number}").close()
    assert [board.find(name) for name in ("request-8", "request-9")] == [None, 0]
    assert [board.claim(name, "root") for name in "abc"] == [1, 2, 3]


def test_a_client_reads_no_row_that_never_had_a_name(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    board.claim("a", "root")
    state, read = board.state, set[int]()
    monkeypatch.setattr(board, "state", lambda slot: (read.add(slot), state(slot))[1])
    client(board, "request").close()
    assert read <= {0, 1}


def test_a_client_never_takes_the_row_of_an_actor_that_got_its_name_first(board: Board) -> None:
    slot = board.claim("a", "root")
    with pytest.raises(ActorError, match="the name 'a' is in use"):
        client(board, "a")
    assert (board.get(slot, "parent"), board.state(slot)) == ("root", ActorState.STARTING)


def test_a_client_takes_the_row_of_an_ended_actor_where_there_is_no_other() -> None:
    with scratch_folder(40) as folder, closing(Board.create(folder / "board", 1)) as full:
        slot = full.claim("a", "root")
        full.set_state(slot, ActorState.FREE, incarnation=57, ended_incarnation=57)
        client(full, "c").close()
        assert full.find("c") == slot


def test_no_incarnation_of_a_client_can_be_that_of_an_actor(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.randbits", lambda _: 0)
    client(board, "request").close()
    row = board.row("request")
    assert row is not None
    assert row.incarnation > MAX_PLACED_INCARNATION


def test_a_client_ends_normally_for_those_who_monitor_it(board: Board) -> None:
    client(board, "request", 7).close()
    slot = board.find("request")
    assert slot is not None
    assert (board.get(slot, "ended_incarnation"), board.get(slot, "ended_reason")) == (7, "normal")


def test_the_launcher_keeps_its_row(board: Board) -> None:
    client(board, LAUNCHER).close()
    assert [(row.name, row.state) for row in board.rows()] == [(LAUNCHER, ActorState.STOPPED)]
