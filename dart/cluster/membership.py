"""Decides which nodes of a cluster get an agent, and when. Pure; `dart.cluster.launcher` carries this out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dart.cluster.plan import ClusterNode
from supervision.backoff import backoff_s
from supervision.child_spec import Backoff

BACKOFF = Backoff(initial_s=1.0, max_s=60.0, jitter=0.0, reset_after_s=120.0)
"""Waits before an agent whose actor system ended is started again."""


@dataclass(frozen=True, slots=True)
class StartAgent:
    """An order to start an agent on a node.

    number   counts, from 1, the agents that are started on the node while Ray runs there without a break
    """

    node: ClusterNode
    number: int


@dataclass(frozen=True, slots=True)
class ReportGone:
    """An order to tell the control node that a host is gone."""

    host: str
    reason: str


MembershipAction = StartAgent | ReportGone


@dataclass(slots=True)
class _Member:
    """A living node; `is_up` says whether it has an agent now."""

    node: ClusterNode
    number: int
    since_s: float
    is_up: bool = True
    failures: int = 0
    start_at_s: float = 0.0
    why_down: str = ""
    """Why its newest agent ended or did not start; empty when another one has started."""


@dataclass(slots=True)
class Membership:
    """The living nodes, and the state of their agents."""

    _members: dict[str, _Member] = field(default_factory=dict)

    def started(self, nodes: Iterable[ClusterNode], now_s: float) -> None:
        """Note that agents were started on these nodes when the cluster was joined."""
        for node in nodes:
            self._members[node.name] = _Member(node, 1, now_s)

    def seen(self, living: Iterable[ClusterNode], now_s: float) -> Iterator[MembershipAction]:
        """Compare the nodes that Ray reports as alive now with the known ones, and yield what to do."""
        here = {node.name: node for node in living}
        for host, member in list(self._members.items()):
            now_there = here.get(host)
            if now_there is None or now_there.node_id != member.node.node_id:
                del self._members[host]
                if member.is_up:
                    yield ReportGone(host, "Ray reports that the node is gone")
        for host, node in here.items():
            known = self._members.get(host)
            if known is None:
                self._members[host] = _Member(node, 1, now_s)
                yield StartAgent(node, 1)
            elif not known.is_up and now_s >= known.start_at_s:
                known.number += 1
                known.is_up, known.since_s = True, now_s
                yield StartAgent(node, known.number)

    def expects(self, order: StartAgent) -> bool:
        """Whether the agent of an order is still needed: its node may be gone since the order."""
        member = self._members.get(order.node.name)
        return (
            member is not None
            and (member.node.node_id, member.number) == (order.node.node_id, order.number)
            and member.is_up
        )

    def began(self, host: str) -> None:
        """Note that the agent of an order has started."""
        if host in self._members:
            self._members[host].why_down = ""

    def reasons_down(self) -> dict[str, str]:
        """Return, by host, why nodes that Ray reports as alive have no agent."""
        return {host: member.why_down for host, member in self._members.items() if member.why_down}

    def ended(self, host: str, number: int, reason: str, now_s: float) -> Iterator[MembershipAction]:
        """Note that an agent or its actor system ended, and yield what to do.

        `seen` orders a new agent after a wait. The end of an agent that was replaced already changes nothing.
        """
        member = self._members.get(host)
        if member is None or member.number != number or not member.is_up:
            return
        member.failures = 1 if now_s - member.since_s >= BACKOFF.reset_after_s else member.failures + 1
        member.is_up, member.why_down = False, reason
        member.start_at_s = now_s + backoff_s(BACKOFF, member.failures, draw=0.5)
        yield ReportGone(host, reason)
