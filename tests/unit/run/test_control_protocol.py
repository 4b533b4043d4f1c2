"""What may be said over the control socket, and what is refused."""

import msgspec
import pytest

from dart.run.control_protocol import (
    MAX_FRAME_BYTES,
    ControlAnswer,
    ControlOutcome,
    Drain,
    Malformed,
    Pause,
    Ping,
    ReleaseActor,
    Request,
    RestartActor,
    Resume,
    Scale,
    StopActor,
    decode_answer,
    decode_request,
    encode,
)


@pytest.mark.parametrize(
    "request_",
    [
        Ping(),
        RestartActor(name="env-003", wait_ms=5000),
        StopActor(name="env-003"),
        ReleaseActor(name="env-003"),
        Pause(),
        Resume(),
        Drain(wait_ms=600_000),
        Scale(environments=24),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_arrives_as_it_was_sent(request_: Request) -> None:
    assert decode_request(encode(request_)) == request_


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"do": "explode"}, "explode"),
        ({"name": "env-003"}, "do"),
        ({"do": "restart"}, "name"),
        ({"do": "restart", "name": ""}, "length"),
        ({"do": "restart", "name": "x" * 65}, "length"),
        ({"do": "restart", "name": 3}, "str"),
        ({"do": "restart", "name": "a", "as": "root"}, "as"),
        ({"do": "scale", "environments": 0}, "1"),
        ({"do": "scale", "environments": 1001}, "1000"),
        ({"do": "scale", "environments": True}, "int"),
        ({"do": "pause", "wait_ms": -1}, "0"),
        ({"do": "pause", "wait_ms": 600_001}, "600000"),
        ({"do": "pause", "wait_ms": 0.5}, "int"),
        (["pause"], "object"),
        (None, "object"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_wrong(content: object, told: str) -> None:
    with pytest.raises(Malformed, match=told):
        decode_request(msgspec.msgpack.encode(content))


@pytest.mark.parametrize("frame", [b"", b"\xc1", b"\x81\xa2do", b"{}", b"\x91" * 5000, b"\xd9\x02\xff\xff"])
def test_bytes_that_are_no_msgpack_are_refused(frame: bytes) -> None:
    with pytest.raises(Malformed):
        decode_request(frame)


def test_a_frame_over_the_limit_is_not_even_unpacked() -> None:
    with pytest.raises(Malformed, match="at most"):
        decode_request(msgspec.msgpack.encode({"do": "ping", "wait_ms": 1, "x": "y" * MAX_FRAME_BYTES}))


def test_the_words_of_an_answer_are_cut_where_they_would_not_fit() -> None:
    frame = encode(ControlAnswer(ControlOutcome.REFUSED, "ü" * MAX_FRAME_BYTES))

    assert len(frame) <= MAX_FRAME_BYTES
    assert decode_answer(frame).text.startswith("üü")
