"""Frames, channels and sessions between hosts, without hosts."""

import msgspec
import pytest

from actors.errors import MalformedMessage
from actors.link import (
    LINK_VERSION,
    Activities,
    Activity,
    Again,
    Beat,
    Carry,
    ChangeLog,
    Channel,
    Frame,
    Gone,
    Hello,
    Peer,
    Peers,
    Rows,
    Session,
    Welcome,
    first_epoch,
    here,
    host_in,
    next_epoch,
    pack,
    seen_elsewhere,
    unpack,
)
from actors.link import session as opened
from tests.unit.actors.rows import row

CARRY = Carry(1, 7, "one", 3, "ask@a", 2, 900, "m.Echo", b"\x81\xa1a\x01")
ACTIVITY = Activity(3, 120, None, 5, None, 7, 0, 1, 0, "Step", "", (1, -2, 2**62, 0))


@pytest.mark.parametrize(
    "body",
    [
        Hello("b", {"gpu": 2}, 9, 1_700_000_000_000_000),
        Welcome("a", 3.0),
        Beat(),
        Gone(4, "unknown session"),
        Peers((Peer("c", 9), Peer("d", 8, "nothing was heard of it"))),
        Rows((row("one", reason="why", retry_in=1500, gauges=(1, 2, 3, 4)),)),
        Activities((ACTIVITY,)),
        Again(),
        CARRY,
    ],
)
def test_every_frame_comes_back_as_it_was(body: object) -> None:
    frame = Frame(LINK_VERSION, 5, 6, 7, body)  # type: ignore[arg-type]
    assert unpack(pack(frame)) == frame


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a valid frame"),
        (b"\xc1", "not a valid frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1, 1]), "not a valid frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1, 1, ["pickle", "x"]]), "not a valid frame"),
        (msgspec.msgpack.encode([LINK_VERSION, -1, 1, 1, ["beat"]]), "not a valid frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1, 2**63, ["beat"]]), "not a valid frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1, 1, ["hello", "b" * 65, {}, 0, 0]]), "not a valid frame"),
        (
            msgspec.msgpack.encode([LINK_VERSION, 1, 1, 1, ["hello", "b", {"gpu": -1}, 0, 0]]),
            "not a valid frame",
        ),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1, 1, ["hello", b"\xff", {}, 0, 0]]), "not a valid frame"),
        (msgspec.msgpack.encode([LINK_VERSION + 1, 1, 1, 1, ["beat"]]), "link version 3, expected 2"),
    ],
)
def test_bytes_that_are_no_frame_are_refused_with_the_reason(data: bytes, says: str) -> None:
    with pytest.raises(MalformedMessage, match=says):
        unpack(data)


def session() -> Session:
    return opened("b", 3, lease_s=3.0, now_s=0.0)


def test_a_frame_is_taken_once_and_only_in_its_session() -> None:
    sender, receiver = session(), session()
    first, second = (unpack(sender.say(Beat())) for _ in range(2))
    assert receiver.hear(first)
    assert not receiver.hear(first), "replayed"
    assert receiver.hear(second)
    assert not receiver.hear(first), "replayed late"
    for epoch in (2, 4, 0):
        assert not receiver.hear(Frame(LINK_VERSION, epoch, 3, 99, Beat())), "of another session"
        assert not receiver.hear(Frame(LINK_VERSION, 3, epoch, 99, Beat())), "for another session"
    assert receiver.refused == 8


def test_a_channel_carries_the_epochs_of_both_ends_and_a_frame_for_an_earlier_life_is_refused() -> None:
    ours, theirs = Channel("c", epoch=9, own_epoch=7), Channel("b", epoch=7, own_epoch=9)
    assert theirs.hear(unpack(ours.say(CARRY)))
    frame = unpack(ours.say(CARRY))
    assert (frame.epoch, frame.to_epoch) == (7, 9)
    assert not Channel("b", epoch=7, own_epoch=10).hear(frame), "c was connected anew since"
    assert not Channel("b", epoch=8, own_epoch=9).hear(frame), "b was connected anew since"


def test_frames_that_were_lost_on_the_way_are_counted_and_one_that_was_never_sent_is_not() -> None:
    sender, receiver = session(), session()
    sender.say(Beat())
    sender.take_back(sender.say(Beat()))
    assert receiver.hear(unpack(sender.say(Beat())))
    assert receiver.missed == 1
    assert receiver.hear(unpack(sender.say(Beat())))
    assert receiver.missed == 1


def test_silence_beyond_the_lease_is_loss() -> None:
    receiver = session()
    receiver.heard_s = 2.0
    assert not receiver.is_lost(5.0)
    assert receiver.is_lost(5.1)


def test_a_beat_is_due_a_third_of_the_lease_after_anything_was_said() -> None:
    sender = session()
    sender.said_s = 10.0
    assert not sender.is_beat_due(10.9)
    assert sender.is_beat_due(11.0)


def test_a_reader_of_a_change_log_gets_the_latest_of_what_it_does_not_know_in_order() -> None:
    log: ChangeLog[str, int] = ChangeLog()
    for key, value in (("one", 1), ("two", 2), ("one", 3)):
        log.note(key, value)
    known = log.since(0)
    assert [value for _, value in known] == [2, 3], "the first value of one is not told any more"
    assert log.since(known[-1][0]) == []
    assert [value for _, value in log.since(known[0][0])] == [3]
    log.note("three", 4)
    assert [value for _, value in log.since(known[-1][0])] == [4]
    assert (log.get("one"), log.get("four")) == (3, None)


def test_names_say_which_machine_they_are_on_unless_they_were_placed() -> None:
    assert seen_elsewhere("host", "b", is_plain=False) == "host@b"
    assert seen_elsewhere("env-1", "b", is_plain=True) == "env-1"
    assert seen_elsewhere("host@c", "a", is_plain=False) == "host@c", "passed on by the leader"
    assert (host_in("host@b"), host_in("env-1")) == ("b", "")
    assert (here("host@b", "b"), here("host@c", "b"), here("env-1", "b")) == ("host", "host@c", "env-1")


def test_an_epoch_is_above_all_that_either_side_has_seen() -> None:
    assert next_epoch() == 1
    assert next_epoch(4, 9, 2) == 10


def test_the_epochs_of_a_later_leader_are_above_all_of_an_earlier_one() -> None:
    assert first_epoch(1000.002) > first_epoch(1000.0) + 1000, "a thousand sessions in two milliseconds"


def test_time_in_which_nobody_listened_is_no_silence_up_to_a_second_lease() -> None:
    receiver = opened("b", 5, lease_s=3.0, now_s=100.0)
    receiver.forgive(2.5)
    receiver.forgive(-1.0)
    assert not receiver.is_lost(105.4)
    assert receiver.is_lost(105.6)
    receiver.forgive(1e6)
    assert not receiver.is_lost(105.9)
    assert receiver.is_lost(106.1)
