"""The protocol between hosts: its frames, the names of actors on other hosts, and sessions. Pure.

One host leads. A session is one connection of another host to the leader. It begins with Welcome, and it ends
when one side leaves or counts the other as lost. Its epoch grows with every connection. Each side of a
session sends at least one frame in every third of a lease; a side that is silent for a lease counts as lost.
The leader announces to every host which sessions are open.

Mail goes straight from host to host over a `Channel`. Its frames carry the epochs of both hosts' sessions, so
a frame that belongs to an earlier session of either host is recognised and refused. Frames of a channel are
numbered upwards, so no frame is accepted twice.

A frame is msgpack, checked against a schema: `[version, epoch, to_epoch, number, body]`. The transport says
which host sent a frame (`actors.wire`); the sender's host is never read from the frame itself.

Other hosts know an actor as `name@host`. Some names are plain, which means the same on every host, so that a
sender need not know the receiver's host: placed actors (`supervision.placement`), services of the leader, and
every actor below one of them.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

import msgspec

from actors.board import GAUGES, MOST, NAME_BYTES
from actors.errors import InvalidHost, MalformedMessage

LINK_VERSION = 2

LEASE_S = 3.0
"""Seconds of silence after which the other side of a session counts as lost."""

BEATS_PER_LEASE = 3
"""How many times in a lease each side shows that it lives, so that two beats may be late."""

ACTIVITY_PER_LEASE = 6
"""How many times in a lease activities are announced, so that a beat looks only a little older than it is."""

MAX_HOST_BYTES = 24
"""The longest name of a host, in bytes of UTF-8; it leaves 39 bytes for the actor in `name@host`."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=400)]
MAX_COUNT = 2**62 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
SmallCount = Annotated[int, msgspec.Meta(ge=0, lt=MOST)]
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Ms = SmallCount | None
"""An age in milliseconds; None if it never happened. Hosts exchange ages, because their clocks differ."""

MAX_EPOCH = 2**60
"""The highest epoch that a Hello may name as seen, so that the leader can always give a higher one."""

ROWS_PER_FRAME = 48
ACTIVITIES_PER_FRAME = 256
PEERS_PER_FRAME = 128
"""The most sessions in a frame. This limit and the two above keep a frame small and quick to handle."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """Sent by a follower to open a session: its name, its capabilities and the last epoch that it had."""

    host: Name
    capabilities: Annotated[dict[Name, Count], msgspec.Meta(max_length=64)]
    last_epoch: Annotated[int, msgspec.Meta(ge=0, le=MAX_EPOCH)]
    attempt: Count
    """The number of this attempt to connect; a repeated Hello has the number of the first one."""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """Sent by the leader: the session is open, and its epoch is the epoch of this frame."""

    host: Name
    lease_s: Annotated[float, msgspec.Meta(gt=0)]


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """Shows that the sender lives, as every other frame of the session does."""


class Gone(msgspec.Struct, frozen=True, array_like=True, tag="gone"):
    """Says that the session with this epoch is over. Sent outside any session: the receiver may have none."""

    epoch: Count
    reason: Text


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """The session of one host with the leader, as the leader announces it to the other hosts."""

    host: Name
    epoch: Count
    reason: Text | None = None
    """Why the session is over; None while it is open."""


class Peers(msgspec.Struct, frozen=True, array_like=True, tag="peers"):
    """Sent by the leader: sessions that were opened or have ended."""

    peers: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=PEERS_PER_FRAME)]


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One announced row of a board, without the fields that change with every message (see Activity)."""

    slot: Count
    """The slot of the row on the board of the announcing host; its later activities name this slot."""
    host: Name
    """The host on which the actor lives."""
    name: Name
    parent: Annotated[str, msgspec.Meta(max_length=64)]
    incarnation: Count
    state: Annotated[int, msgspec.Meta(ge=0, le=7)]
    is_ready: bool
    is_announced_to_all: bool
    """Whether the leader announces the row to every host."""
    restarts: SmallCount
    started: Ms
    retry_in: Ms
    """Milliseconds until the actor's supervisor starts it again; None if the actor waits for no start."""
    reason: Text
    ended_incarnation: Count
    ended_reason: Text
    last_error: Text
    gauges: Annotated[tuple[Number, ...], msgspec.Meta(min_length=GAUGES, max_length=GAUGES)]


