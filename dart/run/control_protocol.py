"""The protocol of the control socket: one request and one answer per connection, in msgpack.

A frame is one packet of at most MAX_FRAME_BYTES. A request is a map whose `do` names the command. A frame
with a key that is unknown, missing or of another type is refused. No frame can name a class to create.
"""

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from dart.core.errors import UsageError

MAX_FRAME_BYTES = 16 * 1024

MAX_WAIT_MS = 600_000
"""Longest wait for an answer; work that is not done by then continues."""

QUICK_MS = 400
"""Longest wait for an answer if the operator gives no `--wait`."""

NAME_MOST = 64

Name = Annotated[str, Meta(min_length=1, max_length=NAME_MOST)]
WaitMs = Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)]


class Malformed(Exception):
    """The received bytes are no frame of this protocol; the message says why."""


class ControlRequest(Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """The fields that every request has."""

    wait_ms: WaitMs = QUICK_MS
    """Longest time until the answer, which may be that the work is under way."""


class Ping(ControlRequest, tag="ping", frozen=True, kw_only=True):
    """Make a round trip through the mailbox of the root supervisor."""


class RestartActor(ControlRequest, tag="restart", frozen=True, kw_only=True):
    """Have the supervisor of an actor end it and start it again."""

    name: Name


class StopActor(ControlRequest, tag="stop", frozen=True, kw_only=True):
    """Have the supervisor of an actor end it; it stays down until it is restarted."""

    name: Name


class ReleaseActor(ControlRequest, tag="release", frozen=True, kw_only=True):
    """End the quarantine or the backoff of one actor now."""

    name: Name


class Pause(ControlRequest, tag="pause", frozen=True, kw_only=True):
    """Begin no new episode and no new update; those that run continue to their end."""


class Resume(ControlRequest, tag="resume", frozen=True, kw_only=True):
    """Begin episodes and updates again."""


class Drain(ControlRequest, tag="drain", frozen=True, kw_only=True):
    """Pause, and answer when no episode and no update is running any more."""


PoolSize = Annotated[int, Meta(ge=1, le=1000)]


class Scale(ControlRequest, tag="scale", frozen=True, kw_only=True):
    """Change the number of environments, of engines, or of both."""

    environments: PoolSize | None = None
    rollouts: PoolSize | None = None


class Reload(ControlRequest, tag="reload", frozen=True, kw_only=True):
    """Read the configuration again and apply what can change in a running run."""


Request = Ping | RestartActor | StopActor | ReleaseActor | Pause | Resume | Drain | Scale | Reload


def request_of(do: str, **fields: str | int) -> Request:
    """Make a request. Raises UsageError for an unknown command, and for fields that do not fit it."""
    try:
        request: Request = msgspec.convert({"do": do, **fields}, Request)
    except msgspec.ValidationError as error:
        raise UsageError(f"{do}: {error}") from error
    return request


class ControlOutcome(StrEnum):
    """What became of a request."""

    DONE = "done"
    UNDER_WAY = "under_way"
    """The request has begun and is not done yet."""
    REFUSED = "refused"
    """The request is not possible now, or it failed; it is not tried again."""
    SILENT = "silent"
    """The actor that has to carry the request out does not answer; it may still do so later."""


class ControlAnswer(Struct, frozen=True):
    """The outcome of a request, with a text for the operator."""

    outcome: ControlOutcome
    text: str


T = TypeVar("T")

_request: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answer = msgspec.msgpack.Decoder(ControlAnswer)
_encode = msgspec.msgpack.Encoder().encode


def encode(content: Request | ControlAnswer) -> bytes:
    """Encode a frame; the text of an answer that would not fit is cut."""
    frame = _encode(content)
    if len(frame) > MAX_FRAME_BYTES and isinstance(content, ControlAnswer):
        return _encode(ControlAnswer(content.outcome, content.text[: MAX_FRAME_BYTES // 8]))
    return frame


def decode_request(frame: bytes) -> Request:
    """Decode a request. Raises Malformed."""
    return _decoded(_request, frame)


def decode_answer(frame: bytes) -> ControlAnswer:
    """Decode an answer. Raises Malformed."""
    return _decoded(_answer, frame)


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", frame: bytes) -> T:
    if len(frame) > MAX_FRAME_BYTES:
        raise Malformed(f"expected a frame of at most {MAX_FRAME_BYTES} bytes, got {len(frame)}")
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(
            f"expected a request or an answer as this version of dartrl knows it: {error}"
        ) from error
