"""Which nodes of a cluster have an agent, and which are to get one. Pure; `dart.cluster.launcher` acts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dart.cluster.plan import ClusterNode

FIRST_WAIT_S, MOST_WAIT_S = 1.0, 60.0
"""Wait before an agent whose actor system ended is started anew; it doubles with each end in a row."""

STEADY_S = 120.0
"""An agent that lasted so long ends the row of failures."""


@dataclass(frozen=True, slots=True)
class StartAgent:
    """Start an agent on a node.

    number   tells apart the agents of the same start of a node
    """

    node: ClusterNode
    number: int


@dataclass(frozen=True, slots=True)
class ReportGone:
    """Tell the control node that a host is gone."""

    host: str
    reason: str


MembershipAction = StartAgent | ReportGone


@dataclass(slots=True)
class _Member:
    """A host, whether it has an agent now or not."""

    node: ClusterNode
    number: int
    since_s: float
    is_up: bool = True
    failures: int = 0
    start_at_s: float = 0.0


@dataclass(slots=True)
class Membership:
    """The hosts beside the control node."""

    _members: dict[str, _Member] = field(default_factory=dict)

    def started(self, nodes: Iterable[ClusterNode], now_s: float) -> None:
        """Note the agents that the launch has started."""
        for node in nodes:
            self._members[node.name] = _Member(node, 1, now_s)

    def seen(self, living: Iterable[ClusterNode], now_s: float) -> Iterator[MembershipAction]:
        """Take the nodes that Ray says are alive now, and yield what is to be done."""
        here = {node.name: node for node in living if not node.is_control}
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
        """Whether the agent of an order is still wanted: its node may have gone while the agent started."""
        member = self._members.get(order.node.name)
        return (
            member is not None
            and (member.node.node_id, member.number) == (order.node.node_id, order.number)
            and member.is_up
        )

    def ended(self, host: str, number: int, reason: str, now_s: float) -> Iterator[MembershipAction]:
        """Take the end of an agent, or of its actor system; it is started anew after a wait."""
        member = self._members.get(host)
        if member is None or member.number != number or not member.is_up:
            return
        member.failures = 1 if now_s - member.since_s >= STEADY_S else member.failures + 1
        member.is_up = False
        member.start_at_s = now_s + min(FIRST_WAIT_S * 2 ** (member.failures - 1), MOST_WAIT_S)
        yield ReportGone(host, reason)
