"""Frames: what goes in comes out, and nothing else is ever decoded."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import msgpack
import msgspec
import pytest
from msgspec.structs import replace

from actors.codec import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    SIGNATURE_BYTES,
    Envelope,
    MessageKind,
    UndecodedMessage,
    _signature,
    decode,
    encode,
    message,
)
from actors.errors import MalformedMessage, MessageTooLarge, Unauthenticated

KEY = b"k" * 32


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    y: float


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    text: str
    data: bytes
    number: int
    share: float
    is_on: bool
    colour: Colour
    level: Level
    point: Point
    points: tuple[Point, ...]
    pair: tuple[int, str]
    names: list[str]
    by_name: Mapping[str, Point]
    by_number: Mapping[int, float]
    nothing: Point | None
    maybe: Point | None


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistered:
    text: str


EVERYTHING = Everything(
    text="grüße",
    data=b"\x00\xff",
    number=-(2**40),
    share=0.1,
    is_on=True,
    colour=Colour.RED,
    level=Level.HIGH,
    point=Point(x=1, y=2.5),
    points=(Point(x=1, y=2.0), Point(x=3, y=4.0)),
    pair=(7, "seven"),
    names=["a", "b"],
    by_name={"p": Point(x=5, y=6.0)},
    by_number={3: 0.5},
    nothing=None,
    maybe=Point(x=9, y=9.0),
)


def envelope(content: Any = Text(text="hello"), kind: MessageKind = MessageKind.ASK) -> Envelope:
    return Envelope(
        kind=kind,
        id=2**40,
        to="curator",
        to_incarnation=3,
        sender="env-007",
        sender_incarnation=12,
        deadline_unix_ms=1_700_000_000_000,
        message=content,
    )


def signed(body: bytes, key: bytes = KEY) -> bytes:
    return _signature(body, key) + body


def header(**changes: Any) -> list[Any]:
    fields: dict[str, Any] = {
        "version": PROTOCOL_VERSION,
        "kind": 0,
        "id": 1,
        "to": "a",
        "to_incarnation": 0,
        "sender": "b",
        "sender_incarnation": 1,
        "sequence": 1,
        "deadline": 0,
        "name": None,
        "payload": None,
    }
    return list((fields | changes).values())


@pytest.mark.parametrize("kind", list(MessageKind))
def test_every_kind_of_envelope_comes_back_as_it_was(kind: MessageKind) -> None:
    assert decode(encode(envelope(kind=kind), KEY), KEY) == envelope(kind=kind)


def test_a_message_with_every_type_we_use_comes_back_equal_and_typed() -> None:
    back = decode(encode(envelope(EVERYTHING), KEY), KEY).message
    assert back == EVERYTHING
    assert type(back.points) is tuple
    assert type(back.pair) is tuple
    assert type(back.colour) is Colour
    assert type(back.level) is Level
    assert type(back.by_name["p"]) is Point


def test_an_answer_may_be_nothing() -> None:
    assert decode(encode(envelope(None, MessageKind.REPLY), KEY), KEY).message is None


def test_a_class_that_is_no_message_is_refused_where_it_is_sent() -> None:
    with pytest.raises(TypeError, match="@message"):
        encode(envelope(Unregistered(text="x")), KEY)


def test_only_a_dataclass_can_be_a_message() -> None:
    with pytest.raises(TypeError, match="dataclass"):
        message(dict)


def test_what_is_too_large_for_mail_is_refused_with_a_way_out() -> None:
    with pytest.raises(MessageTooLarge, match=r"'curator' has \d+ bytes.*send its path"):
        encode(envelope(Text(text="x" * MAX_MESSAGE_BYTES)), KEY)


def test_a_message_just_within_the_limit_is_carried() -> None:
    content = Text(text="x" * (MAX_MESSAGE_BYTES - 300))
    assert decode(encode(envelope(content), KEY), KEY).message == content


def test_another_key_is_not_believed() -> None:
    with pytest.raises(Unauthenticated):
        decode(encode(envelope(), b"o" * 32), KEY)


@pytest.mark.parametrize("place", [0, SIGNATURE_BYTES - 1, SIGNATURE_BYTES, -1])
def test_one_changed_byte_anywhere_is_noticed(place: int) -> None:
    frame = bytearray(encode(envelope(), KEY))
    frame[place] ^= 1
    with pytest.raises(Unauthenticated):
        decode(bytes(frame), KEY)


@pytest.mark.parametrize("frame", [b"", b"x", b"x" * SIGNATURE_BYTES, b"x" * 5000])
def test_garbage_is_not_believed(frame: bytes) -> None:
    with pytest.raises(Unauthenticated):
        decode(frame, KEY)


def test_what_is_not_signed_is_not_even_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("unpacked before it was authenticated")

    monkeypatch.setattr("actors.codec._decode_frame", never)
    with pytest.raises(Unauthenticated):
        decode(signed(msgpack.packb(header()), b"o" * 32), KEY)


MALFORMED: dict[str, bytes] = {
    "no msgpack": b"\xc1",
    "nothing": b"",
    "trailing bytes": msgpack.packb(header()) + b"\x00",
    "not a list": msgpack.packb({"kind": 0}),
    "too few fields": msgpack.packb(header()[:-1]),
    "another version": msgpack.packb(header(version=99)),
    "a kind that does not exist": msgpack.packb(header(kind=99)),
    "a kind of another type": msgpack.packb(header(kind="tell")),
    "an id that is text": msgpack.packb(header(id="1")),
    "a receiver that is a number": msgpack.packb(header(to=5)),
    "a deadline that is nothing": msgpack.packb(header(deadline=None)),
    "a name that is a list": msgpack.packb(header(name=["os.system"])),
    "text that is no text": msgpack.packb(header(to=b"\xff")).replace(b"\xc4\x01\xff", b"\xa1\xff"),
    "a list too deep": b"\x91" * 2000 + b"\xc0",
    "more than mail carries": msgpack.packb(header(to="x" * MAX_MESSAGE_BYTES)),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_signed_frame_that_is_no_message_of_ours_is_malformed_and_no_crash(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(signed(body), KEY)


NOT_UNDERSTOOD: dict[str, bytes] = {
    "an unknown message": msgpack.packb(header(name="os.system", payload="true")),
    "a class that is no message": msgpack.packb(header(name=f"{__name__}.Unregistered", payload={})),
    "a payload that is no map": msgpack.packb(header(name=f"{__name__}.Text", payload=[1])),
    "a missing field": msgpack.packb(header(name=f"{__name__}.Text", payload={})),
    "a field of another type": msgpack.packb(header(name=f"{__name__}.Text", payload={"text": 5})),
    "a payload too deep": msgpack.packb(header(name=f"{__name__}.Text"))[:-1] + b"\x91" * 60_000 + b"\xc0",
    "text in the payload that is no text": msgpack.packb(
        header(name=f"{__name__}.Text", payload={"text": b"\xff"})
    ).replace(b"\xc4\x01\xff", b"\xa1\xff"),
}


@pytest.mark.parametrize("body", NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD.keys())
def test_a_message_that_is_not_understood_stays_sealed_and_its_sender_is_known(body: bytes) -> None:
    back = decode(signed(body), KEY)
    assert isinstance(back.message, UndecodedMessage)
    assert back.message.why
    assert back.sender == "b"


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Undecidable:
    data: "str | bytes"


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolvable:
    shape: "Square | None"  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            Undecidable(data="x"),
            "Undecidable has a field that no message can carry: .*more than one str-like",
        ),
        (
            Unresolvable(shape=None),
            "Unresolvable has a field that no message can carry: name 'Square' is not",
        ),
    ],
)
def test_a_message_whose_fields_cannot_be_told_apart_or_found_is_refused_and_no_crash(
    content: Any, why: str
) -> None:
    back = decode(encode(envelope(content), KEY), KEY)
    assert isinstance(back.message, UndecodedMessage)
    assert re.search(why, back.message.why)


def test_a_value_of_another_librarys_type_is_refused_where_it_is_sent_with_the_messages_name() -> None:
    with pytest.raises(TypeError, match=r"Text cannot be packed: .*object.* is unsupported"):
        encode(envelope(Text(text=object())), KEY)  # type: ignore[arg-type]


def test_why_a_message_is_not_understood_names_the_field() -> None:
    body = msgpack.packb(header(name=f"{__name__}.Text", payload={"text": 5}))
    why = decode(signed(body), KEY).message.why
    assert "Text" in why
    assert "$.text" in why


def test_mail_for_another_stays_sealed_and_can_be_sent_on_unchanged() -> None:
    frame = encode(envelope(EVERYTHING), KEY)
    back = decode(frame, KEY, is_mine="bridge".__eq__)
    assert isinstance(back.message, UndecodedMessage)
    assert back.message.why == ""
    assert encode(back, KEY) == frame
    assert decode(frame, KEY, is_mine="curator".__eq__).message == EVERYTHING


def test_a_struct_can_be_a_message_too() -> None:
    @message
    class Quick(msgspec.Struct, frozen=True):
        text: str

    assert decode(encode(envelope(Quick("x")), KEY), KEY).message == Quick("x")


def test_a_field_a_newer_sender_added_is_ignored() -> None:
    body = msgpack.packb(header(name=f"{__name__}.Text", payload={"text": "x", "new": 1}))
    assert decode(signed(body), KEY).message == Text(text="x")


CHANGES: list[Callable[[Envelope], Envelope]] = [
    lambda e: replace(e, id=0),
    lambda e: replace(e, to_incarnation=0),
    lambda e: replace(e, deadline_unix_ms=0),
    lambda e: replace(e, to="ü" * 32),
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_edges_of_the_header_come_back(change: Callable[[Envelope], Envelope]) -> None:
    assert decode(encode(change(envelope()), KEY), KEY) == change(envelope())


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Deep:
    value: Any


def test_who_asked_is_known_though_what_was_asked_is_nested_too_deep_to_be_passed_over() -> None:
    value: Any = 0
    for _ in range(900):
        value = [value]
    frame = encode(envelope(Deep(value=value)), KEY)

    def decode_below(levels: int) -> Envelope:
        return decode(frame, KEY) if levels == 0 else decode_below(levels - 1)

    decoded = decode_below(150)
    assert (decoded.sender, decoded.id) == (envelope().sender, envelope().id)
    # Whether so deep a value can be decoded there depends on the version of Python.
    assert isinstance(decoded.message, Deep) or "Deep is not understood" in decoded.message.why