class Rows(msgspec.Struct, frozen=True, array_like=True, tag="rows"):
    """Rows that are new or changed. A row in state `free` is withdrawn: its actor is gone or not exported."""

    rows: Annotated[tuple[Row, ...], msgspec.Meta(max_length=ROWS_PER_FRAME)]


class Again(msgspec.Struct, frozen=True, array_like=True, tag="again"):
    """Says that frames of this channel were lost: the receiver must announce its senders again."""


class Activity(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a row that change with every message of its actor."""

    slot: Count
    beat: Ms
    progress: Ms
    busy: Ms
    work: Ms
    messages: Count
    refused: Count
    unsent: Count
    uses: Count
    handler: Annotated[str, msgspec.Meta(max_length=64)]
    doing: Annotated[str, msgspec.Meta(max_length=64)]
    """The name of the work in a thread whose age is `work`; empty when there is none."""
    gauges: Annotated[tuple[Number, ...], msgspec.Meta(min_length=GAUGES, max_length=GAUGES)]


class Activities(msgspec.Struct, frozen=True, array_like=True, tag="activities"):
    """The activities of rows that were announced before."""

    activities: Annotated[tuple[Activity, ...], msgspec.Meta(max_length=ACTIVITIES_PER_FRAME)]


class Carry(msgspec.Struct, frozen=True, array_like=True, tag="carry"):
    """One envelope of mail, with the names that other hosts use and the time left until its deadline."""

    kind: Annotated[int, msgspec.Meta(ge=0, le=3)]
    id: Count
    to: Name
    to_incarnation: Count
    sender: Name
    sender_incarnation: Count
    left_ms: Count
    """Milliseconds left until the deadline of an ask; 0: no deadline."""
    message: Annotated[str, msgspec.Meta(max_length=200)] | None
    payload: bytes
    """The message as its sender packed it; bridges pass it on without decoding it."""


Body = Hello | Welcome | Beat | Gone | Peers | Rows | Again | Activities | Carry


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One frame between two hosts. Outside a session, `epoch`, `to_epoch` and `number` are 0."""

    version: int
    epoch: Count
    """The epoch of the sender's session with the leader; the leader sends that of the receiver's session."""
    to_epoch: Count
    """The epoch of the receiver's session with the leader."""
    number: Count
    body: Body


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def pack(frame: Frame) -> bytes:
    return _encoder.encode(frame)


def unpack(data: bytes) -> Frame:
    """Unpack a frame. Raises MalformedMessage, with the reason, for anything but a frame of this version."""
    try:
        frame = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"{len(data)} bytes of another host are not a valid frame: {error}") from error
    if frame.version != LINK_VERSION:
        raise MalformedMessage(
            f"frame has link version {frame.version}, expected {LINK_VERSION}; run one version on all hosts"
        )
    return frame


def before_session(body: Body) -> bytes:
    """Pack a frame that belongs to no session: Hello, Gone."""
    return pack(Frame(LINK_VERSION, 0, 0, 0, body))


# ---- names ----


def seen_elsewhere(name: str, host: str, is_plain: bool) -> str:
    """The name under which other hosts know an actor of `host`."""
    return name if is_plain or "@" in name else f"{name}@{host}"


def host_in(name: str) -> str:
    """The host in a name `name@host`; empty for a name without one."""
    return name.rpartition("@")[2] if "@" in name else ""


def here(name: str, host: str) -> str:
    """The name that the board of `host` itself has: without `@host`."""
    return name.removesuffix(f"@{host}")


def machine_row(host: str) -> str:
    """The name of the supervisor that joins a host to the others, and of its row on the leader's board."""
    return f"machine-{host}"


def is_host(name: str) -> bool:
    """Whether `name` can be the name of a host."""
    return 0 < len(name.encode()) <= MAX_HOST_BYTES and not set(name) & {"@", "\0"}


def check_host(host: str) -> None:
    """Raise InvalidHost unless `host` can be the name of a host."""
    if not is_host(host):
        raise InvalidHost(
            f"host is {host!r}: a host's name must have 1 to {MAX_HOST_BYTES} bytes and no '@'; rename it"
        )


def can_be_announced(name: str) -> bool:
    """Whether a name fits into the row of a board: at most NAME_BYTES bytes, and no zero byte."""
    return len(name.encode()) <= NAME_BYTES and "\0" not in name


# ---- sessions ----


