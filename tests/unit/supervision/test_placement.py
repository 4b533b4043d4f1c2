"""Who goes where: the policy as tables, the bookkeeping as stories without machines."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from actors.board import ActorState
from supervision import placement as placement_module
from supervision.child_spec import Backoff, Breaker, ChildSpec
from supervision.errors import InvalidChildSpec
from supervision.placement import (
    REFUSAL_LETTERS,
    RETRY_S,
    CallOff,
    PlacedSpec,
    PlacementAction,
    PlacementCore,
    Start,
    place,
)


def spec(name: str, **needs: int) -> PlacedSpec:
    return PlacedSpec(child=ChildSpec(id=name, actor="a:A"), needs=needs)


BIG = {"gpu": 2, "vm_host": 0}
SMALL = {"gpu": 1}
PLAIN: dict[str, int] = {}


@pytest.mark.parametrize(
    ("specs", "hosts", "carried", "expected"),
    [
        pytest.param([], {}, {}, {}, id="nothing to place"),
        pytest.param([spec("a")], {"h": PLAIN}, {}, {"a": "h"}, id="no needs go anywhere"),
        pytest.param([spec("a", gpu=1)], {"h": PLAIN, "g": SMALL}, {}, {"a": "g"}, id="by capability"),
        pytest.param(
            [spec("a", vm_host=0), spec("b", vm_host=0)],
            {"h": PLAIN, "v": BIG},
            {},
            {"a": "v", "b": "v"},
            id="an amount of 0 is asked for and not used up",
        ),
        pytest.param(
            [spec("a"), spec("b"), spec("c")],
            {"h": PLAIN, "i": PLAIN},
            {},
            {"a": "h", "b": "i", "c": "h"},
            id="equals are spread, by name",
        ),
        pytest.param(
            [spec("a", gpu=1), spec("b", gpu=2)],
            {"h": BIG, "i": SMALL},
            {},
            {"a": "i", "b": "h"},
            id="the most demanding chooses first",
        ),
        pytest.param(
            [spec("a"), spec("b")],
            {"h": PLAIN, "i": PLAIN},
            {"a": "i"},
            {"a": "i", "b": "h"},
            id="what runs stays",
        ),
        pytest.param(
            [spec("a")], {"h": PLAIN}, {"a": "lost"}, {"a": "h"}, id="what ran on a lost host goes elsewhere"
        ),
        pytest.param(
            [spec("a", gpu=1)],
            {"h": PLAIN, "i": SMALL},
            {"a": "h"},
            {"a": "i"},
            id="what runs where it has not what it needs goes elsewhere",
        ),
    ],
)
def test_actors_go_where_what_they_need_is(
    specs: list[PlacedSpec],
    hosts: dict[str, dict[str, int]],
    carried: dict[str, str],
    expected: dict[str, str],
) -> None:
    for order in itertools.permutations(specs):
        placement = place(order, dict(reversed(hosts.items())), carried)
        assert placement.hosts == expected, "whatever the order of the arguments"
        assert placement.unplaced == {}


@pytest.mark.parametrize(
    ("specs", "hosts", "barred", "why"),
    [
        pytest.param([spec("a")], {}, {}, "needs nothing special; no host is there", id="no host"),
        pytest.param(
            [spec("a", gpu=1)],
            {"h": PLAIN, "i": {"gpu": 0}},
            {},
            "needs 1 gpu; h declares no gpu; i has 0 gpu left",
            id="not declared, and none left",
        ),
        pytest.param(
            [spec("a", gpu=1), spec("b", gpu=2)],
            {"h": BIG},
            {},
            "needs 1 gpu; h has 0 gpu left beside b",
            id="taken by another",
        ),
        pytest.param(
            [spec("a")],
            {"h": PLAIN},
            {("a", "h"): "its board is full"},
            "needs nothing special; h did not start it: its board is full",
            id="barred",
        ),
    ],
)
def test_who_goes_nowhere_is_told_why_host_by_host(
    specs: list[PlacedSpec],
    hosts: dict[str, dict[str, int]],
    barred: dict[tuple[str, str], str],
    why: str,
) -> None:
    assert place(specs, hosts, {}, barred).unplaced == {"a": why}


def test_an_actor_counts_as_many_as_its_weight() -> None:
    heavy = [PlacedSpec(child=ChildSpec(id=name, actor="a:A"), weight=3) for name in ("a", "b")]
    specs, carried = [*heavy, spec("c"), spec("d"), spec("e")], {"a": "h", "b": "h"}
    assert place(specs, {"h": PLAIN, "i": PLAIN}, carried).hosts == carried | dict.fromkeys("cde", "i")


def test_a_weight_below_one_is_refused_by_name() -> None:
    with pytest.raises(InvalidChildSpec, match=r"placed 'a': weight must be at least 1, got 0"):
        PlacedSpec(child=ChildSpec(id="a", actor="a:A"), weight=0)


def test_a_need_below_zero_is_refused_by_name() -> None:
    with pytest.raises(InvalidChildSpec, match=r"placed 'a': needs\.gpu must be at least 0, got -1"):
        spec("a", gpu=-1)


def test_a_placed_name_belongs_to_no_host() -> None:
    with pytest.raises(InvalidChildSpec, match="placed 'a@b': its id must have no '@'"):
        spec("a@b")


def test_a_host_that_was_put_aside_keeps_what_it_carries_and_gets_nothing_new() -> None:
    hosts = {"h": SMALL, "i": BIG}
    placement = place([spec("a"), spec("b")], hosts, {"a": "h"}, (), {"h": "it was lost", "i": "so was it"})
    assert placement.hosts == {"a": "h"}
    why = "needs nothing special; h gets no work: it was lost; i gets no work: so was it"
    assert placement.unplaced == {"b": why}


def test_a_host_that_refused_one_actor_is_open_to_those_like_it() -> None:
    specs = [spec("a"), spec("b"), spec("c")]
    assert place(specs, {"h": PLAIN}, {}, {("b", "h"): "full"}).hosts == {"a": "h", "c": "h"}


def test_a_reason_names_a_few_hosts_and_actors_and_counts_the_others() -> None:
    hosts = {f"h{number:02}": {"gpu": 4} for number in range(20)}
    placement = place([spec(f"a{number:02}", gpu=1) for number in range(81)], hosts)
    (why,) = placement.unplaced.values()
    assert why.startswith("needs 1 gpu; h00 has 0 gpu left beside a00, a20, a40 and 1 more; h01 ")
    assert why.endswith("; and 12 hosts more")


# ---- many hosts ----

SHARDS = [spec(f"engines-{n}", gpu=2) for n in range(400)] + [
    spec(f"environments-{n}", cpu=16) for n in range(1600)
]
NODES = {f"node-{n}": {"gpu": 4 if n % 5 == 0 else 0, "cpu": 64} for n in range(1000)}


def test_two_thousand_shards_are_spread_evenly_over_a_thousand_hosts_and_always_alike() -> None:
    placement = place(SHARDS, NODES)
    assert placement.unplaced == {}
    counts = Counter(placement.hosts.values())
    assert (max(counts.values()), min(counts[node] for node in NODES)) == (2, 2), "of 2,000 two for each"
    shuffled = random.Random(0).sample(SHARDS, len(SHARDS))
    assert place(shuffled, dict(reversed(NODES.items()))) == placement


def test_a_placement_looks_at_each_host_a_few_times_and_not_once_for_each_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []
    suffices = placement_module._Room.suffices

    def counting(room: placement_module._Room, needs: Mapping[str, int]) -> bool:
        looks.append(room.host)
        return suffices(room, needs)

    monkeypatch.setattr(placement_module._Room, "suffices", counting)
    place(SHARDS, NODES)
    assert len(looks) <= 2 * len(NODES) + 2 * len(SHARDS), "two kinds of needs, then one look each"


def test_a_lost_tenth_is_placed_anew_in_one_pass_and_nothing_else_moves() -> None:
    core = PlacementCore()
    for number, (node, has) in enumerate(NODES.items()):
        core.host_up(node, number, has, 0.0)
    for shard in SHARDS:
        core.wanted(shard)
    assert len(core.decide(0.0)) == len(SHARDS)
    before = {name: carried.host for name, carried in core.carried.items()}
    lost = [node for number, node in enumerate(NODES) if number % 10 == 3]
    for node in lost:
        core.host_down(node, core.hosts[node].epoch, 9.0, "cut")
    actions = core.decide(9.0)
    moved = {action.spec.name: action.host for action in actions if isinstance(action, Start)}
    assert len(actions) == len(moved), "starts, and nothing else"
    assert set(moved) == {name for name, host in before.items() if host in lost}
    assert not set(moved.values()) & set(lost)
    after = {name: carried.host for name, carried in core.carried.items()}
    assert after == before | moved
    assert core.unplaced == {}
    assert max(Counter(after.values()).values()) <= 3, "the load of the lost is spread"


# ---- the bookkeeping ----


def with_hosts(*hosts: str, capabilities: dict[str, int] = PLAIN) -> PlacementCore:
    core = PlacementCore()
    for host in hosts:
        core.host_up(host, 1, capabilities, 0.0)
    return core


def test_a_lost_hosts_actors_are_started_on_another_that_suffices_under_a_higher_number() -> None:
    core = with_hosts("b", "c", capabilities=SMALL)
    one, two = spec("one", gpu=1), spec("two", gpu=1)
    core.wanted(one)
    assert core.decide(0.0) == [Start("b", 1, 1, one)]
    core.wanted(two)
    assert core.decide(0.0) == [Start("c", 1, 2, two)]
    core.host_down("b", 1, 9.0, "cut")
    assert core.decide(9.0) == []
    assert core.unplaced == {"one": "needs 1 gpu; c has 0 gpu left beside two"}
    core.host_up("d", 1, SMALL, 10.0)
    assert core.decide(10.0) == [Start("d", 1, 3, one)]
    assert core.unplaced == {}


def test_an_equal_of_an_actor_needs_any_amount_of_the_same_and_is_up_on_another_host() -> None:
    core = with_hosts("h", "i", capabilities={"player": 9, "vm_host": 0})
    for name, needs in (("a", {"player": 3}), ("b", {"player": 2}), ("c", {"vm_host": 0})):
        core.wanted(spec(name, **needs))
    starts = [order for order in core.decide(0.0) if isinstance(order, Start)]
    host_of = {order.spec.name: order.host for order in starts}
    assert host_of["a"] != host_of["b"]

    assert not core.has_equal_elsewhere("a", host_of["a"]), "it is not up yet"
    core.started("b", next(order.number for order in starts if order.spec.name == "b"))
    assert core.has_equal_elsewhere("a", host_of["a"])
    assert not core.has_equal_elsewhere("a", host_of["b"])
    assert not core.has_equal_elsewhere("c", "h")


def test_a_host_that_comes_back_bears_a_new_epoch_and_carries_nothing_of_the_old() -> None:
    core = PlacementCore()
    core.host_up("b", 4, PLAIN, 0.0)
    core.wanted(spec("one"))
    core.decide(0.0)
    core.host_up("b", 5, PLAIN, 1.0)
    assert core.decide(1.0) == [Start("b", 5, 2, spec("one"))], "the loss was never noticed here"
    assert [(host.epoch, host.is_there) for host in core.hosts.values()] == [(5, True)]


def test_late_news_of_an_earlier_epoch_or_placement_change_nothing_and_are_counted() -> None:
    core = PlacementCore()
    core.host_up("b", 2, PLAIN, 0.0)
    core.wanted(spec("one"))
    core.decide(0.0)
    core.host_down("b", 2, 1.0, "cut")
    core.host_up("b", 3, PLAIN, 2.0)
    core.decide(2.0)
    before = (dict(core.carried), core.hosts["b"].epoch)
    core.host_down("b", 2, 3.0, "late")
    core.host_up("b", 2, SMALL, 3.0)
    core.started("one", 1)
    core.refused("one", 1, 0, 3.0, "late")
    core.started("never heard of", 7)
    assert core.decide(3.0) == []
    assert (core.carried, core.hosts["b"].epoch) == before
    assert core.late == 5


def test_a_host_that_refuses_is_left_alone_for_a_while_and_another_is_tried() -> None:
    core = with_hosts("b", "c")
    core.wanted(spec("one"))
    core.decide(0.0)
    core.refused("one", 1, 0, 1.0, "full")
    assert core.decide(1.0) == [Start("c", 1, 2, spec("one"))]
    core.refused("one", 2, 0, 2.0, "x" * 9999)
    assert core.decide(2.0) == []
    why = f"b did not start it: full; c did not start it: {'x' * REFUSAL_LETTERS}"
    assert core.unplaced == {"one": f"needs nothing special; {why}"}
    assert core.decide(RETRY_S) == []
    assert core.decide(RETRY_S + 1.0) == [Start("b", 1, 3, spec("one"))]


def test_a_placement_number_the_host_has_seen_before_is_repeated_above_it_at_once() -> None:
    core = with_hosts("b")
    core.wanted(spec("one"))
    core.decide(0.0)
    core.refused("one", 1, 40, 1.0, "late")
    assert core.decide(1.0) == [Start("b", 1, 41, spec("one"))]


def test_what_is_not_wanted_any_more_is_stopped_and_makes_room() -> None:
    core = with_hosts("b", capabilities=SMALL)
    core.wanted(spec("one", gpu=1))
    core.decide(0.0)
    core.started("one", 1)
    core.wanted(spec("two", gpu=1))
    assert core.decide(0.0) == []
    core.unwanted("one")
    assert core.decide(1.0) == [CallOff("b", 1, 1, "one"), Start("b", 1, 2, spec("two", gpu=1))]
    core.unwanted("one")
    assert core.decide(1.0) == []


def test_what_was_called_off_is_started_nowhere_until_its_host_says_that_it_has_ended() -> None:
    core = with_hosts("b", "c")
    core.wanted(spec("one"))
    core.decide(0.0)
    order = CallOff("b", 1, 1, "one")
    core.unwanted("one")
    assert core.decide(1.0) == [order]
    core.wanted(spec("one"))
    assert core.decide(2.0) == []
    assert core.unplaced == {"one": "it is being stopped on 'b' first"}
    assert core.is_ending(order)
    core.ended(order)
    assert core.decide(3.0) == [Start("b", 1, 2, spec("one"))]
    assert not core.is_ending(order)
    core.ended(order)
    assert core.decide(3.0) == []


def test_what_was_called_off_on_a_host_that_is_lost_then_is_started_elsewhere() -> None:
    core = with_hosts("b", "c")
    core.wanted(spec("one"))
    core.decide(0.0)
    core.unwanted("one")
    core.decide(1.0)
    core.wanted(spec("one"))
    core.decide(2.0)
    core.host_down("b", 1, 3.0, "cut")
    assert core.decide(3.0) == [Start("c", 1, 2, spec("one"))]


def test_a_start_that_nobody_answered_is_called_off_before_another_host_is_tried() -> None:
    core = with_hosts("b", "c")
    core.wanted(spec("one"))
    core.decide(0.0)
    order = CallOff("b", 1, 1, "one")
    core.unanswered("one", 1, 1.0)
    assert core.decide(1.0) == [order]
    core.unanswered("one", 1, 1.0)
    assert core.decide(1.0) == []
    core.ended(order)
    assert core.decide(2.0) == [Start("c", 1, 2, spec("one"))]


# ---- hosts that are lost again and again ----

POLICY = {
    "backoff": Backoff(initial_s=2.0, factor=2.0, max_s=60.0, jitter=0.0, reset_after_s=50.0),
    "breaker": Breaker(max_failures=2, within_s=100.0, open_s=500.0, healthy_s=30.0),
}


class Story:
    """One host that comes and goes, and one actor that only it can carry."""

    def __init__(self) -> None:
        self.core = PlacementCore(**POLICY)  # type: ignore[arg-type]
        self.core.wanted(spec("one"))
        self.epoch = 0

    def up(self, now_s: float) -> list[PlacementAction]:
        self.epoch += 1
        self.core.host_up("b", self.epoch, PLAIN, now_s)
        return self.core.decide(now_s)

    def down(self, now_s: float, **changed: bool) -> None:
        self.core.host_down("b", self.epoch, now_s, "nothing was heard of it", **changed)
        assert self.core.decide(now_s) == []

    def state(self, now_s: float) -> ActorState:
        return self.core.hosts["b"].state(now_s)


def test_a_host_that_was_lost_waits_before_it_gets_work_longer_each_time() -> None:
    story = Story()
    assert len(story.up(0.0)) == 1
    story.down(10.0)
    assert story.state(10.0) is ActorState.STOPPED
    assert story.up(11.0) == []
    assert story.state(11.0) is ActorState.BACKOFF
    (why,) = story.core.unplaced.values()
    assert why.endswith("b gets no work: it was lost once (nothing was heard of it) and waits for 1 s more")
    assert len(story.core.decide(12.0)) == 1, "two seconds after its loss"
    story.down(13.0)
    assert story.up(13.5) == []
    assert story.core.decide(16.9) == []
    assert len(story.core.decide(17.0)) == 1, "four seconds after the second"
    assert story.state(17.0) is ActorState.RUNNING


def test_a_host_that_was_there_for_long_waits_as_after_its_first_loss() -> None:
    story = Story()
    story.up(0.0)
    story.down(1.0)
    story.up(10.0)
    story.down(70.0)
    assert story.up(71.0) == []
    assert len(story.core.decide(72.0)) == 1


def test_a_host_that_is_lost_too_often_is_in_quarantine_and_says_why() -> None:
    story = Story()
    for lost_s in (10.0, 30.0, 60.0):
        story.up(lost_s - 5.0)
        story.down(lost_s)
    assert story.state(61.0) is ActorState.QUARANTINED, "lost or there"
    assert story.up(90.0) == []
    assert story.state(90.0) is ActorState.QUARANTINED
    (why,) = story.core.unplaced.values()
    assert "it was lost 3 times (nothing was heard of it) and is in quarantine for 470 s more" in why
    assert story.core.decide(559.0) == []
    assert len(story.core.decide(560.0)) == 1, "on probation"
    story.down(570.0)
    assert story.state(570.0) is ActorState.QUARANTINED, "one loss on probation is enough"


def test_a_host_that_stays_after_its_quarantine_may_be_lost_as_often_as_before() -> None:
    story = Story()
    for lost_s in (10.0, 30.0, 60.0):
        story.up(lost_s - 5.0)
        story.down(lost_s)
    story.up(90.0)
    story.core.decide(560.0)
    story.down(600.0)
    assert story.state(600.0) is ActorState.STOPPED
    assert story.up(610.0) == []
    assert len(story.core.decide(616.0)) == 1, "only its backoff goes on"


def test_a_connection_that_the_leader_gave_up_itself_says_nothing_about_the_host() -> None:
    story = Story()
    for now_s in (0.0, 1.0, 2.0, 3.0, 4.0):
        assert len(story.up(now_s)) == 1
        story.down(now_s + 0.5, is_failure=False)
    assert (story.core.hosts["b"].losses, story.state(5.0)) == (0, ActorState.STOPPED)


def test_a_host_that_always_saw_a_higher_placement_is_tried_again_once_and_then_left_alone() -> None:
    core = PlacementCore()
    core.host_up("b", 1, {}, 0.0)
    core.wanted(spec("job"))
    numbers = []
    for _ in range(3):
        for start in core.decide(0.0):
            assert isinstance(start, Start)
            numbers.append(start.number)
            core.refused("job", start.number, start.number + 10, 0.0, "late")
    assert numbers == [1, 12]
    assert core.decide(RETRY_S + 0.1)


@pytest.mark.parametrize("told", [2**42, 2**200])
def test_a_placement_that_nobody_can_have_seen_does_not_raise_the_numbers_of_all(told: int) -> None:
    core = PlacementCore()
    core.host_up("b", 1, {}, 0.0)
    core.wanted(spec("job"))
    core.decide(0.0)
    core.refused("job", 1, told, 0.0, "late")
    (start,) = core.decide(RETRY_S + 0.1)
    assert start.number == 2
