"""What two machines say to each other, and when one counts as lost: frames, names, sessions. Pure.

A frame is msgpack checked against a schema: `[version, epoch, number, body]`. The epoch names one session
of one host; it grows with every connection, so that whatever belongs to an earlier session is told apart
and refused. The number grows with every frame of a session and direction, so that no frame is taken twice.
Secrecy and identity are the transport's (`actors.curve`); nothing here trusts a host name because a frame
says so.

A name of another machine is seen as `name@host`. An actor that was placed (`supervision.hosts`) is seen
under its plain name everywhere, because whoever writes to it must not care where it runs.
"""

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from actors.errors import LinkNotAllowed, MalformedMessage

LINK_VERSION = 1

LEASE_S = 3.0
"""Silence after which the other side counts as lost."""

BEATS_PER_LEASE = 3
"""Two lost beats are forgiven."""

MAX_NAMES_PER_HOST = 256
"""Names one host may make known here: the board is shared with everybody else's."""

MAX_NAME_BYTES = 64
"""As on the board."""

MAX_HOST_BYTES = 24
"""Leaves 39 for the actor in `name@host`."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=400)]
MAX_COUNT = 2**62 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """From a follower that opens a session: who it is, what it can carry, what it saw last."""

    host: Name
    capabilities: Annotated[dict[Name, Count], msgspec.Meta(max_length=64)]
    last_epoch: Count


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """From the leader: the session is open under the frame's epoch."""

    host: Name
    lease_s: Annotated[float, msgspec.Meta(gt=0)]


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """I live. Any other frame of the session says so too."""


class Gone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """This session is over; say Hello again. Sent outside of it, for the other side may know none."""

    epoch: Count
    reason: Text


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One name as its machine's board has it."""

    name: Name
    incarnation: Count
    is_living: bool
    is_ready: bool
    reason: Text


class Rows(msgspec.Struct, frozen=True, array_like=True, tag="rows"):
    """Names that are new or changed."""

    rows: tuple[Row, ...]


class Carry(msgspec.Struct, frozen=True, array_like=True, tag="carry"):
    """One envelope, its names as both machines see them, its deadline as what is left of it."""

    kind: Annotated[int, msgspec.Meta(ge=0, le=3)]
    id: Count
    to: Name
    to_incarnation: Count
    sender: Name
    sender_incarnation: Count
    left_ms: Count
    """0: no deadline. Clocks of two machines differ; what is left does not."""
    message: Annotated[str, msgspec.Meta(max_length=200)] | None
    payload: bytes
    """As it was packed by the sender: no machine opens mail that is not for its actors."""


Body = Hello | Welcome | Beat | Gone | Rows | Carry


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Everything that crosses the link."""

    version: int
    epoch: Count
    number: Count
    body: Body


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def pack(frame: Frame) -> bytes:
    return _encoder.encode(frame)


def unpack(data: bytes) -> Frame:
    """Raises MalformedMessage that says what is wrong with it."""
    try:
        frame = _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{len(data)} bytes are no frame of a link: {error}") from error
    if frame.version != LINK_VERSION:
        raise MalformedMessage(f"frame of link version {frame.version}; this side speaks {LINK_VERSION}")
    return frame


def before_session(body: Body) -> bytes:
    """A frame outside any session: Hello, or Gone to someone unknown."""
    return pack(Frame(LINK_VERSION, 0, 0, body))


# ---- names ----


def seen_elsewhere(name: str, host: str, placed: bool) -> str:
    """What other machines call an actor of `host`."""
    return name if placed or "@" in name else f"{name}@{host}"


def host_in(name: str) -> str:
    """The machine a name says it is on; empty for a plain name."""
    return name.rpartition("@")[2] if "@" in name else ""


def here(name: str, host: str) -> str:
    """The name as `host` itself has it on its board."""
    return name.removesuffix(f"@{host}")


def check_host(host: str) -> None:
    """Raise LinkNotAllowed for what cannot be the name of a machine."""
    if not 0 < len(host.encode()) <= MAX_HOST_BYTES or "@" in host:
        raise LinkNotAllowed(
            f"host is {host!r}: a machine's name has 1 to {MAX_HOST_BYTES} bytes and no '@'; rename it"
        )


def can_be_told(name: str) -> bool:
    """Whether a name, as it is seen elsewhere, fits on a board."""
    return len(name.encode()) <= MAX_NAME_BYTES


# ---- sessions ----


@dataclass(slots=True)
class Session:
    """One connection's life with one host, from Welcome to silence. Not thread-safe; one owner."""

    host: str
    epoch: int
    lease_s: float
    heard_s: float
    capabilities: dict[str, int] = field(default_factory=dict)
    announced: dict[str, Row] = field(default_factory=dict)
    """What the other side was told, by name."""
    said_s: float = 0.0
    is_introduced: bool = False
    """The other side has said which names it has."""
    carried: int = 0
    refused: int = 0
    """Frames of an earlier session, repeated ones, and mail the other side had no right to send."""
    _said: int = 0
    _heard: int = 0

    def say(self, body: Body, now_s: float) -> bytes:
        """The next frame to send; counts as a beat."""
        self._said += 1
        self.said_s = now_s
        return pack(Frame(LINK_VERSION, self.epoch, self._said, body))

    def hear(self, frame: Frame, now_s: float) -> bool:
        """Whether the frame belongs to this session and is new; if so the lease is renewed."""
        if frame.epoch != self.epoch or frame.number <= self._heard:
            self.refused += 1
            return False
        self._heard = frame.number
        self.heard_s = now_s
        return True

    def is_lost(self, now_s: float) -> bool:
        return now_s - self.heard_s > self.lease_s

    def is_beat_due(self, now_s: float) -> bool:
        return now_s - self.said_s >= self.lease_s / BEATS_PER_LEASE

    def changes(self, rows: dict[str, Row]) -> tuple[Row, ...]:
        """What the other side does not know yet; `announced` is to be told once it was sent.

        A name that was announced and is not among the rows any more was forgotten by its supervisor: it lives
        no more, and the other side must not wait for it.
        """
        gone = (
            Row(name, row.incarnation, False, False, "it has ended and was forgotten")
            for name, row in self.announced.items()
            if name not in rows and row.is_living
        )
        return (*(row for name, row in rows.items() if self.announced.get(name) != row), *gone)


def next_epoch(*seen: int) -> int:
    """Above everything either side has seen of this host."""
    return max(seen, default=0) + 1