@dataclass(slots=True)
class Channel:
    """The frames between this host and another, while the sessions of both last. Not thread-safe."""

    host: str
    epoch: int
    """The epoch of the other host's session."""
    own_epoch: int
    carried: int = 0
    refused: int = 0
    """The number of refused frames (of another session, or repeated), and of refused rows and messages."""
    said_bytes: int = 0
    heard_bytes: int = 0
    missed: int = 0
    """The number of frames that were lost on the way; a wire that works as promised loses none."""
    introduced: dict[int, Row] = field(default_factory=dict)
    """The slots of senders announced to the other host over this channel, each with its row then."""
    _said: int = 0
    _heard: int = 0

    def say(self, body: Body) -> bytes:
        """Pack the next frame to send, and count it."""
        self._said += 1
        frame = pack(Frame(LINK_VERSION, self.own_epoch, self.epoch, self._said, body))
        self.said_bytes += len(frame)
        return frame

    def take_back(self, frame: bytes) -> None:
        """Undo `say` for a frame that could not be sent: the next frame gets its number."""
        self._said -= 1
        self.said_bytes -= len(frame)

    def begin_with(self, frame: Frame) -> None:
        """Take the first frame of the other side. Earlier frames do not count as lost."""
        self._heard = frame.number

    @property
    def has_heard(self) -> bool:
        """Whether a frame of the other side has come, which shows that it knows this channel."""
        return self._heard > 0

    def hear(self, frame: Frame) -> bool:
        """Note a frame that came; return whether it belongs to this channel's sessions and is new."""
        if (frame.epoch, frame.to_epoch) != (self.epoch, self.own_epoch) or frame.number <= self._heard:
            self.refused += 1
            return False
        self.missed += frame.number - self._heard - 1
        self._heard = frame.number
        return True


@dataclass(slots=True, kw_only=True)
class Session(Channel):
    """The channel between the leader and one other host, with a lease. Both ends have the same epoch."""

    lease_s: float
    heard_s: float
    forgiven_s: float = 0.0
    """Seconds since `heard_s` in which this side did not read frames. They do not count as silence."""
    capabilities: dict[str, int] = field(default_factory=dict)
    attempt: int = 0
    malformed: int = 0
    """The number of frames that could not be read; each may be one that is counted in `missed`."""
    said_s: float = 0.0
    is_introduced: bool = False
    """Whether the other side has announced its names."""
    rows_cursor: int = 0
    """The number of the last change of this board's rows that was announced to the other side."""
    peers_cursor: int = 0

    def is_lost(self, now_s: float) -> bool:
        return now_s - self.heard_s > self.lease_s + self.forgiven_s

    def forgive(self, late_s: float) -> None:
        """Do not count as silence the seconds in which this side read no frames, up to one lease in total."""
        self.forgiven_s = min(self.forgiven_s + max(0.0, late_s), self.lease_s)

    def is_beat_due(self, now_s: float) -> bool:
        return now_s - self.said_s >= self.lease_s / BEATS_PER_LEASE


def session(host: str, epoch: int, *, lease_s: float, now_s: float) -> Session:
    """Make a session that opens now, at the monotonic moment `now_s`."""
    return Session(host=host, epoch=epoch, own_epoch=epoch, lease_s=lease_s, heard_s=now_s)


def first_epoch(unix_s: float) -> int:
    """An epoch above all that this leader or an earlier one has given out before the moment `unix_s`."""
    return int(unix_s * 1000) << 10


def next_epoch(*seen: int) -> int:
    """The epoch of a new session: one above the highest that the leader or the other host has seen."""
    return max(seen, default=0) + 1


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ChangeLog(Generic[K, V]):
    """The latest value of each key, in the order of changes. Readers ask for the changes after a cursor."""

    def __init__(self) -> None:
        self._changes: dict[K, tuple[int, V]] = {}
        self._last = 0

    def note(self, key: K, value: V) -> None:
        self._last += 1
        self._changes.pop(key, None)  # so that it is put at the end
        self._changes[key] = self._last, value

    def get(self, key: K) -> V | None:
        found = self._changes.get(key)
        return None if found is None else found[1]

    def since(self, cursor: int) -> list[tuple[int, V]]:
        """The changes after number `cursor`, oldest first, each with its number."""
        return list(self._newest(cursor))[::-1]

    def _newest(self, cursor: int) -> Iterator[tuple[int, V]]:
        for number, value in reversed(self._changes.values()):
            if number <= cursor:
                return
            yield number, value
