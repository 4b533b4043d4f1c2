"""Who goes where: the policy as tables, the bookkeeping as stories without machines."""

import itertools

import pytest

from supervision.child_spec import ChildSpec
from supervision.errors import InvalidChildSpec
from supervision.placement import (
    RETRY_S,
    CallOff,
    CarryingHost,
    PlacedSpec,
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
        pytest.param([spec("a")], {}, (), "needs nothing special; no host is there", id="no host"),
        pytest.param(
            [spec("a", gpu=1)],
            {"h": PLAIN, "i": {"gpu": 0}},
            (),
            "needs 1 gpu; h declares no gpu; i has 0 gpu left",
            id="not declared, and none left",
        ),
        pytest.param(
            [spec("a", gpu=1), spec("b", gpu=2)],
            {"h": BIG},
            (),
            "needs 1 gpu; h has 0 gpu left beside b",
            id="taken by another",
        ),
        pytest.param(
            [spec("a")],
            {"h": PLAIN},
            [("a", "h")],
            "needs nothing special; h would not start it",
            id="barred",
        ),
    ],
)
def test_who_goes_nowhere_is_told_why_host_by_host(
    specs: list[PlacedSpec], hosts: dict[str, dict[str, int]], barred: list[tuple[str, str]], why: str
) -> None:
    assert place(specs, hosts, {}, barred).unplaced == {"a": why}


def test_a_need_below_zero_is_refused_by_name() -> None:
    with pytest.raises(InvalidChildSpec, match=r"placed 'a': needs\.gpu must be at least 0, got -1"):
        spec("a", gpu=-1)


def test_a_placed_name_belongs_to_no_machine() -> None:
    with pytest.raises(InvalidChildSpec, match="placed 'a@b': its id must have no '@'"):
        spec("a@b")


# ---- the bookkeeping ----


def test_a_lost_hosts_actors_are_started_on_another_that_suffices_under_a_higher_number() -> None:
    core = PlacementCore()
    core.host_up("b", 1, SMALL, 0.0)
    core.host_up("c", 1, SMALL, 0.0)
    one, two = spec("one", gpu=1), spec("two", gpu=1)
    assert core.wanted(one, 0.0) == [Start("b", 1, 1, one)]
    assert core.wanted(two, 0.0) == [Start("c", 1, 2, two)]
    assert core.host_down("b", 1, 9.0) == []
    assert core.unplaced == {"one": "needs 1 gpu; c has 0 gpu left beside two"}
    assert core.host_up("d", 1, SMALL, 10.0) == [Start("d", 1, 3, one)]
    assert core.unplaced == {}


def test_a_host_that_comes_back_bears_a_new_epoch_and_carries_nothing_of_the_old() -> None:
    core = PlacementCore()
    core.host_up("b", 4, PLAIN, 0.0)
    core.wanted(spec("one"), 0.0)
    assert core.host_up("b", 5, PLAIN, 1.0) == [Start("b", 5, 2, spec("one"))], (
        "the loss was never noticed here"
    )
    assert core.hosts == {"b": CarryingHost(5, PLAIN)}


def test_late_news_of_an_earlier_epoch_or_placement_change_nothing_and_are_counted() -> None:
    core = PlacementCore()
    core.host_up("b", 2, PLAIN, 0.0)
    core.wanted(spec("one"), 0.0)
    core.host_down("b", 2, 1.0)
    core.host_up("b", 3, PLAIN, 2.0)
    before = (dict(core.carried), dict(core.hosts))
    assert core.host_down("b", 2, 3.0) == []
    assert core.host_up("b", 2, SMALL, 3.0) == []
    core.started("one", 1)
    assert core.refused("one", 1, 0, 3.0) == []
    core.started("never heard of", 7)
    assert (core.carried, core.hosts) == before
    assert core.late == 5


def test_a_host_that_refuses_is_left_alone_for_a_while_and_another_is_tried() -> None:
    core = PlacementCore()
    core.host_up("b", 1, PLAIN, 0.0)
    core.host_up("c", 1, PLAIN, 0.0)
    core.wanted(spec("one"), 0.0)
    assert core.refused("one", 1, 0, 1.0) == [Start("c", 1, 2, spec("one"))]
    assert core.refused("one", 2, 0, 2.0) == []
    assert core.unplaced == {"one": "needs nothing special; b would not start it; c would not start it"}
    assert core.tick(RETRY_S) == []
    assert core.tick(RETRY_S + 1.0) == [Start("b", 1, 3, spec("one"))]


def test_a_placement_number_the_host_has_seen_before_is_repeated_above_it_at_once() -> None:
    core = PlacementCore()
    core.host_up("b", 1, PLAIN, 0.0)
    core.wanted(spec("one"), 0.0)
    assert core.refused("one", 1, 40, 1.0) == [Start("b", 1, 41, spec("one"))]


def test_what_is_not_wanted_any_more_is_stopped_and_makes_room() -> None:
    core = PlacementCore()
    core.host_up("b", 1, SMALL, 0.0)
    core.wanted(spec("one", gpu=1), 0.0)
    core.started("one", 1)
    assert core.wanted(spec("two", gpu=1), 0.0) == []
    assert core.unwanted("one", 1.0) == [CallOff("b", 1, 1, "one"), Start("b", 1, 2, spec("two", gpu=1))]
    assert core.unwanted("one", 1.0) == []


def test_what_was_called_off_is_started_nowhere_until_its_host_says_that_it_has_ended() -> None:
    core = PlacementCore()
    core.host_up("b", 1, PLAIN, 0.0)
    core.host_up("c", 1, PLAIN, 0.0)
    core.wanted(spec("one"), 0.0)
    order = CallOff("b", 1, 1, "one")
    assert core.unwanted("one", 1.0) == [order]
    assert core.wanted(spec("one"), 2.0) == []
    assert core.unplaced == {"one": "it is being stopped on 'b' first"}
    assert core.is_ending(order)
    assert core.ended(order, 3.0) == [Start("b", 1, 2, spec("one"))]
    assert not core.is_ending(order)
    assert core.ended(order, 3.0) == []


def test_what_was_called_off_on_a_host_that_is_lost_then_is_started_elsewhere() -> None:
    core = PlacementCore()
    core.host_up("b", 1, PLAIN, 0.0)
    core.host_up("c", 1, PLAIN, 0.0)
    core.wanted(spec("one"), 0.0)
    core.unwanted("one", 1.0)
    core.wanted(spec("one"), 2.0)
    assert core.host_down("b", 1, 3.0) == [Start("c", 1, 2, spec("one"))]


def test_a_start_that_nobody_answered_is_called_off_before_another_host_is_tried() -> None:
    core = PlacementCore()
    core.host_up("b", 1, PLAIN, 0.0)
    core.host_up("c", 1, PLAIN, 0.0)
    core.wanted(spec("one"), 0.0)
    order = CallOff("b", 1, 1, "one")
    assert core.unanswered("one", 1, 1.0) == [order]
    assert core.unanswered("one", 1, 1.0) == []
    assert core.ended(order, 2.0) == [Start("c", 1, 2, spec("one"))]
