"""The messages between a bridge and the actors of its host, and the check of messages from other hosts."""

from dataclasses import dataclass

import msgspec

from actors.codec import MessageKind, message, module_name_of
from actors.link import Carry
from actors.monitors import Down, Exit
from actors.system_messages import ChildReady, RefusalReason, Stop

LINKS_PER_ANSWER = 100
"""The most sessions in one answer, because a message carries 64 KB."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUp:
    """A session with a host is open, and the names that the host announced are on the board."""

    host: str
    epoch: int
    capabilities: dict[str, int]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDown:
    """A session with a host is over: the host is lost, or it leaves. None of its names is living any more.

    host          the other host; empty when the bridge itself was restarted, which ends every session
    is_given_up   whether this side ended the session, which says nothing about the other host
    """

    host: str
    epoch: int
    reason: str
    is_given_up: bool = False


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Ask a bridge to announce a name of this host to other hosts. Answered by Exported.

    placed                if true, other hosts know the name without `@host`, and every row below it too
    is_announced_to_all   whether every host hears of the name; if false, only the leader does
    """

    name: str
    placed: bool = False
    is_announced_to_all: bool = True


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The answer to Export: the name under which other hosts know the actor."""

    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichLinks:
    """Ask a bridge for its open sessions from `offset` on. Answered by Links, LINKS_PER_ANSWER at a time."""

    offset: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkVitals:
    """One open session.

    silent_s                  seconds since the last frame of the other side
    carried                   messages sent to the other side
    refused                   frames, rows and messages of the other side that were refused
    said_bytes, heard_bytes   bytes of frames sent and received
    """

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
    """The answer to WhichLinks: some of the open sessions, and the numbers of frames that were not accepted.

    total       the number of all open sessions
    late        frames refused because their session is over, such as frames of a host that counts as lost
    early       frames held now because the leader has not announced their session yet
    malformed   frames that this version cannot read
    """

    host: str
    links: tuple[LinkVitals, ...]
    total: int
    late: int
    early: int
    malformed: int


def wire_name(cls: type) -> str:
    """The name of a message class in mail: `module.Class`."""
    return f"{module_name_of(cls)}.{cls.__qualname__}"


SAID_ON_ONE_HOST = frozenset(
    wire_name(cls) for cls in (Stop, ChildReady, Down, Exit, LinkUp, LinkDown, Export)
)
"""Wire names of messages that only actors of the receiver's own host may send, such as its supervisor."""

_one_value = msgspec.msgpack.Decoder(msgspec.Raw)


def why_not_taken(carry: Carry) -> str:
    """Return why every receiver here must refuse a message from another host; empty if it may be accepted."""
    if carry.kind == MessageKind.REFUSAL and carry.message != wire_name(RefusalReason):
        return f"a refusal must be a {wire_name(RefusalReason)}, not {carry.message}"
    if carry.message in SAID_ON_ONE_HOST:
        return f"{carry.message} is not accepted from another host"
    try:
        _one_value.decode(carry.payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        return f"its payload is not valid msgpack: {error}"
    return ""
