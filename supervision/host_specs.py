"""The specs of the supervision tree that joins a host to the others: the leader's, and a follower's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.bridge import AGENT_WAIT_S
from actors.bridge_messages import wire_name
from actors.codec import to_plain
from actors.link import LEASE_S, machine_row
from supervision.child_spec import (
    Backoff,
    Breaker,
    Budget,
    ChildSpec,
    ChildType,
    Strategy,
    SupervisorFlags,
)
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
from supervision.supervisor import ALONE_START_S, dynamic_supervisor_spec, in_a_spec, supervisor_spec

BRIDGE_BACKOFF_S = 1.0
"""The longest wait before a bridge is restarted: a host without a bridge counts as lost after a lease."""

LEAST_HANG_S = 5.0
"""The shortest hang deadline of a bridge, in seconds: on a busy machine it may give no beat for a while."""

HOST_START_S = 30.0
"""How long a host supervisor may take to start, in seconds, after the actors that it found have ended."""

MANAGEMENT = (StartChild, TerminateChild, RestartChild, DeleteChild, ReleaseChild, UpdateChild, UpdateFlags)
"""Calls to a supervisor that bridges accept from the leader only: their sender can have any actor started."""


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
    longest_shutdown_s: float = 5.0,
    backoff: Backoff = HOST_BACKOFF,
    breaker: Breaker = HOST_BREAKER,
    failures: Budget | None = None,
) -> ChildSpec:
    """The spec of the tree on the leader. Put it below the root, before the actors that need other hosts.

    host          this host's name
    wire          path of the socket at which this host's agent listens (`actors.wire`)
    placed        actors to run on any host that has what they need
    awaits        hosts that the first placement waits for, for at most 30 s (AWAIT_HOSTS_S)
    capabilities  what this host has: {"gpu": 2, "vm_host": 1}
    services      names of this host that other hosts know without `@host`, with every row below them
    exports       names of this host that other hosts may write to as `name@host`, besides `hosts`
    lease_s       seconds of silence after which a host counts as lost, on the leader and on followers
    backoff       how long a host gets no work after it was lost
    breaker       how often a host may be lost before it is in quarantine
    failures      how often placed actors may fail, all of them together: each start that fails and each
                  restart on a host counts (`supervision.placement_budget`). If they fail more often,
                  `supervision.placement_failure.read` gives the program that started the tree the reason.
                  None: as often as they like

    longest_shutdown_s   the longest `shutdown_s` of an actor that will be placed later, by `Place`; those in
                         `placed` are known
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
        "failures": None if failures is None else to_plain(failures),
    }
    hosts = ChildSpec(id=HOSTS, actor="supervision.hosts:Hosts", args=decides)
    longest_s = max([longest_shutdown_s, *(spec.child.shutdown_s for spec in placed)])
    carrying = _carrying(own, longest_s, follows=False)
    bridge = _bridge_spec("actors.leader_bridge:LeaderBridge", link)
    return _machine_spec(host, hosts, *carrying, bridge)


def follower_spec(
    *,
    host: str,
    leader: str,
    wire: Path,
    capabilities: Mapping[str, int] | None = None,
    exports: tuple[str, ...] = (),
    lease_s: float = LEASE_S,
    longest_shutdown_s: float = 5.0,
) -> ChildSpec:
    """The spec of the tree on a follower, which runs what the leader places there. See also `leader_spec`.

    leader      the leader's name
    exports     names of this host that other hosts may write to as `name@host`, besides `host`
    lease_s     the lease until the first session with the leader; from then on the leader's lease holds

    longest_shutdown_s   the longest `shutdown_s` of an actor that the leader may place here
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
    carrying = _carrying(own, longest_shutdown_s, follows=True)
    return _machine_spec(host, *carrying, _bridge_spec("actors.follower_bridge:FollowerBridge", link))


def _carrying(
    own: Mapping[str, Any], longest_shutdown_s: float, *, follows: bool
) -> tuple[ChildSpec, ChildSpec]:
    """The specs of `placed` and `host`. The second stops, as it starts, all children of the first."""
    placed = dynamic_supervisor_spec(
        PLACED, shutdown_s=in_a_spec(1.0 + longest_shutdown_s), max_restarts=10, max_seconds=60.0
    )
    host = ChildSpec(
        id=HOST,
        actor="supervision.host_supervisor:HostSupervisor",
        args={**own, "follows": follows},
        start_deadline_s=in_a_spec(HOST_START_S + longest_shutdown_s),
    )
    return placed, host


def _bridge_spec(actor: str, link: Mapping[str, Any]) -> ChildSpec:
    """The spec of a bridge.

    Its type is supervisor, so that the rows that the bridge made for other hosts end with the bridge. A host
    whose bridge hangs counts as lost after a lease. Soon after that the bridge is killed here, so that the
    actors that the leader placed on this host are stopped.
    """
    return ChildSpec(
        id=BRIDGE,
        actor=actor,
        args=dict(link),
        type=ChildType.SUPERVISOR,
        backoff=Backoff(max_s=BRIDGE_BACKOFF_S),
        start_deadline_s=ALONE_START_S + AGENT_WAIT_S,
        hang_deadline_s=max(LEAST_HANG_S, 2 * link["lease_s"]),
    )


def _machine_spec(host: str, *children: ChildSpec) -> ChildSpec:
    flags = SupervisorFlags(strategy=Strategy.REST_FOR_ONE, max_restarts=10, max_seconds=60.0)
    return supervisor_spec(machine_row(host), flags, children)
