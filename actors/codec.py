"""Messages to bytes and back: msgpack for the bytes, msgspec for the schema.

A message is a frozen dataclass marked with `@message`. On the wire it is its
registered name and its fields as plain msgpack types; a receiver that does not
know the name, or finds a field of another type, refuses the message with the
reason. No class is ever instantiated because a sender said so.

A frame is `HMAC-SHA256(run key, body) + body`; the body is decoded only when
the signature holds.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from enum import IntEnum
from typing import Any, TypeVar

import msgpack
import msgspec

from actors.errors import MalformedMessage, MessageTooLarge, Unauthenticated

PROTOCOL_VERSION = 1

MAX_MESSAGE_BYTES = 64 * 1024
"""Mail is for control; screenshots and weights travel by reference (measured: large mail costs every hop)."""

SIGNATURE_BYTES = 32

T = TypeVar("T")

_TYPES: dict[str, type] = {}
_NAMES: dict[type, str] = {}


class Kind(IntEnum):
    """What a frame is for."""

    TELL = 0
    ASK = 1
    REPLY = 2
    REFUSAL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One frame of mail, decoded."""

    kind: Kind
    id: int
    """Correlates a reply with its ask; unique per sender incarnation."""
    to: str
    to_incarnation: int
    """0 addresses whoever bears the name; any other number only that incarnation."""
    sender: str
    sender_incarnation: int
    deadline_unix_ms: int
    """0 for none; an ask that is past its deadline is not worked on."""
    message: Any


def message(cls: type[T]) -> type[T]:
    """Register a frozen dataclass as a message; its wire name is `module.Class`."""
    if not is_dataclass(cls):
        raise TypeError(f"@message wants a dataclass, got {cls!r}; put @dataclass(frozen=True) below it")
    name = f"{cls.__module__}.{cls.__qualname__}"
    _TYPES[name] = cls
    _NAMES[cls] = name
    return cls


def to_plain(value: Any) -> Any:
    """A dataclass tree as dicts, lists and scalars that msgpack can carry; keys of maps become text."""
    return msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)


def from_plain(data: Any, cls: type[T]) -> T:
    """The dataclass `cls` from plain data, every field checked.

    Raises MalformedMessage naming the field that is wrong.
    """
    try:
        return msgspec.convert(data, cls, str_keys=True)
    except msgspec.ValidationError as error:
        raise MalformedMessage(f"{cls.__name__}: {error}") from error


def encode(envelope: Envelope, key: bytes) -> bytes:
    """Sign and pack one envelope. Raises MessageTooLarge, or TypeError for an unregistered message."""
    name = _NAMES.get(type(envelope.message))
    if name is None and envelope.message is not None:
        raise TypeError(f"{type(envelope.message)!r} is not a message; mark its dataclass with @message")
    payload = None if envelope.message is None else to_plain(envelope.message)
    body: bytes = msgpack.packb(
        [
            PROTOCOL_VERSION,
            int(envelope.kind),
            envelope.id,
            envelope.to,
            envelope.to_incarnation,
            envelope.sender,
            envelope.sender_incarnation,
            envelope.deadline_unix_ms,
            name,
            payload,
        ]
    )
    if len(body) > MAX_MESSAGE_BYTES:
        raise MessageTooLarge(
            f"{name} to {envelope.to!r} has {len(body)} bytes, mail carries at most {MAX_MESSAGE_BYTES}; "
            "write the data to a file and send its path"
        )
    return hmac.digest(key, body, "sha256") + body


def decode(frame: bytes, key: bytes) -> Envelope:
    """Check the signature, then unpack. Raises Unauthenticated or MalformedMessage."""
    signature, body = frame[:SIGNATURE_BYTES], frame[SIGNATURE_BYTES:]
    if not hmac.compare_digest(hmac.digest(key, body, "sha256"), signature):
        raise Unauthenticated(f"frame of {len(frame)} bytes is not signed with this run's key")
    _, kind, id_, to, to_incarnation, sender, sender_incarnation, deadline, name, payload = _unpack(body)
    return Envelope(
        kind=kind,
        id=id_,
        to=to,
        to_incarnation=to_incarnation,
        sender=sender,
        sender_incarnation=sender_incarnation,
        deadline_unix_ms=deadline,
        message=_message_of(name, payload),
    )


_Header = tuple[int, Kind, int, str, int, str, int, int, str | None, Any]
"""Version, then the fields of Envelope in order, the message as its wire name and its plain fields."""


def _unpack(body: bytes) -> _Header:
    if len(body) > MAX_MESSAGE_BYTES:
        raise MalformedMessage(f"body has {len(body)} bytes, mail carries at most {MAX_MESSAGE_BYTES}")
    try:
        header: _Header = msgspec.convert(msgpack.unpackb(body, raw=False, strict_map_key=True), _Header)
    except (ValueError, msgpack.UnpackException) as error:  # msgspec's ValidationError is a ValueError
        raise MalformedMessage(f"body is not a version {PROTOCOL_VERSION} envelope: {error}") from error
    if header[0] != PROTOCOL_VERSION:
        raise MalformedMessage(f"body is version {header[0]}, not {PROTOCOL_VERSION}")
    return header


def _message_of(name: str | None, payload: Mapping[str, Any] | None) -> Any:
    if name is None:
        return None
    cls = _TYPES.get(name)
    if cls is None:
        raise MalformedMessage(f"unknown message type {name!r}; the receiver has not imported its module")
    return from_plain(payload, cls)
