"""Where explorers go next, over graphs whose ways are known."""

import random
from dataclasses import replace

import numpy as np
import pytest

from dart.config.sections import ExplorationSettings
from dart.core.exploration import Effect
from dart.exploration.coverage import CoveragePoint
from dart.exploration.graph import Graph
from dart.exploration.memory_q import constant_prior
from dart.exploration.planning import (
    RESETS_FAILED_MOST,
    START,
    AllExplored,
    Assignment,
    Waiting,
    failed_resets,
    frontier,
    next_assignment,
)
from dart.exploration.strategies import LeastTried, MemoryQStrategy, RandomWalk, strategy_named
from dart.exploration.ways import depths, nearest
from tests.unit.exploration.screens import chain, click, node, screen, step

SETTINGS = ExplorationSettings(actions=1000, confirm_share=0.0, stops_when_flat=False)


def test_the_nearest_screen_is_reached_from_here_or_after_a_reset_whichever_is_shorter() -> None:
    graph = chain(6, untried=(2, 6))
    from_three = nearest(graph, 3, lambda one: one == 6)
    assert from_three is not None
    assert not from_three.begins_with_reset
    assert [hop.target_id for hop in from_three.hops] == [4, 5, 6]
    back = nearest(graph, 3, lambda one: one == 2)
    assert back is not None
    assert back.begins_with_reset
    assert (back.cost, [hop.target_id for hop in back.hops]) == (2, [2])


def test_depths_are_those_of_the_shortest_known_ways() -> None:
    graph = chain(5)
    graph.add_step(step(99, 1, click("other", 1).key, Effect.KNOWN_SCREEN, 5, is_expansion=False))
    graph.add_step(step(100, 1, click("other", 1).key, Effect.KNOWN_SCREEN, 5, is_expansion=False))
    assert depths(graph) == {1: 0, 2: 1, 3: 2, 4: 3, 5: 1}


def test_the_shortest_of_several_ways_counts_whichever_was_found_first() -> None:
    graph = Graph()
    for number in range(1, 6):
        graph.add_node(node(number, screen(f"page {number}", [f"to {target}" for target in range(6)])))
    graph.add_step(step(1, None, "", Effect.NEW_SHAPE, 1))
    for source, target in ((1, 2), (1, 3), (3, 4), (4, 5), (2, 5)):
        to = click(f"to {target}", target).key
        graph.add_step(step(10 * source + target, source, to, Effect.KNOWN_SCREEN, target))
    assert depths(graph) == {1: 0, 2: 1, 3: 1, 4: 2, 5: 2}


def test_a_way_after_a_reset_begins_at_the_newest_start_screen_and_a_depth_at_any() -> None:
    graph = chain(3)
    graph.add_node(node(4, screen("other start", ("next",))))
    graph.add_step(step(50, None, "", Effect.NEW_SCREEN, 4))
    assert graph.roots == (4, 1)
    assert nearest(graph, None, lambda one: one == 2) is None
    assert depths(graph) == {1: 0, 2: 1, 3: 2, 4: 0}


def test_a_way_that_holds_at_half_of_its_tries_is_used() -> None:
    graph = chain(3)
    graph.add_step(step(50, 1, click("next").key, Effect.KNOWN_SCREEN, 3, is_expansion=False))
    way = nearest(graph, 1, lambda one: one == 2)
    assert way is not None
    assert [hop.target_id for hop in way.hops] == [2]


def test_a_way_that_leads_elsewhere_more_often_than_not_is_none() -> None:
    graph = Graph()
    for number in (1, 2, 3):
        graph.add_node(node(number, screen(f"page {number}")))
    graph.add_step(step(1, None, "", Effect.NEW_SHAPE, 1))
    for step_id, target in ((2, 2), (3, 3), (4, None)):
        graph.add_step(step(step_id, 1, click("ok").key, Effect.KNOWN_SCREEN, target))
    assert nearest(graph, 1, lambda one: one in (2, 3)) is None


