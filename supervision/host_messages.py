"""What is asked of the hosts of a cluster and ordered of one of them, and how each answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.codec import message, to_plain
from supervision.placement import PlacedSpec

HOSTS, PLACED, HOST, BRIDGE = "hosts", "placed", "host", "bridge"
"""The names of the four on every host's board. From elsewhere they are `host@b`, `hosts@a` and so on."""

ANSWER_SLACK_S = 10.0
"""What a start may take beyond the child's start deadline: there and back, and an older one's end first."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlaced:
    """From the leader to a host: carry this actor. Answered by Carries once it is ready, or was refused."""

    epoch: int
    number: int
    child: Mapping[str, Any]
    is_announced_to_all: bool = True


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class StopPlaced:
    """From the leader to a host: carry it no more. Answered by Carries."""

    epoch: int
    number: int
    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Carries:
    """How a host took an order.

    last_number   the highest placement of that name this host ever saw
    """

    ok: bool
    reason: str = ""
    last_number: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """To `hosts`: carry this actor on some host from now on (`place_actor`). Answered by Whereabouts."""

    spec: Mapping[str, Any]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Displace:
    """To `hosts`: carry it nowhere any more. Answered by Whereabouts."""

    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhereIs:
    """To `hosts`. Answered by Whereabouts."""

    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Which host carries an actor; host is empty when none does, and reason says why."""

    name: str
    host: str = ""
    number: int = 0
    is_up: bool = False
    reason: str = ""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichHosts:
    """To `hosts`. Answered by HostsNow: the hosts from `offset` on, as many as fit into one mail."""

    offset: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class HostNow:
    """One host that is there, or was lost.

    carries      the first of the placed actors that it carries, by name, of `carries_total`
    state        running: it gets work; backoff, quarantined: it was lost too often and gets none for
                 `retry_in_s`; stopped: it is lost
    losses       how often it was lost
    reason       why it was lost last
    """

    host: str
    epoch: int
    capabilities: dict[str, int]
    carries: tuple[str, ...]
    carries_total: int = 0
    state: str = "running"
    losses: int = 0
    retry_in_s: float = 0.0
    reason: str = ""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class HostsNow:
    """The hosts, the actors no host was found for and why, and what was not believed.

    hosts      some of `total`; the next begin at the offset of these plus their number
    unplaced   the first of `unplaced_total`
    late       news of an epoch or a placement that is over
    refused    orders and news from those who may not give them
    """

    hosts: tuple[HostNow, ...]
    total: int
    unplaced: dict[str, str]
    unplaced_total: int
    late: int
    refused: int = 0


def place_actor(spec: PlacedSpec) -> Place:
    """The call that has an actor placed."""
    return Place(spec=to_plain(spec))
