"""Messages to bytes and back: msgpack for the bytes, msgspec for the schema.

A message is a frozen dataclass (or a msgspec struct) marked with `@message`. On
the wire it is its registered name and its fields; a receiver that does not know
the name, or finds a field of another type, refuses the message with the reason.
A sender cannot make the receiver instantiate a class that is no message.

A frame is `keyed BLAKE2b(body) + body`; the body is decoded only when the
signature holds. The header is decoded apart from the message, so that the sender
is known even when its message is not understood.
"""

import sys
from collections.abc import Callable
from enum import IntEnum
from functools import cache, lru_cache
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import msgspec
from msgspec import Struct

from actors.errors import MalformedMessage, MessageTooLarge, Unauthenticated

PROTOCOL_VERSION = 2

MAX_MESSAGE_BYTES = 64 * 1024
"""Largest message. Send screenshots and weights by reference: large mail takes time at each hop."""

SIGNATURE_BYTES = 16

_PURPOSE = b"actors mail"
"""A part of each signature, so that other data signed with the run's key is not accepted as mail."""

T = TypeVar("T")

_TYPES: dict[str, type] = {}
_NAMES: dict[type, str] = {}


class MessageKind(IntEnum):
    """What a frame is for."""

    TELL = 0
    ASK = 1
    REPLY = 2
    REFUSAL = 3


class Envelope(Struct, frozen=True, kw_only=True):
    """One frame of mail, decoded."""

    kind: MessageKind
    id: int
    """Correlates a reply with its ask; unique per sender incarnation."""
    to: str
    to_incarnation: int
    """0: the actor that has the name now; another number: only that incarnation. Never 0 on the wire."""
    sender: str
    sender_incarnation: int
    deadline_unix_ms: int
    """Deadline of an ask, after which its work is not begun; 0: no deadline."""
    message: Any
    """The message; an `UndecodedMessage` when it was not decoded."""
    sequence: int = 0
    """Grows from frame to frame of one sender incarnation; given by `Mail.send`."""


class UndecodedMessage(Struct, frozen=True):
    """A message that was not decoded: for another actor, or not understood. It can be forwarded as it is."""

    name: str | None
    payload: bytes
    why: str = ""
    """Why the message was not understood; empty when decoding was not tried."""


def message(cls: type[T]) -> type[T]:
    """Register a dataclass or struct as a message; its wire name is `module.Class`."""
    if not (hasattr(cls, "__dataclass_fields__") or issubclass(cls, Struct)):
        raise TypeError(f"@message needs a dataclass, got {cls!r}; put @dataclass(frozen=True) below it")
    name = f"{module_name_of(cls)}.{cls.__qualname__}"
    _TYPES[name] = cls
    _NAMES[cls] = name
    return cls


def is_message(cls: type) -> bool:
    """Whether `@message` registered this class."""
    return cls in _NAMES


def module_name_of(cls: type) -> str:
    """The name under which another process imports a class's module; for a script, its file's name."""
    if cls.__module__ != "__main__":
        return cls.__module__
    script = sys.modules["__main__"]
    if script.__spec__ is not None:  # python -m
        return script.__spec__.name
    path = getattr(script, "__file__", None)
    return "__main__" if path in (None, "<stdin>") else Path(path).stem


def to_plain(value: Any) -> Any:
    """Return a dataclass tree as dicts, lists and scalars, which msgpack can carry; keys become text."""
    return msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)


def from_plain(data: Any, cls: type[T]) -> T:
    """Return the dataclass `cls` made from plain data, every field checked.

    Raises MalformedMessage naming the field that is wrong.
    """
    try:
        return msgspec.convert(data, cls, str_keys=True)
    except msgspec.ValidationError as error:
        raise MalformedMessage(f"{cls.__name__}: {error}") from error


class _Frame(Struct, frozen=True, array_like=True):
    """The body of a frame. Fields that a newer version of dartrl appends are ignored."""

    version: int
    kind: MessageKind
    id: int
    to: str
    to_incarnation: int
    sender: str
    sender_incarnation: int
    sequence: int
    deadline_unix_ms: int
    name: str | None
    payload: msgspec.Raw


_encode = msgspec.msgpack.Encoder().encode
_decode_frame = msgspec.msgpack.Decoder(_Frame).decode


def packed_bytes(content: Any) -> int:
    """The number of bytes that a dataclass tree takes in a message."""
    return len(_encode(content))


