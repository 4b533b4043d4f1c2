"""What a host says that is mistaken, or a lie, harms nobody but itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.board import LIVING, ActorState, Board
from actors.bridge_messages import Export
from actors.clock import ManualClock
from actors.codec import MessageKind
from actors.directory import Directory
from actors.link import (
    LINK_VERSION,
    MAX_COUNT,
    MAX_EPOCH,
    Activities,
    Activity,
    Carry,
    Frame,
    Hello,
    Rows,
    before_session,
    pack,
)
from tests.unit.actors.machines import Machines, machines
from tests.unit.actors.rows import row
from tests.unit.actors.test_rows_of_other_hosts import Keeper

LEASE_S = 3.0
DEEP = b"\x91" * 60_000 + b"\x90"
"""msgpack that no recursive reader takes."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Machines]:
    """`c` carries a shard; `b` lies."""
    with machines(tmp_path, "b", "c", lease_s=LEASE_S, services=["store"], orders=["x.Order"]) as three:
        three.start("a", Keeper, "store")
        three.start("c", Keeper, "pool", parent="placed")
        three.start("c", Keeper, "rollout-1", parent="pool")
        three.answer("c", "bridge", Export(name="pool", placed=True))
        three.run(0.3)
        yield three


def say(three: Machines, sender: str, to: str, body: Any) -> None:
    """Have a bridge say something."""
    bridge = three.bridge(sender)
    bridge.say(bridge.channel_to(to), body)
    three.run(0.2)


def host_of(three: Machines, at: str, name: str) -> str:
    host: str = three.bridge(at).directory.host_of(name)
    return host


# ---- names of others ----


def test_a_service_of_the_leader_is_not_taken_by_a_host_that_introduces_itself_under_its_name(
    three: Machines,
) -> None:
    before = three.benches["c"].row("store").incarnation
    say(three, "b", "c", Rows((row("store", incarnation=99),)))
    assert host_of(three, "c", "store") == "a"
    assert three.benches["c"].row("store").incarnation == before


@pytest.mark.parametrize("state", [ActorState.RUNNING, ActorState.STOPPED, ActorState.FREE])
def test_a_name_that_lives_on_one_host_is_not_taken_or_ended_by_another(
    three: Machines, state: ActorState
) -> None:
    say(three, "b", "a", Rows((row("pool", incarnation=99, state=state),)))
    for host in "ab":
        assert host_of(three, host, "pool") == "c"
        assert three.benches[host].row("pool").state is ActorState.RUNNING


def test_a_name_goes_to_the_host_that_waits_for_it_once_it_has_ended_on_the_other(three: Machines) -> None:
    say(three, "b", "a", Rows((row("pool", incarnation=99),)))
    three.cables["c"].cut()
    three.run(LEASE_S + 0.3)
    assert host_of(three, "a", "pool") == "b"


@pytest.mark.parametrize("name", ["\0x", "pool\0", "n" * 63 + "ö"])
def test_a_name_that_a_board_cannot_hold_is_refused_and_hides_no_row(three: Machines, name: str) -> None:
    before = three.benches["a"].row("pool").incarnation
    say(three, "b", "a", Rows((row(name, incarnation=99),)))
    assert name not in three.bridge("a").directory._names
    assert three.benches["a"].row("pool").incarnation == before
    three.start("a", Keeper, "later")
    assert {"pool", "later"} <= {one.name for one in three.benches["a"].board.rows()}


def test_the_row_of_a_lost_host_is_not_taken_by_another(three: Machines) -> None:
    """It is written by `hosts`, which no bridge knows."""
    board = three.benches["a"].board
    slot = board.claim("machine-d", "hosts")
    board.set_state(slot, ActorState.STOPPED, incarnation=1)
    say(three, "b", "a", Rows((row("machine-d", incarnation=99),)))
    assert (board.get(slot, "parent"), board.get(slot, "route")) == ("hosts", 0)


def test_an_incarnation_after_which_no_placement_has_a_number_is_refused(three: Machines) -> None:
    say(three, "b", "a", Rows((row("env-1", incarnation=MAX_COUNT),)))
    assert host_of(three, "a", "env-1") == ""


# ---- numbers and depths ----


def test_an_age_that_no_clock_can_show_ends_no_bridge(three: Machines) -> None:
    say(three, "b", "a", Rows((row("env-1"),)))
    ages = Activity(900, MAX_COUNT, None, None, None, 0, 0, 0, 0, "", "", (0, 0, 0, 0))
    say(three, "b", "a", Activities((ages,)))
    assert three.bridge("a").malformed == 1


@pytest.mark.parametrize("changed", [{"restarts": 2**61}, {"started": 2**61}, {"retry_in": 2**61}])
def test_a_row_with_a_number_that_no_board_shows_is_not_learned(
    three: Machines, changed: dict[str, Any]
) -> None:
    say(three, "b", "a", Rows((row("env-1", **changed),)))
    assert host_of(three, "a", "env-1") == ""
    assert three.bridge("a").malformed == 1


