"""Whatever is sent to the control socket is a request that was meant, or is refused in words."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dart.run.control_protocol import MAX_FRAME_BYTES, Malformed, Request, decode_request, encode
from tests.examples import examples

NAMES = ("do", "name", "wait_ms", "environments", "x")
VERBS = ("ping", "restart", "stop", "release", "pause", "resume", "drain", "scale", "", "exec")

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
maps = st.dictionaries(st.sampled_from(NAMES), plain | st.sampled_from(VERBS), max_size=5)


def decoded(frame: bytes) -> Request | None:
    """The request, or None when it is refused; anything else than a refusal is a defect."""
    try:
        return decode_request(frame)
    except Malformed:
        return None


@settings(max_examples=examples(400), deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    assert decoded(noise) is None


@settings(max_examples=examples(400), deadline=None)
@given(maps.map(msgspec.msgpack.encode) | plain.map(msgspec.msgpack.encode))
def test_a_map_is_a_request_only_with_every_field_in_its_bounds(frame: bytes) -> None:
    request: Any = decoded(frame)
    if request is None:
        return
    assert decode_request(encode(request)) == request
    assert 0 <= request.wait_ms <= 600_000
    assert 0 < len(getattr(request, "name", "a")) <= 64
    for counted in ("environments", "rollouts"):
        count = getattr(request, counted, None)
        assert count is None or 1 <= count <= 1000


@settings(max_examples=examples(400), deadline=None)
@given(maps.map(msgspec.msgpack.encode), st.data())
def test_a_frame_that_was_cut_or_damaged_is_no_defect(frame: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(frame) - 1))
    assert decoded(frame[:place]) is None
    decoded(frame[:place] + bytes([data.draw(st.integers(0, 255))]) + frame[place + 1 :])
    assert decoded(frame + b"\0" * data.draw(st.sampled_from([1, MAX_FRAME_BYTES]))) is None
