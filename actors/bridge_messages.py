"""What the actors of a host and its bridge say to each other, and which mail of other hosts is refused."""

from dataclasses import dataclass

import msgspec

from actors.codec import MessageKind, message, module_name_of
from actors.link import Carry
from actors.monitors import Down, Exit
from actors.system_messages import ChildReady, RefusalReason, Stop

LINKS_PER_ANSWER = 100
"""Mail carries 64 KB."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUp:
    """A host is connected. Its names are on the board."""

    host: str
    epoch: int
    capabilities: dict[str, int]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDown:
    """A host is lost, or said that it leaves. None of its names lives any more.

    host is empty when the bridge itself was started anew: every link is down.
    is_given_up   whether this side ended the link, which says nothing about the host
    """

    host: str
    epoch: int
    reason: str
    is_given_up: bool = False


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Let other hosts know a name of this one. Answered by Exported.

    placed           it is known under its plain name, with every row below it; otherwise as `name@host`
    is_announced_to_all   whether every host hears of the name; if false, only the leader does
    """

    name: str
    placed: bool = False
    is_announced_to_all: bool = True


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What other hosts call it."""

    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichLinks:
    """To a bridge. Answered by Links, LINKS_PER_ANSWER at a time, from `offset` on."""

    offset: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkVitals:
    """One open session."""

    host: str
    epoch: int
    capabilities: dict[str, int]
    silent_s: float
    carried: int
    refused: int
    said_bytes: int
    heard_bytes: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The sessions of this host, and what was turned away.

    total       the number of sessions, of which `links` are some
    late        frames of sessions that are over: what a lost host sent after it was given up
    early       frames that are held now, of sessions that the leader has not announced yet
    malformed   frames that say nothing this version understands
    """

    host: str
    links: tuple[LinkVitals, ...]
    total: int
    late: int
    early: int
    malformed: int


def wire_name(cls: type) -> str:
    """The name of a message in mail."""
    return f"{module_name_of(cls)}.{cls.__qualname__}"


SAID_ON_ONE_HOST = frozenset(
    wire_name(cls) for cls in (Stop, ChildReady, Down, Exit, LinkUp, LinkDown, Export)
)
"""Messages that only actors of the receiver's own host may send, such as its supervisor."""

_one_value = msgspec.msgpack.Decoder(msgspec.Raw)


def why_not_taken(carry: Carry) -> str:
    """Return why the bridge refuses a message of another host to any actor; empty if it takes it. Pure."""
    if carry.kind == MessageKind.REFUSAL and carry.message != wire_name(RefusalReason):
        return f"a refusal must be a {wire_name(RefusalReason)}, not {carry.message}"
    if carry.message in SAID_ON_ONE_HOST:
        return f"{carry.message} is not taken from another host"
    try:
        _one_value.decode(carry.payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        return f"its message is no msgpack: {error}"
    return ""
