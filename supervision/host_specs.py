"""The supervision trees that join a host to the others: the leader's, and a follower's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.bridge_messages import wire_name
from actors.codec import to_plain
from actors.link import LEASE_S, machine_row
from supervision.child_spec import Backoff, Breaker, ChildSpec, ChildType, Strategy, SupervisorFlags
from supervision.host_messages import BRIDGE, HOST, HOSTS, PLACED
from supervision.messages import (
    DeleteChild,
    ReleaseChild,
    RestartChild,
    StartChild,
    TerminateChild,
    UpdateChild,
    UpdateFlags,
)
from supervision.placement import HOST_BACKOFF, HOST_BREAKER, PlacedSpec
from supervision.supervisor import dynamic_supervisor_spec, supervisor_spec

BRIDGE_BACKOFF_S = 1.0
"""A host without its bridge is lost to the others after a lease; the bridge may not wait long."""

LEAST_HANG_S = 5.0
"""A bridge on a busy machine may be silent for a while."""
MANAGEMENT = (StartChild, TerminateChild, RestartChild, DeleteChild, ReleaseChild, UpdateChild, UpdateFlags)
"""Orders to a supervisor. Who may give them can have any actor started there."""


def leader_spec(
    *,
    host: str,
    wire: Path,
    placed: tuple[PlacedSpec, ...] = (),
    awaits: tuple[str, ...] = (),
    capabilities: Mapping[str, int] | None = None,
    services: tuple[str, ...] = (),
    exports: tuple[str, ...] = (),
    lease_s: float = LEASE_S,
    backoff: Backoff = HOST_BACKOFF,
    breaker: Breaker = HOST_BREAKER,
) -> ChildSpec:
    """The host that decides. Put it below the host's root supervisor, before whoever needs the others.

    wire        path of the socket at which this host's agent listens (`actors.wire`)
    placed      actors to be carried by whichever host has what they need
    awaits      hosts that the first placement waits for, at most AWAIT_HOSTS_S, so that it sees them all
    services    names of this host that others know as they are, with every row below them
    exports     names of this host that others may write to, besides `hosts`; there they are `name@host`
    lease_s     silence after which a host counts as lost, here and there
    backoff     how long a host that was lost gets no work
    breaker     how often a host may be lost before it is in quarantine
    """
    own = {"host": host, "capabilities": dict(capabilities or {})}
    link = {
        **own,
        "wire": str(wire),
        "services": list(services),
        "exports": [HOSTS, *exports],
        "tells": [HOSTS, HOST],
        "orders": [wire_name(order) for order in MANAGEMENT],
        "lease_s": lease_s,
    }
    decides = {
        "placed": [to_plain(spec) for spec in placed],
        "awaits": list(awaits),
        "backoff": to_plain(backoff),
        "breaker": to_plain(breaker),
    }
    hosts = ChildSpec(id=HOSTS, actor="supervision.hosts:Hosts", args=decides)
    return _machine_spec(
        host, hosts, *_carrying(own, follows=False), _bridge_spec("actors.leader_bridge:LeaderBridge", link)
    )


def follower_spec(
    *,
    host: str,
    leader: str,
    wire: Path,
    capabilities: Mapping[str, int] | None = None,
    exports: tuple[str, ...] = (),
    lease_s: float = LEASE_S,
) -> ChildSpec:
    """A host that carries what the leader places there. The arguments mirror `leader_spec`.

    leader      the leader's name
    lease_s     until the leader was heard for the first time; then the leader's own holds
    """
    own = {"host": host, "capabilities": dict(capabilities or {})}
    link = {
        **own,
        "leader": leader,
        "wire": str(wire),
        "exports": [HOST, *exports],
        "tells": [HOST],
        "orders": [wire_name(order) for order in MANAGEMENT],
        "lease_s": lease_s,
    }
    return _machine_spec(
        host, *_carrying(own, follows=True), _bridge_spec("actors.follower_bridge:FollowerBridge", link)
    )


def _carrying(own: Mapping[str, Any], *, follows: bool) -> tuple[ChildSpec, ChildSpec]:
    host = ChildSpec(
        id=HOST, actor="supervision.host_supervisor:HostSupervisor", args={**own, "follows": follows}
    )
    return dynamic_supervisor_spec(PLACED, max_restarts=10, max_seconds=60.0), host


def _bridge_spec(actor: str, link: Mapping[str, Any]) -> ChildSpec:
    """Its type is supervisor: when it ends, the rows it made (names from elsewhere) end with it.

    A bridge that hangs is lost to the others after a lease; here it is killed soon after, so that what was
    placed behind it is stopped.
    """
    return ChildSpec(
        id=BRIDGE,
        actor=actor,
        args=dict(link),
        type=ChildType.SUPERVISOR,
        backoff=Backoff(max_s=BRIDGE_BACKOFF_S),
        hang_deadline_s=max(LEAST_HANG_S, 2 * link["lease_s"]),
    )


def _machine_spec(host: str, *children: ChildSpec) -> ChildSpec:
    flags = SupervisorFlags(strategy=Strategy.REST_FOR_ONE, max_restarts=10, max_seconds=60.0)
    return supervisor_spec(machine_row(host), flags, children)
