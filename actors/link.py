"""What hosts say to each other, and when one counts as lost: frames, names, sessions. Pure.

One host leads. A session is one connection of another host to the leader, from Welcome to silence; its epoch
grows with every connection. Each side of a session speaks at least every third of a lease, and silence for a
lease is loss. The leader tells every host which sessions are open. Mail goes straight from host to host over
a `Channel`: its frames carry the epochs of both ends, so that what belongs to a session that is over, of
either end, is recognised and refused. A number grows with every frame of a channel, so that none is taken
twice.

A frame is msgpack checked against a schema: `[version, epoch, to_epoch, number, body]`. Which host it is from
is said by the transport (`actors.wire`); nothing here trusts a host's name because a frame says so.

A name of another host is seen as `name@host`. Some names are plain everywhere, so that a
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
"""Silence after which the other side counts as lost."""

BEATS_PER_LEASE = 3
"""Two beats may be late."""

ACTIVITY_PER_LEASE = 6
"""How often in a lease the ages of all rows are announced, so that no actor looks much older than it is."""

MAX_HOST_BYTES = 24
"""Leaves 39 for the actor in `name@host`."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=400)]
MAX_COUNT = 2**62 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
SmallCount = Annotated[int, msgspec.Meta(ge=0, lt=MOST)]
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Ms = SmallCount | None
"""An age in milliseconds; None: it never happened. Clocks of two hosts differ, ages do not."""

MAX_EPOCH = 2**60
"""No host has seen a higher epoch, so that there is always one above it."""

MAX_PLACED_INCARNATION = 2**60
"""The same for the incarnations of actors with plain names, which go on where they are placed next."""

ROWS_PER_FRAME = 48
ACTIVITIES_PER_FRAME = 256
PEERS_PER_FRAME = 128
"""A frame stays below the limit of the wire, and is soon handled."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """From a follower that opens a session: who it is, what it can carry, what it saw last."""

    host: Name
    capabilities: Annotated[dict[Name, Count], msgspec.Meta(max_length=64)]
    last_epoch: Annotated[int, msgspec.Meta(ge=0, le=MAX_EPOCH)]
    attempt: Count
    """The same in every repetition of a Hello that was not answered."""


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


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A session of the leader with another host, as the leader tells the others."""

    host: Name
    epoch: Count
    reason: Text | None = None
    """None: it is open; otherwise why it is over."""


class Peers(msgspec.Struct, frozen=True, array_like=True, tag="peers"):
    """From the leader: sessions that were opened, or are over."""

    peers: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=PEERS_PER_FRAME)]


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One row of a board: what changes when something happens to the actor."""

    slot: Count
    """Where it is on the board of the host that tells of it; later news refer to it by this number."""
    host: Name
    """Where the actor lives."""
    name: Name
    parent: Annotated[str, msgspec.Meta(max_length=64)]
    incarnation: Count
    state: Annotated[int, msgspec.Meta(ge=0, le=7)]
    is_ready: bool
    is_announced_to_all: bool
    """Whether the leader announces it to every host."""
    restarts: SmallCount
    started: Ms
    retry_in: Ms
    """Milliseconds until its supervisor tries again; None when it does not wait."""
    reason: Text
    ended_incarnation: Count
    ended_reason: Text
    last_error: Text
    gauges: Annotated[tuple[Number, ...], msgspec.Meta(min_length=GAUGES, max_length=GAUGES)]


class Rows(msgspec.Struct, frozen=True, array_like=True, tag="rows"):
    """Rows that are new or changed. A row in state `free` is no more."""

    rows: Annotated[tuple[Row, ...], msgspec.Meta(max_length=ROWS_PER_FRAME)]


class Again(msgspec.Struct, frozen=True, array_like=True, tag="again"):
    """Frames of this channel were lost: introduce those who write here anew."""


class Activity(msgspec.Struct, frozen=True, array_like=True):
    """What changes with every message of an actor."""

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
    """What the work is, when `work` says since when."""
    gauges: Annotated[tuple[Number, ...], msgspec.Meta(min_length=GAUGES, max_length=GAUGES)]


class Activities(msgspec.Struct, frozen=True, array_like=True, tag="activities"):
    """Of rows that were announced before."""

    activities: Annotated[tuple[Activity, ...], msgspec.Meta(max_length=ACTIVITIES_PER_FRAME)]


class Carry(msgspec.Struct, frozen=True, array_like=True, tag="carry"):
    """One envelope, its names as both hosts see them, its deadline as what is left of it."""

    kind: Annotated[int, msgspec.Meta(ge=0, le=3)]
    id: Count
    to: Name
    to_incarnation: Count
    sender: Name
    sender_incarnation: Count
    left_ms: Count
    """0: no deadline."""
    message: Annotated[str, msgspec.Meta(max_length=200)] | None
    payload: bytes
    """As it was packed by the sender: no host opens mail that is not for its actors."""


Body = Hello | Welcome | Beat | Gone | Peers | Rows | Again | Activities | Carry


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Everything that crosses the wire."""

    version: int
    epoch: Count
    """Of the sender's session with the leader; the leader has one with each host."""
    to_epoch: Count
    """Of the receiver's session."""
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"{len(data)} bytes are no frame of a link: {error}") from error
    if frame.version != LINK_VERSION:
        raise MalformedMessage(f"frame of link version {frame.version}; this side speaks {LINK_VERSION}")
    return frame


