"""Frames and sessions between machines, without machines."""

import msgspec
import pytest

from actors.errors import MalformedMessage
from actors.link import (
    LINK_VERSION,
    Beat,
    Carry,
    Frame,
    Gone,
    Hello,
    Row,
    Rows,
    Session,
    Welcome,
    here,
    host_in,
    next_epoch,
    pack,
    seen_elsewhere,
    unpack,
)

CARRY = Carry(1, 7, "one", 3, "ask@a", 2, 900, "m.Echo", b"\x81\xa1a\x01")


@pytest.mark.parametrize(
    "body",
    [
        Hello("b", {"gpu": 2}, 9),
        Welcome("a", 3.0),
        Beat(),
        Gone(4, "unknown session"),
        Rows((Row("one", 4, True, False, "why"),)),
        CARRY,
    ],
)
def test_every_frame_comes_back_as_it_was(body: object) -> None:
    frame = Frame(LINK_VERSION, 5, 6, body)  # type: ignore[arg-type]
    assert unpack(pack(frame)) == frame


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no frame"),
        (b"\xc1", "no frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1]), "no frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1, ["pickle", "x"]]), "no frame"),
        (msgspec.msgpack.encode([LINK_VERSION, -1, 1, ["beat"]]), "no frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 2**63, ["beat"]]), "no frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1, ["hello", "b" * 65, {}, 0]]), "no frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1, ["hello", "b", {"gpu": -1}, 0]]), "no frame"),
        (msgspec.msgpack.encode([LINK_VERSION, 1, 1, ["hello", b"\xff", {}, 0]]), "no frame"),
        (msgspec.msgpack.encode([LINK_VERSION + 1, 1, 1, ["beat"]]), "link version 2; this side speaks 1"),
    ],
)
def test_bytes_that_are_no_frame_are_refused_with_the_reason(data: bytes, says: str) -> None:
    with pytest.raises(MalformedMessage, match=says):
        unpack(data)


def session(**fields: float) -> Session:
    return Session(host="b", epoch=3, lease_s=3.0, heard_s=0.0, **fields)  # type: ignore[arg-type]


def test_a_frame_is_taken_once_and_only_in_its_session() -> None:
    sender, receiver = session(), session()
    first, second = (unpack(sender.say(Beat(), 0.0)) for _ in range(2))
    assert receiver.hear(first, 1.0)
    assert not receiver.hear(first, 1.0), "replayed"
    assert receiver.hear(second, 1.0)
    assert not receiver.hear(first, 1.0), "replayed late"
    for epoch in (2, 4, 0):
        assert not receiver.hear(Frame(LINK_VERSION, epoch, 99, Beat()), 1.0), "of another session"
    assert receiver.refused == 5


def test_silence_beyond_the_lease_is_loss_and_what_is_refused_renews_nothing() -> None:
    receiver, sender = session(), session()
    beat = unpack(sender.say(Beat(), 0.0))
    assert receiver.hear(beat, 2.0)
    assert not receiver.hear(beat, 4.9)
    assert not receiver.is_lost(5.0)
    assert receiver.is_lost(5.1)


def test_a_beat_is_due_a_third_of_the_lease_after_anything_was_said() -> None:
    sender = session()
    sender.say(CARRY, 10.0)
    assert not sender.is_beat_due(10.9)
    assert sender.is_beat_due(11.0)


def test_only_what_changed_is_announced() -> None:
    told = session()
    one, two = Row("one", 1, True, True, ""), Row("two", 1, True, False, "")
    assert told.changes({"one": one, "two": two}) == (one, two)
    assert told.changes({"one": one, "two": two}) == (one, two), "not sent yet, so not known"
    told.announced |= {"one": one, "two": two}
    ready = msgspec.structs.replace(two, is_ready=True)
    assert told.changes({"one": one, "two": ready}) == (ready,)


def test_names_say_which_machine_they_are_on_unless_they_were_placed() -> None:
    assert seen_elsewhere("host", "b", placed=False) == "host@b"
    assert seen_elsewhere("env-1", "b", placed=True) == "env-1"
    assert seen_elsewhere("host@c", "a", placed=False) == "host@c", "passed on by the leader"
    assert (host_in("host@b"), host_in("env-1")) == ("b", "")
    assert (here("host@b", "b"), here("host@c", "b"), here("env-1", "b")) == ("host", "host@c", "env-1")


def test_an_epoch_is_above_all_that_either_side_has_seen() -> None:
    assert next_epoch() == 1
    assert next_epoch(4, 9, 2) == 10