def test_a_way_at_which_the_environment_broke_more_often_than_not_is_none() -> None:
    graph = chain(3)
    for number, is_used in ((50, True), (51, False)):
        graph.add_step(step(number, 1, click("next").key, Effect.FAULT, None, is_expansion=False))
        assert (nearest(graph, None, lambda one: one == 3) is not None) is is_used


def test_screens_that_are_held_given_up_or_too_deep_are_not_expanded() -> None:
    graph = chain(6, untried=(2, 4, 6))
    assert frontier(graph, given_up=(), max_depth=8) == {2: 1, 4: 1, 6: 1}
    assert frontier(graph, given_up=(4,), max_depth=5) == {2: 1}
    found = next_assignment(graph, 1, held={2}, given_up=(), settings=SETTINGS)
    assert isinstance(found, Assignment)
    assert found.screen_id == 4


def test_without_a_free_screen_an_explorer_waits_for_those_of_others() -> None:
    graph = chain(2, untried=(2,))
    assert next_assignment(graph, 1, held={2}, given_up=(), settings=SETTINGS) == Waiting()


def test_exploration_ends_when_everything_was_tried_and_when_the_actions_are_used_up() -> None:
    done = next_assignment(chain(2), 1, held=(), given_up=(), settings=SETTINGS)
    assert isinstance(done, AllExplored)
    assert "every action was tried" in done.reason
    few = SETTINGS.model_copy(update={"actions": 4})
    used_up = next_assignment(chain(2, untried=(2,)), 1, held=(), given_up=(), settings=few)
    assert used_up == AllExplored("all 4 actions are used up")


def test_actions_that_changed_the_screen_once_are_repeated_at_the_end() -> None:
    graph = chain(3)
    settings = SETTINGS.model_copy(update={"confirm_share": 0.2})
    found = next_assignment(graph, 2, held=(), given_up=(), settings=settings)
    assert isinstance(found, Assignment)
    assert (found.screen_id, found.repeats) == (2, click("next").key)
    for number, source in ((50, 1), (51, 2)):
        again = step(number, source, click("next").key, Effect.KNOWN_SCREEN, source + 1, is_expansion=False)
        graph.add_step(again)
    assert isinstance(next_assignment(graph, 2, held=(), given_up=(), settings=settings), AllExplored)


def test_the_last_actions_are_for_known_ones_though_something_is_left_to_try() -> None:
    graph = chain(5, untried=(5,))
    assert graph.actions == 10
    for actions, repeats in ((20, click("next").key), (21, "")):
        settings = SETTINGS.model_copy(update={"actions": actions, "confirm_share": 0.5})
        found = next_assignment(graph, 5, held=(), given_up=(), settings=settings)
        assert isinstance(found, Assignment)
        assert found.repeats == repeats


def test_no_action_is_repeated_on_a_screen_that_another_explorer_holds_or_that_is_given_up() -> None:
    graph = chain(3)
    settings = SETTINGS.model_copy(update={"actions": 10, "confirm_share": 0.5})
    for held, given_up in (({2}, ()), ((), {2})):
        found = next_assignment(graph, 2, held=held, given_up=given_up, settings=settings)
        assert isinstance(found, Assignment)
        assert (found.screen_id, found.repeats) == (1, click("next").key)


def test_a_flat_curve_ends_new_actions_only_if_that_is_wanted() -> None:
    graph = chain(2, untried=(2,))
    graph.add_step(step(200, 1, click("next").key, Effect.KNOWN_SCREEN, 2, is_expansion=False))
    assert isinstance(next_assignment(graph, 1, (), (), SETTINGS), Assignment)
    stops = SETTINGS.model_copy(update={"stops_when_flat": True})
    found = next_assignment(graph, 1, (), (), stops)
    assert isinstance(found, AllExplored)
    assert "the coverage curve is flat" in found.reason


