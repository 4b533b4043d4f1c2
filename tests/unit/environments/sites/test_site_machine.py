"""The machine of a site: guards, effects, goals, shortest paths, and mistakes of definitions."""

from dataclasses import replace

import pytest

from dart.environments.sites.machine import (
    Act,
    Add,
    Assign,
    Element,
    ElementNotShown,
    Field,
    Goal,
    Kind,
    Machine,
    RecordGuard,
    Restore,
    Scope,
    SearchTooLarge,
    SiteRecord,
    SiteState,
    Toggle,
    TypedText,
)
from dart.environments.sites.site import Actions, RecordChange, SiteDefinition, SiteScreen, button, link
from tests.unit.environments.sites.site_checks import SiteInvalid, check, mistakes_of

ADD = Element(Kind.BUTTON, "Add", effects=(Add("cart", 1),), guards=(RecordGuard("cart", "below", 2),))
PAY = Element(
    Kind.BUTTON, "Pay", "paid", (Assign("bought", 1), Restore("cart")), (RecordGuard("cart", "above", 0),)
)
FIND = Element(
    Kind.FORM, "Find", "nothing", fields=(Field("query", "Query"),), destinations=(("Shelf", "shelf"),)
)
NAME = Element(
    Kind.FORM, "Save", effects=(Assign("name", TypedText("name")),), fields=(Field("name", "Name"),)
)
OPEN = Element(Kind.MENU, "More", effects=(Assign("open", 1),), guards=(RecordGuard("open", "is", 0),))
ITEM = Element(Kind.MENU_ITEM, "Names", "names", guards=(RecordGuard("open", "is", 1),))


def machine() -> Machine:
    home = link("Home", "home")
    elements = {
        "home": (link("Shelf", "shelf"), FIND, OPEN, ITEM),
        "shelf": (home, ADD, PAY),
        "paid": (home,),
        "nothing": (home,),
        "names": (home, NAME, Element(Kind.CHECK_BOX, "Bold", effects=(Toggle("bold"),))),
    }
    records = {
        "cart": SiteRecord(0),
        "bought": SiteRecord(0),
        "name": SiteRecord(""),
        "bold": SiteRecord(0),
        "open": SiteRecord(0, Scope.TRANSIENT),
    }
    return Machine(elements, records, "home")


def path_to(goal: Goal) -> list[tuple[str, int]] | None:
    path = machine().shortest_path(machine().start, goal)
    return None if path is None else [(act.screen, act.element) for act in path]


def test_an_element_leads_on_and_changes_records_and_a_record_at_its_first_value_is_no_change() -> None:
    site = machine()
    state = site.fire(SiteState("shelf"), Act("shelf", 1))
    assert state == SiteState("shelf", (("cart", 1),))
    assert site.fire(state, Act("shelf", 2)) == SiteState("paid", (("bought", 1),))
    bold = site.fire(SiteState("names"), Act("names", 2))
    assert site.fire(bold, Act("names", 2)) == SiteState("names")


def test_an_element_whose_guard_fails_is_not_shown_and_cannot_be_used() -> None:
    site = machine()
    assert site.shown(SiteState("shelf")) == [0, 1]
    with pytest.raises(ElementNotShown, match="'Pay' is not shown on shelf"):
        site.fire(SiteState("shelf"), Act("shelf", 2))
    with pytest.raises(ElementNotShown, match="expected an element of home"):
        site.fire(SiteState("home"), Act("shelf", 0))
    full = SiteState("shelf", (("cart", 2),))
    assert site.shown(full) == [0, 2]


def test_an_open_menu_closes_with_the_next_transition() -> None:
    site = machine()
    opened = site.fire(site.start, Act("home", 2))
    assert site.shown(opened) == [0, 1, 3]
    assert site.fire(opened, Act("home", 0)) == SiteState("shelf")


def test_a_form_leads_where_its_text_says_without_regard_to_case() -> None:
    site = machine()
    assert site.fire(site.start, Act("home", 1, (("query", " sHELF "),))).screen == "shelf"
    assert site.fire(site.start, Act("home", 1, (("query", "shoes"),))).screen == "nothing"


def test_a_shortest_path_has_the_fewest_actions_and_a_form_counts_its_fields() -> None:
    assert path_to(Goal("shelf")) == [("home", 0)]
    assert path_to(Goal("names")) == [("home", 2), ("home", 3)]
    assert path_to(Goal(records=(("name", "Ada"),))) == [("home", 2), ("home", 3), ("names", 1)]
    path = machine().shortest_path(machine().start, Goal("nothing"))
    assert path is not None
    assert machine().num_actions(path) == 3