def before_session(body: Body) -> bytes:
    """A frame outside any session: Hello, or Gone to someone unknown."""
    return pack(Frame(LINK_VERSION, 0, 0, 0, body))


# ---- names ----


def seen_elsewhere(name: str, host: str, is_plain: bool) -> str:
    """What other hosts call an actor of `host`."""
    return name if is_plain or "@" in name else f"{name}@{host}"


def host_in(name: str) -> str:
    """The host a name says it is on; empty for a plain name."""
    return name.rpartition("@")[2] if "@" in name else ""


def here(name: str, host: str) -> str:
    """The name as `host` itself has it on its board."""
    return name.removesuffix(f"@{host}")


def machine_row(host: str) -> str:
    """The supervisor of all that joins a host to the others, and the host's row on the leader's board."""
    return f"machine-{host}"


def is_host(name: str) -> bool:
    """Whether a host may be called so."""
    return 0 < len(name.encode()) <= MAX_HOST_BYTES and not set(name) & {"@", "\0"}


def check_host(host: str) -> None:
    """Raise InvalidHost for what cannot be the name of a host."""
    if not is_host(host):
        raise InvalidHost(
            f"host is {host!r}: a host's name has 1 to {MAX_HOST_BYTES} bytes and no '@'; rename it"
        )


def can_be_announced(name: str) -> bool:
    """Whether a name, as it is seen elsewhere, fits on a board, whose texts end at the first zero."""
    return len(name.encode()) <= NAME_BYTES and "\0" not in name


# ---- sessions ----


@dataclass(slots=True)
class Channel:
    """The frames between this host and another while the sessions of both last. Not thread-safe."""

    host: str
    epoch: int
    """Of the other host's session."""
    own_epoch: int
    carried: int = 0
    refused: int = 0
    """Frames of another session, repeated ones, and mail the other side had no right to send."""
    said_bytes: int = 0
    heard_bytes: int = 0
    missed: int = 0
    """Frames that were lost on the way. A wire that keeps its promise loses none."""
    introduced: dict[int, bytes] = field(default_factory=dict)
    """Slots of senders that were announced to the other host over this channel, and their condition then."""
    _said: int = 0
    _heard: int = 0

    def say(self, body: Body) -> bytes:
        """The next frame to send."""
        self._said += 1
        frame = pack(Frame(LINK_VERSION, self.own_epoch, self.epoch, self._said, body))
        self.said_bytes += len(frame)
        return frame

    def take_back(self, frame: bytes) -> None:
        """The frame was not sent: its number is the next one's."""
        self._said -= 1
        self.said_bytes -= len(frame)

    def begin_with(self, frame: Frame) -> None:
        """The first frame of this channel; what came before it is announced again."""
        self._heard = frame.number

    @property
    def has_heard(self) -> bool:
        """Whether the other side knows of this channel: it has said something there."""
        return self._heard > 0

    def hear(self, frame: Frame) -> bool:
        """Whether the frame belongs to these sessions and is new."""
        if (frame.epoch, frame.to_epoch) != (self.epoch, self.own_epoch) or frame.number <= self._heard:
            self.refused += 1
            return False
        self.missed += frame.number - self._heard - 1
        self._heard = frame.number
        return True


@dataclass(slots=True, kw_only=True)
class Session(Channel):
    """The channel between the leader and one host: it has a lease. Both ends have the same epoch."""

    lease_s: float
    heard_s: float
    forgiven_s: float = 0.0
    """Seconds since `heard_s` in which this side did not read frames. They do not count as silence."""
    capabilities: dict[str, int] = field(default_factory=dict)
    attempt: int = 0
    malformed: int = 0
    """Frames that said nothing: each may have had a number."""
    said_s: float = 0.0
    is_introduced: bool = False
    """The other side has said which names it has."""
    rows_cursor: int = 0
    """Up to which change this board's rows were announced to the other side."""
    peers_cursor: int = 0

    def is_lost(self, now_s: float) -> bool:
        return now_s - self.heard_s > self.lease_s + self.forgiven_s

    def forgive(self, late_s: float) -> None:
        """Do not count the time in which this side did not listen as silence, up to a second lease."""
        self.forgiven_s = min(self.forgiven_s + max(0.0, late_s), self.lease_s)

    def is_beat_due(self, now_s: float) -> bool:
        return now_s - self.said_s >= self.lease_s / BEATS_PER_LEASE


def session(host: str, epoch: int, *, lease_s: float, now_s: float) -> Session:
    """A session that is opened now."""
    return Session(host=host, epoch=epoch, own_epoch=epoch, lease_s=lease_s, heard_s=now_s)


def first_epoch(unix_s: float) -> int:
    """Above every epoch that a leader, this one or an earlier one, has given out before this moment."""
    return int(unix_s * 1000) << 10


def next_epoch(*seen: int) -> int:
    """Above everything either side has seen of this host."""
    return max(seen, default=0) + 1


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ChangeLog(Generic[K, V]):
    """The latest value of each key, in the order of the changes; a reader asks for what is new to it."""

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
