"""The protocol of the control socket: one request and one answer per connection, in msgpack.

A frame is one packet of at most MAX_FRAME_BYTES. A request is a map whose key `do` names the command. A frame
is refused if a key is unknown or missing, or a value has the wrong type. No frame can name a class to create.
"""

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from dart.core.errors import UsageError
from dart.core.types import ACTORS_MOST

MAX_FRAME_BYTES = 16 * 1024

MAX_WAIT_MS = 600_000
"""Largest `wait_ms` that a request may have."""

QUICK_MS = 400
"""The `wait_ms` of a request if the operator gives no `--wait`."""

NAME_MOST = 64

Name = Annotated[str, Meta(min_length=1, max_length=NAME_MOST)]
WaitMs = Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)]


class Malformed(Exception):
    """The received bytes are not a frame of this protocol; the message says why."""


class ControlRequest(Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """The fields that every request has."""

    wait_ms: WaitMs = QUICK_MS
    """Milliseconds after which the answer comes at the latest. Work that is not done by then continues, and
    the outcome is `UNDER_WAY`."""


class Ping(ControlRequest, tag="ping", frozen=True, kw_only=True):
    """Ask the root supervisor for an answer, to see whether it works."""


class RestartActor(ControlRequest, tag="restart", frozen=True, kw_only=True):
    """Have an actor ended and started again by its supervisor."""

    name: Name


class StopActor(ControlRequest, tag="stop", frozen=True, kw_only=True):
    """Have an actor ended by its supervisor. The actor stays down until a `RestartActor`."""

    name: Name


class ReleaseActor(ControlRequest, tag="release", frozen=True, kw_only=True):
    """Start an actor at once instead of after its quarantine or backoff, and forget its failures."""

    name: Name


class Pause(ControlRequest, tag="pause", frozen=True, kw_only=True):
    """Begin no new episode and no new update; those in progress continue to their end."""


class Resume(ControlRequest, tag="resume", frozen=True, kw_only=True):
    """Begin new episodes and updates again, after a `Pause` or `Drain`."""


class Drain(ControlRequest, tag="drain", frozen=True, kw_only=True):
    """Begin no new episode and no new update, and answer when none is in progress any more."""


PoolSize = Annotated[int, Meta(ge=1, le=ACTORS_MOST)]


class Scale(ControlRequest, tag="scale", frozen=True, kw_only=True):
    """Change the number of environments, of engines (`rollouts`), or both. None leaves a number as it is."""

    environments: PoolSize | None = None
    rollouts: PoolSize | None = None


class Reload(ControlRequest, tag="reload", frozen=True, kw_only=True):
    """Read the configuration again and apply the keys that can change while the run runs."""


Request = Ping | RestartActor | StopActor | ReleaseActor | Pause | Resume | Drain | Scale | Reload


def request_of(do: str, **fields: str | int) -> Request:
    """Make the request of a command. Raises UsageError if the command is unknown or a field does not fit."""
    try:
        request: Request = msgspec.convert({"do": do, **fields}, Request)
    except msgspec.ValidationError as error:
        raise UsageError(f"{do}: {error}") from error
    return request


class ControlOutcome(StrEnum):
    """What became of a request."""

    DONE = "done"
    UNDER_WAY = "under_way"
    """The request has begun, is not done yet, and continues."""
    REFUSED = "refused"
    """The request is not possible now, or it failed. dartrl does not try it again."""
    SILENT = "silent"
    """The actor that has to carry the request out does not answer. It may still carry the request out
    later."""


class ControlAnswer(Struct, frozen=True):
    """The outcome of a request, with a text for the operator."""

    outcome: ControlOutcome
    text: str


T = TypeVar("T")

_request: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answer = msgspec.msgpack.Decoder(ControlAnswer)
_encode = msgspec.msgpack.Encoder().encode


def encode(content: Request | ControlAnswer) -> bytes:
    """Encode a frame. The text of an answer is cut if the frame would be too long."""
    frame = _encode(content)
    if len(frame) > MAX_FRAME_BYTES and isinstance(content, ControlAnswer):
        return _encode(ControlAnswer(content.outcome, content.text[: MAX_FRAME_BYTES // 8]))
    return frame


def decode_request(frame: bytes) -> Request:
    """Decode a request. Raises Malformed if the frame is not one."""
    return _decoded(_request, frame)


def decode_answer(frame: bytes) -> ControlAnswer:
    """Decode an answer. Raises Malformed if the frame is not one."""
    return _decoded(_answer, frame)


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", frame: bytes) -> T:
    if len(frame) > MAX_FRAME_BYTES:
        raise Malformed(f"expected a frame of at most {MAX_FRAME_BYTES} bytes, got {len(frame)}")
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(
            f"expected a request or an answer that this version of dartrl knows: {error}"
        ) from error