def test_a_path_meets_the_guards_on_records_that_the_goal_does_not_name() -> None:
    assert path_to(Goal(records=(("bought", 1),))) == [("home", 0), ("shelf", 1), ("shelf", 2)]


def test_a_goal_wants_everything_else_unchanged_unless_it_says_otherwise() -> None:
    assert path_to(Goal("paid", is_strict=False)) == [("home", 0), ("shelf", 1), ("shelf", 2)]
    assert path_to(Goal("paid")) is None
    changed = SiteState("shelf", (("bold", 1),))
    assert not machine().is_reached(Goal("shelf"), changed)
    assert machine().is_reached(Goal("shelf", (("bold", 1),)), changed)


def test_a_goal_that_cannot_be_reached_ends_the_search() -> None:
    assert path_to(Goal(records=(("cart", 3),))) is None
    endless = Machine({"home": (button("More", (Add("cart", 1),)),)}, {"cart": SiteRecord(0)}, "home")
    with pytest.raises(SearchTooLarge, match="found no path"):
        endless.shortest_path(endless.start, Goal(records=(("cart", -1),)))


def site() -> SiteDefinition:
    """Return a small site without mistakes but for its size."""
    numbers = range(50)
    screens = [SiteScreen("home", "the start", "Home", (Actions((link("First", "s0"),)),))]
    for number in numbers:
        onward = link("Next", f"s{(number + 1) % len(numbers)}")
        screens.append(SiteScreen(f"s{number}", f"page {number}", f"Page {number}", (Actions((onward,)),)))
    return SiteDefinition(
        name="small",
        brand="Small",
        tagline="",
        navigation=(("Home", "home"),),
        menu=("More", (("Last", "s49"),)),
        screens=tuple(screens),
        records={"mark": SiteRecord(0)},
        changes=(RecordChange(("Mark it.",), (("mark", 1),)),),
    )


def with_element(element: Element) -> SiteDefinition:
    start, *others = site().screens
    return replace(
        site(), screens=(replace(start, blocks=(Actions((element, link("First", "s0"))),)), *others)
    )


def test_a_definition_without_mistakes_passes() -> None:
    check(site())


@pytest.mark.parametrize(
    ("element", "mistake"),
    [
        (link("", "s1"), "has no label, so a user cannot find it"),
        (link("Far", "s99"), "leads to the screen 's99', which is not defined"),
        (link("First", "s0"), "link 'First' of screen home is defined 2 times"),
        (button("Nothing", ()), "neither leads to a screen nor changes a record"),
        (button("Set", (Assign("marc", 1),)), "changes the record 'marc', which is not defined"),
        (button("Set", (Restore("x/"),)), "restores the records that begin with 'x/', but there are none"),
        (
            button("Set", (Toggle("mark"),), (RecordGuard("marc", "is", 1),)),
            "has a guard on the record 'marc'",
        ),
        (
            button("Set", (Assign("mark", TypedText("name")),)),
            "the text of the field 'name', which it does not",
        ),
        (Element(Kind.FORM, "Send", "s1"), "has no fields"),
    ],
)
def test_a_mistake_in_an_element_is_named_with_its_place(element: Element, mistake: str) -> None:
    with pytest.raises(SiteInvalid, match="the site small has") as invalid:
        check(with_element(element))
    assert any(mistake in found and "of screen home" in found for found in invalid.value.mistakes)


def test_a_screen_that_nothing_leads_to_and_one_that_leads_nowhere_are_mistakes() -> None:
    lonely = SiteScreen("lonely", "the lonely page", "Lonely")
    apart = replace(site(), screens=(*site().screens, lonely))
    assert list(mistakes_of(apart)) == ["nothing leads to the screen lonely"]
    stuck = replace(site(), navigation=(), menu=("More", (("Last", "s49"),)))
    assert "the screen s0 is a dead end: nothing leads back to home" in list(mistakes_of(stuck))


def test_screens_that_share_an_id_a_name_or_their_looks_are_mistakes() -> None:
    screens = site().screens
    again = [*mistakes_of(replace(site(), screens=(*screens, replace(screens[1], id="other"))))]
    assert "2 screens have the name 'page 0'" in again
    assert "the screens s0, other look the same" in again
    assert "2 screens have the id 's0'" in [*mistakes_of(replace(site(), screens=(*screens, screens[1])))]


def test_a_site_that_is_too_small_and_a_task_for_a_record_that_is_not_there_are_mistakes() -> None:
    wrong = replace(
        site(),
        screens=site().screens[:20],
        changes=(RecordChange(("Do it.",), (("marc", 1),)),),
        menu=("More", (("Second", "s1"),)),
    )
    found = list(mistakes_of(wrong))
    assert "expected 50 to 200 screens, got 20" in found
    assert "the task 'Do it.' wants the record 'marc', which is not defined" in found