def test_random_walks_begin_one_after_the_other_at_the_start_screen() -> None:
    graph, settings = chain(3), SETTINGS.model_copy(update={"strategy": "random"})
    found = next_assignment(graph, 2, held={2}, given_up=(), settings=settings)
    assert isinstance(found, Assignment)
    assert (found.screen_id, found.way.begins_with_reset, found.way.hops) == (1, True, ())
    assert next_assignment(graph, 2, held={1}, given_up=(), settings=settings) == Waiting()


def test_a_random_walk_begins_at_whichever_start_screen_is_shown_if_it_varies() -> None:
    graph, settings = chain(3), SETTINGS.model_copy(update={"strategy": "random"})
    graph.add_step(step(60, None, "", Effect.KNOWN_SCREEN, 2, is_expansion=False))
    for held in ((), (1,), (2,)):
        found = next_assignment(graph, 3, held, given_up=(), settings=settings)
        assert found == Assignment(way=START, screen_id=None)
    assert next_assignment(graph, 3, held=(1, 2), given_up=(), settings=settings) == Waiting()


def test_an_action_is_not_repeated_that_is_gone_or_was_not_there_when_its_screen_was_found() -> None:
    graph = chain(3)
    settings = SETTINGS.model_copy(update={"confirm_share": 0.2})
    graph.add_step(step(50, 1, click("next").key, Effect.LOST, None, is_expansion=False))
    graph.add_step(step(51, 1, click("next (2)").key, Effect.KNOWN_SCREEN, 2, is_expansion=False))
    found = next_assignment(graph, 1, held=(), given_up=(), settings=settings)
    assert isinstance(found, Assignment)
    assert (found.screen_id, found.repeats) == (2, click("next").key)


def test_a_site_that_shows_no_screen_is_given_up() -> None:
    graph = Graph()
    for number in range(1, RESETS_FAILED_MOST + 1):
        assert isinstance(next_assignment(graph, None, (), (), SETTINGS), Assignment)
        graph.add_step(step(number, None, "", Effect.FAULT, None))
    found = next_assignment(graph, None, (), (), SETTINGS)
    assert isinstance(found, AllExplored)
    assert f"{RESETS_FAILED_MOST} resets failed" in found.reason


def test_a_first_fault_leaves_an_action_untried_and_a_second_one_does_not() -> None:
    graph = chain(1, untried=(1,))
    key = click("other", 1).key
    graph.add_step(step(10, 1, key, Effect.FAULT, None, is_expansion=False))
    assert [one.key for one in graph.untried(1)] == [key]
    graph.add_step(step(11, 1, key, Effect.FAULT, None, is_expansion=True))
    assert graph.untried(1) == ()


def test_a_screen_matches_its_node_and_a_new_one_none() -> None:
    graph = chain(3)
    assert graph.match(screen("page 2", ("next", "other"))) == 2
    assert graph.match(screen("page 9", ("next", "other"))) is None
    assert graph.shapes == ("page 1", "page 2", "page 3")


def test_the_curve_of_a_graph_counts_actions_of_which_a_step_may_have_several() -> None:
    graph = Graph()
    for number, found_actions in ((1, 1), (2, 4)):
        graph.add_node(node(number, screen(f"page {number}"), found_actions=found_actions))
    graph.add_step(step(1, None, "", Effect.NEW_SHAPE, 1))
    graph.add_step(replace(step(2, 1, click("ok").key, Effect.NEW_SHAPE, 2), actions=4))
    assert graph.curve() == [CoveragePoint(0, 0, 0), CoveragePoint(1, 1, 1), CoveragePoint(4, 2, 2)]
    assert graph.actions == 4


def test_the_pictures_of_many_old_screens_are_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    concatenate = np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda parts: rows.append(1) or concatenate(parts))  # type: ignore[func-returns-value]
    graph = chain(50)
    assert graph.match(screen("page 20", ("next", "other"))) == 20
    assert len(rows) == 1
    graph.add_node(node(51, screen("page 51")))
    assert graph.match(screen("page 51")) == 51


