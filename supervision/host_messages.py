"""The messages that place actors on the hosts of a cluster and ask where they are, with their answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.codec import message, to_plain
from supervision.placement import PlacedSpec

HOSTS, PLACED, HOST, BRIDGE = "hosts", "placed", "host", "bridge"
"""The names of these actors on their own host's board (`supervision.hosts`). Other hosts write `host@b`."""

ANSWER_SLACK_S = 10.0
"""Seconds that an order may take beyond the child's start deadline, for the way and an older child's end."""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlaced:
    """Sent by the leader: start this actor on your host. Answered by Carries once it is ready or was refused.

    epoch    the epoch of the host's session
    number   the number of this placement, higher than that of any earlier one
    child    the actor's ChildSpec as plain data
    """

    epoch: int
    number: int
    child: Mapping[str, Any]
    is_announced_to_all: bool = True


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class StopPlaced:
    """Sent by the leader: stop an actor, in this placement or an earlier one. Answered by Carries."""

    epoch: int
    number: int
    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Carries:
    """A host's answer to StartPlaced or StopPlaced: whether it did so, or why not.

    last_number   the highest placement number of that name that the host has seen
    has_failed    whether the actor was started and did not get ready
    """

    ok: bool
    reason: str = ""
    last_number: int = 0
    has_failed: bool = False


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Sent to `hosts`: run this actor on some host from now on (`place_actor`). Answered by Whereabouts."""

    spec: Mapping[str, Any]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Displace:
    """Sent to `hosts`: stop this actor, and place it no more. Answered by Whereabouts."""

    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhereIs:
    """Sent to `hosts`: ask which host runs an actor. Answered by Whereabouts."""

    name: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """On which host an actor is placed.

    host     empty when the actor is placed on none
    number   the number of the placement
    is_up    whether the actor runs there
    reason   why the actor has no host or does not run; empty when it runs
    """

    name: str
    host: str = ""
    number: int = 0
    is_up: bool = False
    reason: str = ""


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class WhichHosts:
    """Sent to `hosts`. Answered by HostsNow: the hosts from `offset` on, as many as fit into a message."""

    offset: int = 0


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class HostNow:
    """One host that is connected or was lost.

    carries      the first placed actors on the host, in the order of names; `carries_total` is their number
    state        running: it gets work; backoff or quarantined: it was lost before and gets no work for
                 `retry_in_s` seconds; stopped: it is lost
    losses       how many times the host was lost
    reason       why the host was lost the last time
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
    """The answer to WhichHosts: hosts, actors without a host, and the numbers of messages that were ignored.

    hosts      a part of the `total` hosts; ask for the next ones with a higher offset
    unplaced   the first of the `unplaced_total` actors without a host, each with the reason
    late       the number of answers and news of an epoch or a placement that is over
    refused    the number of messages from senders that may not send them
    """

    hosts: tuple[HostNow, ...]
    total: int
    unplaced: dict[str, str]
    unplaced_total: int
    late: int
    refused: int = 0


def place_actor(spec: PlacedSpec) -> Place:
    """Make the message that has an actor placed on a host."""
    return Place(spec=to_plain(spec))
