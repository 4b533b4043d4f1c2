"""Which nodes get an agent, when, and which are reported gone."""

from dataclasses import replace

from dart.cluster.membership import Membership, MembershipAction, ReportGone, StartAgent
from dart.cluster.plan import ClusterNode

CONTROL = ClusterNode(name="a", node_id="a1", is_control=True)
B, C = ClusterNode(name="b", node_id="b1"), ClusterNode(name="c", node_id="c1")


def launched() -> Membership:
    """The control node and two others, with their agents."""
    members = Membership()
    members.started([CONTROL, B, C], 0.0)
    return members


def seen(members: Membership, *nodes: ClusterNode, now_s: float) -> list[MembershipAction]:
    return list(members.seen([CONTROL, *nodes], now_s))


def ended(members: Membership, number: int, now_s: float) -> list[MembershipAction]:
    return list(members.ended("b", number, "why", now_s))


def test_as_long_as_nothing_changes_nothing_is_done() -> None:
    assert seen(launched(), B, C, now_s=1.0) == []


def test_a_node_that_ray_calls_dead_is_reported_gone_once() -> None:
    members = launched()
    assert seen(members, C, now_s=1.0) == [ReportGone("b", "Ray reports that the node is gone")]
    assert seen(members, C, now_s=2.0) == []


def test_a_node_that_joins_gets_an_agent() -> None:
    late = ClusterNode(name="d", node_id="d1")
    members = launched()
    assert seen(members, B, C, late, now_s=1.0) == [StartAgent(late, 1)]
    assert seen(members, B, C, late, now_s=2.0) == []


def test_an_agent_is_not_wanted_any_more_when_its_node_went_while_it_started() -> None:
    members, late = launched(), ClusterNode(name="d", node_id="d1")
    (order,) = seen(members, B, C, late, now_s=1.0)
    assert isinstance(order, StartAgent)
    assert members.expects(order)
    seen(members, B, C, replace(late, node_id="d2"), now_s=2.0)
    assert not members.expects(order)
    seen(members, B, C, now_s=3.0)
    assert not members.expects(order)


def test_ray_started_anew_on_a_node_is_a_loss_and_a_new_agent() -> None:
    again = replace(B, node_id="b2")
    assert seen(launched(), again, C, now_s=1.0) == [
        ReportGone("b", "Ray reports that the node is gone"),
        StartAgent(again, 1),
    ]


def test_an_agent_that_ends_is_reported_and_started_again_after_a_wait_that_doubles() -> None:
    members = launched()
    now_s = 0.0
    for number, wait_s in enumerate((1.0, 2.0, 4.0), start=1):
        assert ended(members, number, now_s) == [ReportGone("b", "why")]
        assert seen(members, B, C, now_s=now_s + wait_s - 0.1) == []
        now_s += wait_s
        assert seen(members, B, C, now_s=now_s) == [StartAgent(B, number + 1)]


def test_the_wait_is_bounded_and_an_agent_that_lasted_ends_the_row() -> None:
    members = launched()
    now_s = 0.0
    for number in range(1, 12):
        ended(members, number, now_s)
        now_s += 60.0
        assert seen(members, B, C, now_s=now_s) == [StartAgent(B, number + 1)]
    ended(members, 12, now_s + 120.0)
    assert seen(members, B, C, now_s=now_s + 121.0) == [StartAgent(B, 13)]


def test_an_agent_that_fails_for_days_is_still_started_every_minute() -> None:
    members = launched()
    now_s = 0.0
    for number in range(1, 2000):
        ended(members, number, now_s)
        now_s += 60.0
        assert seen(members, B, C, now_s=now_s) == [StartAgent(B, number + 1)]


def test_the_end_of_an_earlier_agent_changes_nothing() -> None:
    members = launched()
    ended(members, 1, 0.0)
    seen(members, B, C, now_s=1.0)
    assert ended(members, 1, 2.0) == []


def test_an_agent_of_the_control_node_that_ends_is_started_again() -> None:
    members = launched()
    assert list(members.ended("a", 1, "why", 0.0)) == [ReportGone("a", "why")]
    assert seen(members, B, C, now_s=1.0) == [StartAgent(CONTROL, 2)]


def test_why_a_node_has_no_agent_is_known_until_the_next_one_has_started() -> None:
    members = launched()
    ended(members, 1, now_s=1.0)
    assert members.reasons_down() == {"b": "why"}
    assert seen(members, B, C, now_s=10.0) == [StartAgent(B, 2)]
    assert members.reasons_down() == {"b": "why"}
    members.began("b")
    assert members.reasons_down() == {}


def test_a_node_that_is_gone_needs_no_agent() -> None:
    members = launched()
    ended(members, 1, now_s=1.0)
    seen(members, C, now_s=2.0)
    assert members.reasons_down() == {}
