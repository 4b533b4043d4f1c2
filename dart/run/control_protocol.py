"""What is said over the control socket: one request and one answer for each connection, in msgpack.

A frame is one packet of at most MAX_FRAME_BYTES. A request is a map whose `do` names what is wanted; its
other keys are checked one by one, and one that is unknown, missing or of another type refuses the whole
frame. No class is made because a sender named it.
"""

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

MAX_FRAME_BYTES = 16 * 1024

MAX_WAIT_MS = 600_000
"""Nobody waits longer for an answer; what was begun goes on without them."""

QUICK_MS = 400
"""For what a person wants to know at once."""

Name = Annotated[str, Meta(min_length=1, max_length=64)]
WaitMs = Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)]


class Malformed(Exception):
    """Bytes that are no frame of this protocol; says what is wrong with them."""


class ControlRequest(Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """What every request has."""

    wait_ms: WaitMs = QUICK_MS
    """Longest until it is answered; an answer may be that it is under way."""


class Ping(ControlRequest, tag="ping", frozen=True, kw_only=True):
    """A round trip through the mailbox of the root supervisor."""


class RestartActor(ControlRequest, tag="restart", frozen=True, kw_only=True):
    """End one actor by its supervisor and start it again."""

    name: Name


class StopActor(ControlRequest, tag="stop", frozen=True, kw_only=True):
    """End one actor by its supervisor; it stays down until it is restarted."""

    name: Name


class ReleaseActor(ControlRequest, tag="release", frozen=True, kw_only=True):
    """End the quarantine or the backoff of one actor now."""

    name: Name


class Pause(ControlRequest, tag="pause", frozen=True, kw_only=True):
    """Begin no episode and no update any more; what runs goes on to its end."""


class Resume(ControlRequest, tag="resume", frozen=True, kw_only=True):
    """Begin episodes and updates again."""


class Drain(ControlRequest, tag="drain", frozen=True, kw_only=True):
    """Pause, and answer when nothing is being played or trained any more."""


class Scale(ControlRequest, tag="scale", frozen=True, kw_only=True):
    """Run so many environments from now on."""

    environments: Annotated[int, Meta(ge=1, le=1000)]


class Reload(ControlRequest, tag="reload", frozen=True, kw_only=True):
    """Read the configuration anew and change what can change while the run goes on."""


Request = Ping | RestartActor | StopActor | ReleaseActor | Pause | Resume | Drain | Scale | Reload


class ControlOutcome(StrEnum):
    """What became of a request."""

    DONE = "done"
    UNDER_WAY = "under_way"
    """It was begun and is not done yet; it goes on."""
    REFUSED = "refused"
    """It makes no sense now, or failed; nothing more happens."""
    SILENT = "silent"
    """Who has to do it does not answer; whether it will be done is not known."""


class ControlAnswer(Struct, frozen=True):
    """What became of it, in words."""

    outcome: ControlOutcome
    text: str


T = TypeVar("T")

_request: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answer = msgspec.msgpack.Decoder(ControlAnswer)
_encode = msgspec.msgpack.Encoder().encode


def encode(content: Request | ControlAnswer) -> bytes:
    """One frame; the words of an answer that would not fit are cut."""
    frame = _encode(content)
    if len(frame) > MAX_FRAME_BYTES and isinstance(content, ControlAnswer):
        return _encode(ControlAnswer(content.outcome, content.text[: MAX_FRAME_BYTES // 8]))
    return frame


def decode_request(frame: bytes) -> Request:
    """Raises Malformed."""
    return _decoded(_request, frame)


def decode_answer(frame: bytes) -> ControlAnswer:
    """Raises Malformed."""
    return _decoded(_answer, frame)


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", frame: bytes) -> T:
    if len(frame) > MAX_FRAME_BYTES:
        raise Malformed(f"a frame has at most {MAX_FRAME_BYTES} bytes")
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"no request or answer of this version: {error}") from error
