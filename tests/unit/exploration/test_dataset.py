"""Queries from an exploration graph: what is ambiguous, hidden, doubled or seen once is left out."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dart.core.errors import UsageError
from dart.core.exploration import Candidate, Effect, ExploreAct, PageElement, ScreenNode
from dart.core.screenspot import read_screenspot
from dart.exploration.dataset import (
    MOST_EACH,
    QueryKind,
    Split,
    distinct_screens,
    outcome_words,
    queries_of,
    split_of_shapes,
    targets,
)
from dart.exploration.dataset_files import sample_of, write_dataset
from dart.exploration.graph import Graph
from dart.store.run_blobs import local_blobs
from tests.pictures import png
from tests.unit.exploration.screens import SEED, TASK, button, chain, click, node, screen, step


def heading(text: str) -> PageElement:
    return PageElement(role="heading", text=text, box=(0, 90, 90, 99))


def graph_of_two(tries: int, *, other_way: bool = False) -> Graph:
    """`Cart` leads from the first screen to one with a heading; with `other_way` `Basket` does, too."""
    graph = Graph()
    graph.add_node(node(1, screen("home", elements=(button("Cart"), button("Basket", 1)))))
    graph.add_node(node(2, screen("cart", elements=(button("Cart"), heading("Shopping cart")))))
    graph.add_step(step(1, None, "", Effect.NEW_SHAPE, 1))
    for number in range(tries):
        graph.add_step(step(2 + number, 1, click("Cart").key, Effect.KNOWN_SCREEN, 2, is_expansion=False))
        if other_way:
            key = click("Basket", 1).key
            graph.add_step(step(20 + number, 1, key, Effect.KNOWN_SCREEN, 2, is_expansion=False))
    return graph


def kinds(graph: Graph) -> Counter[QueryKind]:
    return Counter(query.kind for query in queries_of(graph))


def test_an_outcome_is_named_by_the_heading_that_appeared() -> None:
    (outcome,) = (one for one in queries_of(graph_of_two(2)) if one.kind is QueryKind.OUTCOME)
    assert outcome.instruction == 'open "Shopping cart"'
    assert (outcome.element.text, outcome.target_id, outcome.step_id) == ("Cart", 2, 2)


@pytest.mark.parametrize("effect", [Effect.FAULT, Effect.LOST])
def test_the_step_of_an_outcome_is_one_that_led_there(effect: Effect) -> None:
    graph = Graph()
    for number, title in ((1, "home"), (2, "cart")):
        graph.add_node(node(number, screen(title, ("Open",))))
    graph.add_step(step(1, 1, click("Open").key, effect, None, is_expansion=False))
    for number in (2, 3):
        graph.add_step(step(number, 1, click("Open").key, Effect.KNOWN_SCREEN, 2, is_expansion=False))
    (outcome,) = (one for one in queries_of(graph) if one.kind is QueryKind.OUTCOME)
    assert outcome.step_id == 2


def test_an_outcome_that_was_seen_once_or_changed_is_not_relied_on() -> None:
    assert kinds(graph_of_two(1))[QueryKind.OUTCOME] == 0
    changed = graph_of_two(3)
    changed.add_step(step(50, 1, click("Cart").key, Effect.NO_CHANGE, 1, is_expansion=False))
    assert kinds(changed)[QueryKind.OUTCOME] == 0


def test_an_outcome_that_two_elements_have_is_ambiguous() -> None:
    assert kinds(graph_of_two(2, other_way=True))[QueryKind.OUTCOME] == 0


def test_an_outcome_that_another_click_had_only_once_is_ambiguous() -> None:
    graph = graph_of_two(2)
    graph.add_step(step(20, 1, click("Basket", 1).key, Effect.KNOWN_SCREEN, 2))
    assert kinds(graph)[QueryKind.OUTCOME] == 0


def test_an_outcome_that_an_element_without_text_has_is_ambiguous() -> None:
    graph = Graph()
    graph.add_node(node(1, screen("home", elements=(button("Cart"), button("", 1)))))
    graph.add_node(node(2, screen("cart", elements=(button("Cart"), heading("Shopping cart")))))
    for number, key in enumerate((click("Cart").key, click("", 1).key) * 2):
        graph.add_step(step(1 + number, 1, key, Effect.KNOWN_SCREEN, 2, is_expansion=False))
    assert kinds(graph)[QueryKind.OUTCOME] == 0


def test_an_outcome_is_named_by_a_new_heading_then_a_new_title_then_a_text_that_appeared() -> None:
    before = screen("same", elements=(button("Old"),))
    after = screen("same", elements=(button("Old"), button("New", 1)))
    assert outcome_words(before, after) == 'show "New"'
    titled = replace(after, title="Titled")
    assert outcome_words(before, titled) == 'open "Titled"'
    assert outcome_words(before, replace(titled, elements=(heading("Headed"),))) == 'open "Headed"'
    assert outcome_words(before, before) == ""


def test_an_outcome_is_named_by_no_long_text_and_by_none_that_is_not_written_on_the_page() -> None:
    before = screen("same", elements=(button("Old"),))
    label = replace(button("Close", 2), has_text=False)
    after = screen("same", elements=(heading("x" * 41), label, button("New", 1)))
    assert outcome_words(before, after) == 'show "New"'


def test_what_typing_into_a_field_leads_to_is_no_outcome_and_makes_none_ambiguous() -> None:
    field = replace(button("Search", 1), acts=(ExploreAct.SUBMIT,))
    graph = Graph()
    graph.add_node(node(1, screen("home", elements=(field, button("Cart")))))
    graph.add_node(node(2, screen("cart", elements=(heading("Shopping cart"),))))
    keys = {one.act: one.key for one in graph.candidates(1)}
    found = []
    for number, act in enumerate((ExploreAct.SUBMIT, ExploreAct.CLICK)):
        for again in range(2):
            at = 10 * (number + 1) + again
            graph.add_step(step(at, 1, keys[act], Effect.KNOWN_SCREEN, 2, is_expansion=False))
        queries = (one for one in queries_of(graph) if one.kind is QueryKind.OUTCOME)
        found.append([(one.element.text, one.instruction) for one in queries])
    assert found == [[], [("Cart", 'open "Shopping cart"')]]


def test_a_heading_that_was_a_link_before_names_what_another_element_opens() -> None:
    before = screen("site", elements=(heading("Answer"), button("Field trip"), button("Discard", 1)))
    after = screen("site", elements=(heading("Field trip"),))
    assert outcome_words(before, after) == 'open "Field trip"'


def graph_of_links(after: Sequence[PageElement], *links: PageElement) -> Graph:
    """Links below the heading `Home` that all lead to a screen with these elements."""
    graph = Graph()
    graph.add_node(node(1, screen("site", elements=(heading("Home"), *links))))
    graph.add_node(node(2, screen("site", elements=after)))
    for number, link in enumerate((*links, *links)):
        key = Candidate(act=ExploreAct.CLICK, role=link.role, text=link.text, box=link.box).key
        graph.add_step(step(number + 1, 1, key, Effect.KNOWN_SCREEN, 2, is_expansion=False))
    return graph


def outcomes(graph: Graph) -> list[str]:
    return [query.instruction for query in queries_of(graph) if query.kind is QueryKind.OUTCOME]


def test_a_link_that_says_where_it_leads_gives_no_outcome_and_makes_others_ambiguous() -> None:
    after = heading("Settings"), button("Privacy", 1)
    said, other = button("Settings"), button("Preferences", 1)
    assert outcomes(graph_of_links(after, other)) == ['open "Settings"']
    assert outcomes(graph_of_links(after, said)) == []
    assert outcomes(graph_of_links(after, said, other)) == []


def test_the_tab_that_was_left_does_not_name_the_tab_that_was_clicked() -> None:
    """The open tab is no element, so the one that was left looks new."""
    menu, details = button("Menu"), button("Details", 1)
    after = heading("Home"), menu, button("Reviews", 2)
    assert outcomes(graph_of_links(after, menu)) == ['show "Reviews"']
    assert outcomes(graph_of_links(after, details)) == []
    assert outcomes(graph_of_links(after, menu, details)) == []


def test_equal_texts_are_told_apart_by_their_order() -> None:
    graph = Graph()
    graph.add_node(node(1, screen("list", elements=(button("Delete", 1), button("Delete", 0)))))
    found = {query.instruction: query.element.box[1] for query in queries_of(graph)}
    assert found == {
        'click the first "Delete" button from the top': 10,
        'click the second "Delete" button from the top': 22,
    }


def test_the_order_of_equal_texts_is_from_the_top_and_in_a_row_from_the_left() -> None:
    places = {(40, 30): "third", (60, 10): "second", (50, 10): "first"}
    elements = [replace(button("Delete"), box=(x, y, x + 8, y + 8)) for x, y in places]
    graph = Graph()
    graph.add_node(node(1, screen("list", elements=elements)))
    found = {query.element.box[:2]: query.instruction for query in queries_of(graph)}
    assert found == {at: f'click the {word} "Delete" button from the top' for at, word in places.items()}


@pytest.mark.parametrize(("equal", "queries"), [(6, 6), (7, 0)])
def test_more_than_six_equal_texts_give_no_query(equal: int, queries: int) -> None:
    graph = Graph()
    graph.add_node(node(1, screen("list", elements=[button("Delete", row) for row in range(equal)])))
    assert len(queries_of(graph)) == queries


def test_a_field_is_clicked_into() -> None:
    graph = Graph()
    graph.add_node(node(1, screen("form", elements=(replace(button("Name"), acts=(ExploreAct.TYPE,)),))))
    assert [query.instruction for query in queries_of(graph)] == ['click into the field "Name"']


def test_equal_texts_of_different_kinds_give_no_query() -> None:
    link = PageElement(role="link", text="Delete", box=(60, 60, 80, 70), acts=(ExploreAct.CLICK,))
    graph = Graph()
    graph.add_node(node(1, screen("list", elements=(button("Delete"), link))))
    assert queries_of(graph) == []


@pytest.mark.parametrize("others", [1, 3])
def test_a_text_that_an_element_besides_the_targets_also_has_gives_no_query(others: int) -> None:
    """Such an element is a link that opens another window, or a button that sends a form elsewhere."""
    besides = replace(button("Docs"), acts=())
    graph = Graph()
    graph.add_node(
        node(1, screen("a", elements=(besides, *(button("docs", row + 1) for row in range(others)))))
    )
    assert queries_of(graph) == []


@pytest.mark.parametrize(
    "besides",
    [
        heading("Docs"),
        replace(button("Docs", 1), acts=(), is_clear=False),
        PageElement(role="img", text="Docs", box=button("Docs").box),
    ],
)
def test_an_element_besides_the_targets_that_a_query_does_not_mean_leaves_the_query(
    besides: PageElement,
) -> None:
    graph = Graph()
    graph.add_node(node(1, screen("a", elements=(button("Docs"), besides))))
    assert [query.instruction for query in queries_of(graph)] == ['click "Docs"']


def test_hidden_nameless_and_huge_elements_are_no_targets() -> None:
    seen = button("Seen")
    shown = screen(
        "a",
        elements=(
            seen,
            replace(button("Covered", 1), is_clear=False),
            replace(button("Read only", 2), acts=()),
            button("", 3),
            replace(button("Everything", 4), box=(0, 0, 100, 99)),
        ),
    )
    assert targets(shown) == [seen]


def test_a_target_is_at_most_half_of_the_screen_and_its_text_at_most_forty_characters() -> None:
    long, too_long = button("x" * 40), button("x" * 41, 1)
    half = replace(button("half", 2), box=(0, 0, 100, 50))
    more = replace(button("more", 3), box=(0, 40, 100, 95))
    assert targets(screen("a", elements=(long, too_long, half, more))) == [long, half]


def test_of_targets_at_one_point_the_first_is_kept() -> None:
    assert targets(screen("a", elements=(button("Save"), button("Save box")))) == [button("Save")]


def test_no_screen_and_no_text_has_more_samples_than_the_bound() -> None:
    graph = Graph()
    for number in range(12):
        many = [button(f"Item {number}-{row}", row) for row in range(7)] + [button("Home", 7)]
        many[-1] = replace(many[-1], text="Home" if number % 2 else "HOME")
        graph.add_node(node(number + 1, screen(f"page {number}", elements=many, grey=20 * number)))
    found = queries_of(graph)
    assert max(Counter(query.screen_id for query in found).values()) == MOST_EACH
    assert Counter(query.element.text.casefold() for query in found)["home"] == MOST_EACH


def test_the_samples_of_a_screen_are_of_both_kinds_where_there_are_too_many() -> None:
    graph, many = Graph(), [button(f"Item {row}", row) for row in range(7)]
    graph.add_node(node(1, screen("home", elements=many)))
    for number, one in enumerate(many, start=2):
        graph.add_node(node(number, screen(f"page {number}", elements=(heading(f"Details {number}"),))))
        for again in range(2):
            key = click(one.text, number - 2).key
            graph.add_step(step(10 * number + again, 1, key, Effect.KNOWN_SCREEN, number, is_expansion=False))
    assert kinds(graph) == {QueryKind.OUTCOME: MOST_EACH // 2, QueryKind.ELEMENT: MOST_EACH // 2}


def test_screens_that_look_like_an_earlier_one_of_their_shape_are_left_out() -> None:
    alike = [node(number, screen(f"page {number}", shape="page", grey=80)) for number in (1, 2)]
    other = node(4, screen("page 4", shape="page", grey=200))
    elsewhere = node(3, screen("form", shape="form", grey=80))
    assert [one.screen_id for one in distinct_screens([*alike, elsewhere, other])] == [1, 3, 4]


def with_picture(one: ScreenNode, sha256: str) -> ScreenNode:
    return replace(one, screen=replace(one.screen, screenshot_sha256=sha256))


def test_screens_of_one_screenshot_are_kept_once_whatever_their_shapes() -> None:
    alike = [with_picture(node(number, screen(f"page {number}")), "a" * 64) for number in (1, 2)]
    other = with_picture(node(3, screen("page 3", grey=200)), "b" * 64)
    assert [one.screen_id for one in distinct_screens([*alike, other])] == [1, 3]


def test_a_screenshot_of_a_screen_that_is_left_out_keeps_no_other_screen_out() -> None:
    kept, left_out = (node(number, screen(f"page {number}", shape="page", grey=80)) for number in (1, 2))
    elsewhere = with_picture(node(3, screen("form", grey=80)), left_out.screen.screenshot_sha256)
    assert [one.screen_id for one in distinct_screens([kept, left_out, elsewhere])] == [1, 3]


def test_no_screenshot_is_in_two_splits_though_its_shapes_are(tmp_path: Path) -> None:
    blobs, graph = local_blobs(tmp_path).screenshots, Graph()
    for number in range(20):
        grey = 10 + 20 * (number // 2)
        one = node(number + 1, screen(f"page {number}", [f"Save {number // 2}"], grey=grey))
        graph.add_node(with_picture(one, blobs.put(png(100, 100, grey))))
    written = write_dataset(tmp_path / "data", graph, TASK, SEED, blobs, "runs/made-up")
    samples = [one for split in written for one in read_screenspot(tmp_path / "data" / split.value)]
    assert set(written) == set(Split)
    assert max(Counter((one.image.name, one.instruction) for one in samples).values()) == 1


def test_a_shape_is_in_one_split_whatever_else_there_is() -> None:
    shapes = [f"shape {number}" for number in range(20)]
    split = split_of_shapes(shapes, seed=1)
    assert Counter(split.values()) == {Split.TRAIN: 14, Split.VALIDATION: 3, Split.TEST: 3}
    assert split == split_of_shapes(reversed(shapes), seed=1)
    assert split != split_of_shapes(shapes, seed=2)
    assert split_of_shapes(["only"], seed=1) == {"only": Split.TRAIN}


def test_a_data_set_reads_back_with_its_provenance_and_shares_no_shape(tmp_path: Path) -> None:
    blobs = local_blobs(tmp_path).screenshots
    plain, graph = chain(8), Graph()
    for one in plain.nodes.values():
        graph.add_node(with_picture(one, blobs.put(png(100, 100, one.screen_id))))
    written = write_dataset(tmp_path / "data", graph, TASK, SEED, blobs, "runs/made-up")
    shapes = {}
    for split, count in written.items():
        samples = read_screenspot(tmp_path / "data" / split.value)
        assert len(samples) == count
        shapes[split] = {sample.provenance["shape"] for sample in samples}
        assert {sample.provenance["run"] for sample in samples} == {"runs/made-up"}
        entries = json.loads((tmp_path / "data" / split.value / "annotations.json").read_text())
        assert entries[0]["bbox"] == [10, 10, 40, 10]
    assert set(shapes) == set(Split)
    assert sum(map(len, shapes.values())) == len(set.union(*shapes.values()))


def test_an_empty_graph_gives_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"made-up/explore gives no samples: it has 0 screens; explore with more"
    ):
        write_dataset(tmp_path, Graph(), TASK, SEED, local_blobs(tmp_path).screenshots, "run")


def test_a_sample_says_what_its_element_is_and_where_it_comes_from(tmp_path: Path) -> None:
    blobs, graph = local_blobs(tmp_path).screenshots, Graph()
    icon = replace(button("Cart"), role="link", has_text=False)
    home = replace(screen("home", elements=(icon, button("Help", 1))), height=120)
    graph.add_node(with_picture(node(1, home), blobs.put(png(100, 120, 40))))
    graph.add_node(with_picture(node(2, screen("basket", ("Back",))), blobs.put(png(100, 100, 80))))
    key = Candidate(act=ExploreAct.CLICK, role="link", text="Cart", box=icon.box).key
    for number in (7, 8):
        graph.add_step(step(number, 1, key, Effect.KNOWN_SCREEN, 2, is_expansion=False))
    queries = [one for one in queries_of(graph) if one.screen_id == 1]
    cart, help_ = (
        sample_of(tmp_path / "data", one, graph, TASK, 5, blobs, "runs/made-up")
        for one in (queries[0], queries[-1])
    )
    assert (cart.instruction, cart.query, help_.query) == ('open "basket"', "outcome", "element")
    assert (cart.element_type, cart.kind, help_.element_type, help_.kind) == (
        "icon",
        "link",
        "text",
        "button",
    )
    assert (cart.width_px, cart.height_px, cart.source) == (100, 120, TASK)
    assert [(box.left, box.top) for box in cart.elements] == [(10, 10), (10, 22)]
    assert cart.provenance == {
        "run": "runs/made-up",
        "task": TASK,
        "seed": 5,
        "screen": 1,
        "shape": "home",
        "target": 2,
        "step": 7,
    }
    assert (help_.provenance["target"], help_.provenance["step"]) == (None, None)
