"""What exploration may do with the elements of a page, and the candidates that follow."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from actors.codec import MAX_MESSAGE_BYTES, packed_bytes
from dart.core import messages as m
from dart.core.actions import Click, Hotkey, Scroll, Type
from dart.core.errors import UsageError
from dart.core.exploration import Candidate, ExploreAct, LeaseMove, PageElement, PageScreen
from dart.core.origins import AllowedOrigins, is_local
from dart.environments.faults import InfrastructureFault
from dart.exploration.candidates import CANDIDATES_MOST, actions_of, candidates_of, text_for
from dart.exploration.matching import grid_of, no_volatile_cells, structure_of, volatile_cells
from dart.exploration.page_look import ELEMENTS_MOST, NODES_MOST, acts_of, checked_look, screen_of
from tests.pictures import png
from tests.unit.exploration.screens import button, screen

PAGE = "http://shop.localhost/cart"
ALLOWED = AllowedOrigins(PAGE)


def found(**changes: Any) -> dict[str, Any]:
    return {
        "role": "link",
        "acts": True,
        "is_enabled": True,
        "is_clear": True,
        "is_field": False,
        "opens": False,
        "leads_to": "",
        "sends_to": "",
    } | changes


@pytest.mark.parametrize(
    ("changes", "acts"),
    [
        ({"leads_to": "http://shop.localhost/home"}, (ExploreAct.CLICK,)),
        ({"leads_to": "http://elsewhere.example/"}, ()),
        ({"leads_to": "http://forum.localhost/"}, ()),
        ({"leads_to": "javascript:void(0)"}, (ExploreAct.CLICK,)),
        ({"leads_to": "http://[bad"}, ()),
        ({"leads_to": "javascript://[%0avoid(0)"}, ()),
        ({"is_enabled": False}, ()),
        ({"is_clear": False}, ()),
        ({"opens": True}, ()),
        ({"role": "file"}, ()),
        ({"role": "color"}, ()),
        ({"role": "slider"}, ()),
        ({"role": "button", "sends_to": "http://shop.localhost/order"}, (ExploreAct.CLICK,)),
        ({"role": "button", "sends_to": "https://elsewhere.example/order"}, ()),
        ({"is_field": True}, (ExploreAct.TYPE,)),
        (
            {"is_field": True, "sends_to": "http://shop.localhost/search"},
            (ExploreAct.TYPE, ExploreAct.SUBMIT),
        ),
        ({"is_field": True, "sends_to": "http://127.0.0.1:8000/search"}, (ExploreAct.TYPE,)),
        ({"is_field": True, "sends_to": "https://elsewhere.example/search"}, (ExploreAct.TYPE,)),
    ],
)
def test_an_element_may_be_used_only_within_the_allowed_origins(
    changes: dict[str, Any], acts: tuple[ExploreAct, ...]
) -> None:
    assert acts_of(found(**changes), PAGE, ALLOWED) == acts


HEADER_BYTES = 1024
"""More than the names and numbers around a message take."""


def look(text: str, elements: int = 1, nodes: int = 1) -> dict[str, Any]:
    """A look at a page on which each text is this one."""
    one = found(
        role=text, text=text, box=[1000, 1000, 2000, 2000], has_text=True, is_field=True, sends_to=PAGE
    )
    return {
        "url": f"{PAGE}?{text}",
        "title": text,
        "width": 2000,
        "height": 2000,
        "nodes": [[number, text, text, [0, 0, 9, 9], text, text] for number in range(nodes)],
        "elements": [one] * elements,
        "is_above": True,
        "is_below": True,
    }


@pytest.mark.parametrize("character", ["\U0001f600", "\u4e16", "a", "\ud83d"])
def test_a_report_of_the_largest_page_fits_into_a_message(character: str) -> None:
    shown = look(character * 3000, elements=ELEMENTS_MOST + 1, nodes=NODES_MOST + 1)
    seen = screen_of(shown, shown, [png(100, 100, 0), png(100, 100, 255)], ALLOWED)
    report = m.ExploredReport(
        fence=2**40,
        number=2**40,
        cost=3,
        source_id=2**40,
        candidate=candidates_of(seen)[0],
        effect=None,
        screen=seen,
        move=LeaseMove.FOLLOW,
    )
    assert packed_bytes(report) <= MAX_MESSAGE_BYTES - HEADER_BYTES


def test_a_whole_look_is_returned_as_it_is() -> None:
    shown = look("ok", elements=2, nodes=2)
    assert checked_look(json.loads(json.dumps(shown))) == {
        **shown,
        "nodes": [(number, "ok", "ok", (0, 0, 9, 9), "ok", "ok") for number in range(2)],
        "elements": [one | {"box": (1000, 1000, 2000, 2000)} for one in shown["elements"]],
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": None},
        {"nodes": [[1, "a"]]},
        {"nodes": [[1, "a", "b", [0, 0, 0.5, 1], "c", "d"]]},
        {"width": 2**70},
        {"title": 5},
        {"elements": [{}]},
        {"elements": [found(text="a", has_text=True, box=[0, None, 1, 1])]},
        {"is_below": "yes"},
    ],
)
def test_a_look_that_a_page_has_spoiled_is_a_fault_of_its_environment(changes: dict[str, Any]) -> None:
    with pytest.raises(InfrastructureFault, match="the page spoils its description for exploration: Look: "):
        checked_look(look("ok") | changes)


@pytest.mark.parametrize("returned", [None, [], "a page"])
def test_what_is_no_look_at_all_is_a_fault_of_its_environment(returned: Any) -> None:
    with pytest.raises(InfrastructureFault, match="Expected `object`"):
        checked_look(returned)


def two_looks(first: dict[str, Any], last: dict[str, Any]) -> PageScreen:
    """The screen of two looks at a page that is white and then has become grey."""
    return screen_of(look("ok") | first, look("ok") | last, [png(100, 100, 255), png(100, 100, 128)], ALLOWED)


def test_a_screen_is_that_of_the_second_look() -> None:
    seen = two_looks({"title": "before"}, {"title": "after"})
    assert seen.title == "after"
    assert seen.screenshot_sha256 == hashlib.sha256(png(100, 100, 128)).hexdigest()
    assert seen.grid == grid_of(png(100, 100, 128))


def test_what_changes_by_itself_between_two_looks_counts_in_neither_distance() -> None:
    def nodes(clock: str) -> dict[str, Any]:
        return {"nodes": [[0, "p", "", [0, 0, 9, 9], clock, ""], [0, "p", "", [0, 9, 9, 18], "News", ""]]}

    seen = two_looks(nodes("12:00"), nodes("12:01"))
    assert seen.structure == structure_of(["0|p||0,2,2,4|News|"])
    assert seen.volatile == volatile_cells(grid_of(png(100, 100, 255)), grid_of(png(100, 100, 128)))
    assert seen.volatile != no_volatile_cells()


def test_a_node_of_the_structure_has_its_state_and_its_place_to_four_pixels() -> None:
    def seen(left: int, state: str) -> PageScreen:
        now = {"nodes": [[0, "input", "big", [left, 0, 9, 9], "", state]]}
        return two_looks(now, now)

    assert seen(4, "").structure == seen(7, "").structure
    assert seen(4, "").structure != seen(8, "").structure
    assert seen(4, "").structure != seen(4, "checked").structure
    assert seen(4, "").shape == seen(8, "checked").shape


@pytest.mark.parametrize(
    ("is_below", "is_above", "scrolls"),
    [
        (False, False, ()),
        (True, False, (ExploreAct.SCROLL_DOWN,)),
        (False, True, (ExploreAct.SCROLL_UP,)),
    ],
)
def test_a_screen_is_scrolled_where_there_is_more_of_the_page(
    is_below: bool, is_above: bool, scrolls: tuple[ExploreAct, ...]
) -> None:
    now = {"is_below": is_below, "is_above": is_above}
    assert two_looks(now, now).scrolls == scrolls


def test_an_element_keeps_whether_it_can_be_seen_and_whether_its_text_is_written_on_the_page() -> None:
    (written,) = look("ok")["elements"]
    now = {"elements": [written, written | {"is_clear": False}, written | {"has_text": False}]}
    seen = [(one.is_clear, one.has_text) for one in two_looks(now, now).elements]
    assert seen == [(True, True), (False, True), (True, False)]


def test_half_a_character_of_a_page_becomes_a_question_mark() -> None:
    seen = screen_of(*[look("caf\ud83d")] * 2, [png(100, 100, 0)] * 2, ALLOWED)
    assert (seen.title, seen.url) == ("caf?", f"{PAGE}?caf?")
    assert (seen.elements[0].text, seen.elements[0].role) == ("caf?", "caf?")


def test_forms_go_to_this_machine_only_even_where_another_origin_may_be_opened() -> None:
    allowed = AllowedOrigins(PAGE, ["https://elsewhere.example"])
    assert acts_of(found(leads_to="https://elsewhere.example/"), PAGE, allowed) == (ExploreAct.CLICK,)
    assert acts_of(found(role="button", sends_to="https://elsewhere.example/"), PAGE, allowed) == ()


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("file:///pages/a.html", True),
        ("http://127.0.0.1:8000/", True),
        ("http://[::1]/", True),
        ("http://shop.localhost/", True),
        ("http://localhost.example/", False),
        ("http://127.0.0.1.example/", False),
        ("mailto:someone@localhost", False),
    ],
)
def test_what_is_on_this_machine(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_a_start_screen_elsewhere_has_to_be_named() -> None:
    with pytest.raises(
        UsageError, match=r"name its origin \(https://elsewhere.example\) in exploration.origins"
    ):
        AllowedOrigins("https://elsewhere.example/start")
    assert AllowedOrigins("https://elsewhere.example/start", ["https://elsewhere.example"]).allow(
        "/next", "https://elsewhere.example/start"
    )


def test_case_and_the_default_port_make_no_other_origin() -> None:
    allowed = AllowedOrigins("http://shop.localhost:80/", ["HTTPS://Elsewhere.example:443"])
    assert allowed.allow("http://SHOP.localhost/cart")
    assert allowed.allow("https://elsewhere.example/")
    assert not allowed.allow("http://shop.localhost:8080/")


def test_files_of_one_folder_are_an_origin() -> None:
    allowed = AllowedOrigins("file:///pages/miniwob/a.html?seed=1")
    assert allowed.allow("file:///pages/miniwob/b.html")
    assert not allowed.allow("file:///etc/passwd")


def test_of_elements_at_one_point_the_first_is_the_candidate() -> None:
    label, box = button("Save"), button("Save box")
    shown = screen("a", elements=(label, box, button("Other", row=2)))
    assert [one.text for one in candidates_of(shown)] == ["Save", "Other"]


def test_candidates_are_bounded_and_named_apart_by_place() -> None:
    shown = screen("a", elements=[button("Buy", row=row) for row in range(CANDIDATES_MOST + 5)])
    found_keys = {one.key for one in candidates_of(shown)}
    assert len(found_keys) == CANDIDATES_MOST


def test_a_screen_with_more_elements_than_candidates_is_scrolled_nevertheless() -> None:
    scrolls = (ExploreAct.SCROLL_DOWN, ExploreAct.SCROLL_UP)
    many = [button("Buy", row=row) for row in range(CANDIDATES_MOST + 5)]
    found = candidates_of(replace(screen("a", elements=many), scrolls=scrolls))
    assert len(found) == CANDIDATES_MOST
    assert [one.act for one in found[-2:]] == [*scrolls]
    assert [one.box for one in found[:-2]] == [one.box for one in many[: CANDIDATES_MOST - 2]]


def test_a_key_survives_a_small_move() -> None:
    one = Candidate(act=ExploreAct.CLICK, role="link", text="Home", box=(8, 8, 40, 20))
    assert one.key == Candidate(act=ExploreAct.CLICK, role="link", text="Home", box=(10, 9, 42, 21)).key
    assert one.key != Candidate(act=ExploreAct.CLICK, role="link", text="Home", box=(16, 8, 48, 20)).key


def test_candidates_are_written_in_the_action_grammar() -> None:
    field = PageElement(
        role="textbox", text="Name", box=(10, 10, 31, 21), acts=(ExploreAct.TYPE, ExploreAct.SUBMIT)
    )
    shown = screen("a", elements=(field,))
    type_it, submit_it = candidates_of(shown)
    assert actions_of(type_it, shown, ["lamp"]) == (Click(20, 15), Hotkey(("ctrl", "a")), Type("lamp"))
    assert actions_of(submit_it, shown, ["lamp"])[-1] == Type("lamp\n")
    scrolls = (ExploreAct.SCROLL_DOWN, ExploreAct.SCROLL_UP)
    assert [one.act for one in candidates_of(replace(shown, scrolls=scrolls))][2:] == [*scrolls]
    for act, direction in zip(scrolls, ("down", "up"), strict=True):
        (scroll,) = actions_of(Candidate(act=act), shown, ["lamp"])
        assert scroll == Scroll(50, 50, direction)


def test_a_field_gets_the_same_text_wherever_it_is_and_other_fields_get_others() -> None:
    texts = ["lamp", "chair", "table"]

    def typed(label: str, left: int) -> str:
        box = left, 10, left + 20, 20
        return text_for(Candidate(act=ExploreAct.TYPE, role="textbox", text=label, box=box), texts)

    assert typed("Name", 10) == typed("Name", 60)
    assert {typed(label, 10) for label in ("a", "b", "c")} == set(texts)