def test_a_frame_that_is_nested_too_deep_to_be_read_is_refused(three: Machines) -> None:
    session = three.bridge("a").sessions["b"]
    beat = msgspec.msgpack.encode([LINK_VERSION, session.epoch, session.epoch, 1, ["beat"]])
    three.bridge("a").take_frame("b", b"\x96" + beat[1:] + DEEP)
    assert three.bridge("a").malformed == 1


def test_mail_that_is_nested_too_deep_to_be_read_is_refused(three: Machines) -> None:
    session = three.bridge("a").sessions["b"]
    before = session.refused
    say(three, "b", "a", Carry(int(MessageKind.TELL), 1, "store", 0, "bridge@b", 1, 0, "x.Y", DEEP))
    assert session.refused == before + 1


def test_a_host_that_saw_the_last_epoch_of_all_does_not_make_news_of_others_unreadable(
    three: Machines,
) -> None:
    three.bridge("a").take_frame("b", before_session(Hello("b", {}, MAX_COUNT, 7)))
    three.run(0.5)
    assert (three.bridge("a").malformed, three.bridge("c").malformed) == (1, 0)


def test_a_host_that_was_given_the_last_epoch_can_still_say_hello(three: Machines) -> None:
    three.bridge("a").take_frame("b", before_session(Hello("b", {}, MAX_EPOCH, 7)))
    three.run(3.0)
    assert three.bridge("a").sessions["b"].epoch > MAX_EPOCH
    three.bridge("b").agent_lost("a")
    three.run(3.0)
    assert set(three.bridge("b").sessions) == {"a"}


@pytest.mark.parametrize("host", ["h" * 25, "h\0"])
def test_a_host_whose_name_no_row_can_have_is_not_welcome(three: Machines, host: str) -> None:
    three.bridge("a").take_frame(host, before_session(Hello(host, {}, 0, 7)))
    assert host not in three.bridge("a").sessions


def test_a_frame_has_no_more_rows_than_are_soon_learned(three: Machines) -> None:
    session = three.bridge("a").sessions["b"]
    many = Rows(tuple(row(f"e-{i}", slot=i) for i in range(49)))
    frame = Frame(LINK_VERSION, session.epoch, session.epoch, session._heard + 1, many)
    three.bridge("a").take_frame("b", pack(frame))
    assert three.bridge("a").malformed == 1


# ---- orders ----


@pytest.mark.parametrize(("to", "receiver"), [("a", "store"), ("c", "pool")])
def test_an_order_is_refused_that_comes_from_a_follower(three: Machines, to: str, receiver: str) -> None:
    channel = three.bridge(to).channel_to("b")
    say(three, "b", to, Rows((row("bridge@b"),)))
    handled = three.benches[to].row(receiver).messages
    for message, refused in (("x.Order", 1), ("x.Other", 1)):  # nobody knows the other one: it is handed over
        say(three, "b", to, Carry(int(MessageKind.TELL), 1, receiver, 0, "bridge@b", 1, 0, message, b"\x80"))
        assert channel.refused == refused
    assert three.benches[to].row(receiver).messages == handled + 1


def test_an_order_of_the_leader_is_taken(three: Machines) -> None:
    handled = three.benches["c"].row("pool").messages
    say(three, "a", "c", Carry(int(MessageKind.TELL), 1, "pool", 0, "bridge@a", 1, 0, "x.Order", b"\x80"))
    assert three.benches["c"].row("pool").messages == handled + 1


# ---- rows of the board ----


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    board = Board.create(tmp_path / "board", 16)
    bridge = board.claim("bridge", "machine-a")
    yield Directory(board, "a", bridge, ManualClock())
    board.close()


def busy(slot: int) -> Activity:
    return Activity(slot, 0, None, None, None, 77, 0, 0, 0, "", "", (0, 0, 0, 0))


def test_rows_that_a_host_lets_go_of_can_be_used_again_whatever_it_says_of_their_end(
    directory: Directory,
) -> None:
    for number in range(100):
        for state in (ActorState.RUNNING, ActorState.FREE):
            told = row(f"n{number}", slot=number, state=state, ended_incarnation=0)
            assert directory.learn("b", told, speaks_for_others=False) == ""


def test_rows_of_clients_that_another_host_lets_go_of_can_be_used_again(directory: Directory) -> None:
    for number in range(100):
        for state in (ActorState.RUNNING, ActorState.FREE):
            told = row(f"client-{number}@b", slot=number, state=state, incarnation=2**61 + number)
            assert directory.learn("b", told, speaks_for_others=False) == ""


def test_no_host_and_not_all_hosts_together_fill_the_board(directory: Directory) -> None:
    for host in "bcd":
        for number in range(16):
            told = row(f"n{number}@{host}", slot=number, host=host)
            directory.learn(host, told, speaks_for_others=False)
    rows = [one.name[-1] for one in directory._board.rows() if one.state in LIVING and one.route]
    assert (rows.count("b"), len(rows)) == (12, 14)
    directory._board.claim("own", "root")