def test_least_tried_and_memory_q_choose_what_was_not_tried_and_else_go_on() -> None:
    graph = chain(2, untried=(2,))
    present = graph.candidates(2)
    for strategy in (LeastTried(graph), MemoryQStrategy(graph, random.Random(0))):
        assert strategy.choose(2, present) == click("other", 1)
        assert strategy.choose(1, graph.candidates(1)) is None


@pytest.mark.parametrize(
    ("name", "kind"), [("random", RandomWalk), ("least_tried", LeastTried), ("memory_q", MemoryQStrategy)]
)
def test_each_strategy_is_found_by_its_name(name: str, kind: type) -> None:
    found = strategy_named(name, chain(2), random.Random(0), 8, constant_prior, lambda: None)
    assert type(found) is kind


def test_memory_q_prefers_the_kind_that_found_screens_before() -> None:
    graph = chain(1)
    strategy = MemoryQStrategy(graph, random.Random(0))
    finds, does_nothing = click("next"), click("other", 1)
    for number in range(4):
        strategy.memory.learn(100 + number, finds, Effect.NEW_SHAPE, None)
        strategy.memory.learn(100 + number, does_nothing, Effect.NO_CHANGE, None)
    assert strategy.choose(7, [does_nothing, finds]) == finds


@pytest.mark.parametrize("before", [0, 3, 8, 9])
def test_a_random_walk_ends_after_a_while_and_begins_anew_with_each_lease(before: int) -> None:
    walk = RandomWalk(random.Random(0), max_depth=2)
    for _ in range(before):
        walk.choose(1, [click("ok")])
    walk.began()
    chosen = [walk.choose(1, [click("ok")]) for _ in range(9)]
    assert [one is None for one in chosen] == [False] * 8 + [True]


def test_what_was_tried_on_a_screen_comes_with_its_newest_effect_and_the_newest_first() -> None:
    graph = Graph()
    graph.add_node(node(1, screen("home", ("a", "b", "c"))))
    graph.add_node(node(2, screen("other", ("a",))))
    graph.add_step(step(1, None, "", Effect.NEW_SHAPE, 1))
    graph.add_step(step(2, 1, click("a").key, Effect.NEW_SHAPE, 2))
    graph.add_step(step(3, 1, click("b", 1).key, Effect.NO_CHANGE, 1))
    graph.add_step(step(4, 1, click("a").key, Effect.KNOWN_SCREEN, 2, is_expansion=False))
    graph.add_step(step(5, 1, click("c", 2).key, Effect.FAULT, None, is_expansion=False))
    assert graph.tried(1) == ((click("a"), Effect.KNOWN_SCREEN), (click("b", 1), Effect.NO_CHANGE))
    assert graph.untried(1) == (click("c", 2),)
    assert graph.tried(2) == ()


def test_memory_q_ranks_by_value_and_the_other_strategies_keep_the_order() -> None:
    graph = chain(1)
    both = [click("next"), click("other", 1)]
    preferred = MemoryQStrategy(graph, random.Random(0), lambda _, one: 0.9 if one.text == "other" else 0.1)
    assert preferred.ranked(1, both) == both[::-1]
    assert MemoryQStrategy(graph, random.Random(0)).ranked(1, both) == both
    assert LeastTried(graph).ranked(1, both) == both
    assert RandomWalk(random.Random(0), 8).ranked(1, both) == both


def test_a_resumed_run_tries_again_to_show_a_site_that_was_given_up() -> None:
    graph = Graph()
    for number in range(RESETS_FAILED_MOST):
        graph.add_step(step(number + 1, None, "", Effect.FAULT, None))
    before = failed_resets(graph)
    assert isinstance(next_assignment(graph, None, (), (), SETTINGS, before), Assignment)
    for number in range(RESETS_FAILED_MOST):
        graph.add_step(step(number + 100, None, "", Effect.FAULT, None))
    assert isinstance(next_assignment(graph, None, (), (), SETTINGS, before), AllExplored)