def encode(envelope: Envelope, key: bytes) -> bytes:
    """Pack and sign one envelope.

    Raises MessageTooLarge, and TypeError for content that is not a message or cannot be packed.
    """
    content = envelope.message
    if type(content) is UndecodedMessage:
        name, content = content.name, msgspec.Raw(content.payload)
    else:
        name = _NAMES.get(type(content))
        if name is None and content is not None:
            raise TypeError(f"{type(content)!r} is not a message; mark its dataclass with @message")
    body = _packed(envelope, name, content)
    if len(body) > MAX_MESSAGE_BYTES:
        raise MessageTooLarge(
            f"{name} to {envelope.to!r} has {len(body)} bytes, mail carries at most {MAX_MESSAGE_BYTES}; "
            "write the data to a file and send its path"
        )
    return _signature(body, key) + body


def _packed(envelope: Envelope, name: str | None, content: Any) -> bytes:
    try:
        return _encode(
            (
                PROTOCOL_VERSION,
                envelope.kind,
                envelope.id,
                envelope.to,
                envelope.to_incarnation,
                envelope.sender,
                envelope.sender_incarnation,
                envelope.sequence,
                envelope.deadline_unix_ms,
                name,
                content,
            )
        )
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise TypeError(f"{name} cannot be packed: {error}") from error


def decode(frame: bytes, key: bytes, is_mine: Callable[[str], bool] | None = None) -> Envelope:
    """Check the signature, then unpack.

    The message is left as `UndecodedMessage` if it is not understood, or if `is_mine` returns False for the
    receiver's name.

    Raises Unauthenticated, or MalformedMessage when not even the header is understood.
    """
    signature, body = frame[:SIGNATURE_BYTES], memoryview(frame)[SIGNATURE_BYTES:]
    if not compare_digest(_signature(body, key), signature):
        raise Unauthenticated(f"frame of {len(frame)} bytes is not signed with this run's key")
    header = _header(body)
    is_foreign = is_mine is not None and not is_mine(header.to)
    return Envelope(
        kind=header.kind,
        id=header.id,
        to=header.to,
        to_incarnation=header.to_incarnation,
        sender=header.sender,
        sender_incarnation=header.sender_incarnation,
        deadline_unix_ms=header.deadline_unix_ms,
        message=UndecodedMessage(header.name, bytes(header.payload)) if is_foreign else _opened(header),
        sequence=header.sequence,
    )


def _signature(body: bytes | memoryview, key: bytes) -> bytes:
    signature = _keyed(key).copy()
    signature.update(body)
    return signature.digest()


@lru_cache(maxsize=4)
def _keyed(key: bytes) -> blake2b:
    """A hash that has the key already absorbed, which halves the cost of signing a short frame."""
    return blake2b(key=key, digest_size=SIGNATURE_BYTES, person=_PURPOSE)


def _header(body: memoryview) -> _Frame:
    if len(body) > MAX_MESSAGE_BYTES:
        raise MalformedMessage(f"body has {len(body)} bytes, mail carries at most {MAX_MESSAGE_BYTES}")
    try:
        header = _decode_frame(body)
    except RecursionError:
        header = _header_alone(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedMessage(
            f"a frame of mail is no envelope of protocol version {PROTOCOL_VERSION}: {error}"
        ) from error
    if header.version != PROTOCOL_VERSION:
        raise MalformedMessage(
            f"a frame of mail has protocol version {header.version}, expected {PROTOCOL_VERSION}"
        )
    return header


def _header_alone(body: memoryview) -> _Frame:
    """The header of a frame whose message is nested too deep to be skipped: its sender gets a refusal."""
    fields = len(_Frame.__struct_fields__)
    unpacker = msgpack.Unpacker()
    unpacker.feed(body)
    try:
        if unpacker.read_array_header() < fields:
            raise MalformedMessage("a frame of mail is no envelope: it has too few fields")
        header = [unpacker.unpack() for _ in range(fields - 1)]
        payload = msgspec.Raw(body[unpacker.tell() :])
        return msgspec.convert([*header, payload], _Frame)
    except (ValueError, msgpack.UnpackException, msgspec.MsgspecError) as error:
        raise MalformedMessage(
            f"a frame of mail is no envelope of protocol version {PROTOCOL_VERSION}: {error}"
        ) from error


def _opened(header: _Frame) -> Any:
    """The message itself, or `UndecodedMessage` with the reason."""
    if header.name is None:
        return None
    try:
        return _decoder(header.name).decode(header.payload)
    except MalformedMessage as error:
        why = str(error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = f"{header.name} is not understood: {error}"
    return UndecodedMessage(header.name, bytes(header.payload), why)


@cache
def _decoder(name: str) -> msgspec.msgpack.Decoder[Any]:
    cls = _TYPES.get(name)
    if cls is None:
        raise MalformedMessage(f"unknown message type {name!r}; the receiver has not imported its module")
    try:
        return msgspec.msgpack.Decoder(cls)
    except (TypeError, NameError) as error:  # such as the union `str | bytes`
        raise MalformedMessage(f"{name} has a field that no message can carry: {error}") from error