def test_news_of_a_row_that_was_let_go_of_are_not_for_the_actor_that_has_it_now(
    directory: Directory,
) -> None:
    """Two hosts told of one row: the leader, and the host of the actor itself."""
    board = directory._board
    for teller, slot in (("c", 40), ("l", 70)):
        told = row("guest@c", host="c", slot=slot)
        assert directory.learn(teller, told, speaks_for_others=teller == "l") == ""
    gone = row("guest@c", host="c", slot=70, state=ActorState.FREE, ended_incarnation=1)
    directory.learn("l", gone, speaks_for_others=True)
    for number in range(14):
        board.claim(f"own-{number}", "root")
    assert directory.learn("c", row("env-9", host="c", slot=3), speaks_for_others=False) == ""
    assert board.find("env-9") == 1, "the row that the guest had"
    directory.hear_activity("c", busy(40))
    assert board.get(1, "messages") == 0
    directory.learn("c", row("other@c", host="c", slot=40), speaks_for_others=False)
    assert (board.find("env-9"), board.state(1)) == (1, ActorState.RUNNING)


def test_a_host_that_uses_a_row_anew_does_not_end_the_actor_that_lives_elsewhere_by_now(
    directory: Directory,
) -> None:
    directory.learn("b", row("kid", slot=5), speaks_for_others=False)
    directory.learn("b", row("kid", slot=5, state=ActorState.STOPPED), speaks_for_others=False)
    directory.learn("c", row("kid", slot=8, host="c", incarnation=9 << 20), speaks_for_others=False)
    slot = directory._board.find("kid")
    assert slot is not None
    directory.hear_activity("b", busy(5))
    assert directory._board.get(slot, "messages") == 0
    directory.learn("b", row("another", slot=5), speaks_for_others=False)
    assert directory._board.state(slot) is ActorState.RUNNING


def test_what_waits_for_a_name_is_forgotten_with_the_leader(directory: Directory) -> None:
    slot = directory._board.claim("env-1", "placed")
    directory._board.set_state(slot, ActorState.RUNNING, incarnation=1)
    assert directory.learn("l", row("env-1", host="d", incarnation=2), speaks_for_others=True) == ""
    directory.forget_all("the leader is lost")
    directory._board.set_state(slot, ActorState.STOPPED)
    directory.settle()
    assert directory._board.state(slot) is ActorState.STOPPED


# ---- names of lost hosts ----


def come_and_be_lost(directory: Directory, host: str, *names: str) -> list[str]:
    """Announce names of a host, lose the host, and let some minutes pass; returns what was refused."""
    told = (row(name, slot=slot, host=host) for slot, name in enumerate(names))
    refused = [why for one in told if (why := directory.learn(host, one, speaks_for_others=False))]
    directory.forget(host, "it was taken away")
    directory._clock.advance(100.0)  # type: ignore[attr-defined]  # it is a ManualClock
    directory.settle()
    return refused


def test_names_of_hosts_that_never_return_make_room_for_new_hosts(directory: Directory) -> None:
    for number in range(100):
        host = f"spot-{number}"
        assert come_and_be_lost(directory, host, f"host@{host}", f"bridge@{host}") == []
    states = {one.name: one.state for one in directory._board.rows() if one.route}
    assert (states["host@spot-99"], states["bridge@spot-99"]) == (ActorState.STOPPED, ActorState.STOPPED)
    assert directory.host_of("host@spot-97") == ""
    assert directory.learn("b", row("host@b"), speaks_for_others=False) == ""
    assert directory.host_of("host@b") == "b"


def test_a_plain_name_of_a_lost_host_is_kept_so_that_its_late_news_are_refused(directory: Directory) -> None:
    directory.learn("b", row("env-1", incarnation=5), speaks_for_others=False)
    directory.forget("b", "it was taken away")
    for number in range(20):
        come_and_be_lost(directory, f"spot-{number}", f"host@spot-{number}")
    assert "is late" in directory.learn("c", row("env-1", host="c", incarnation=4), speaks_for_others=False)


def test_a_name_of_a_host_just_lost_is_kept_and_a_host_that_returns_has_its_names_again(
    directory: Directory,
) -> None:
    for number in range(5):
        directory.learn(f"h{number}", row(f"host@h{number}", host=f"h{number}"), speaks_for_others=False)
    for number in range(5):
        directory.forget(f"h{number}", "it was taken away")
    directory.settle()
    assert all(directory.host_of(f"host@h{number}") for number in range(5))
    directory._clock.advance(100.0)  # type: ignore[attr-defined]  # it is a ManualClock
    assert directory.learn("h0", row("host@h0", host="h0"), speaks_for_others=False) == ""
    directory.settle()
    kept = [number for number in range(5) if directory.host_of(f"host@h{number}")]
    assert kept == [0, 3, 4], "the host that is there, and those that were lost last"
