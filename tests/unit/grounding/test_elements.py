"""Which elements of a page `elements.js` reads, and what it says of them, in a real browser."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dart.environments.browser.cdp import Browser
from dart.environments.browser.environment import CHROMIUM
from dart.grounding.pages import READ_ELEMENTS

pytestmark = pytest.mark.browser

WIDTH, HEIGHT = 400, 300

AT = "position:absolute; margin:0; border:0; padding:0; "
"""Style of an element whose box is exactly that of the style."""

PAGES = {
    "two buttons": f"<button style='{AT} left:10px; top:20px; width:80px; height:30px'>Save</button>"
    f"<button style='{AT} left:10px; top:80px; width:80px; height:30px'>Open   it</button>",
    "covered": f"<button style='{AT} left:0; top:0; width:80px; height:30px'>Below</button>"
    f"<div style='{AT} left:0; top:0; width:100px; height:50px; background:white'></div>",
    "overlapping": f"<button style='{AT} left:0; top:0; width:100px; height:30px'>Below</button>"
    f"<button style='{AT} left:80px; top:0; width:100px; height:30px'>Above</button>",
    "letting clicks through": f"<button style='{AT} left:0; top:0; width:80px; height:30px; "
    "pointer-events:none'>"
    "No</button>",
    "outside": f"<button style='{AT} left:0; top:500px; width:80px; height:30px'>Below</button>"
    f"<button style='{AT} left:-90px; top:0; width:80px; height:30px'>Left</button>"
    f"<button style='{AT} left:380px; top:20px; width:80px; height:30px'>Cut</button>",
    "without size": f"<button style='{AT} width:0; height:0; overflow:hidden'>No</button>"
    f"<a style='{AT} left:0; top:50px; width:4px; height:4px'></a><button style='display:none'>No</button>"
    "<button style='visibility:hidden'>No</button><button style='opacity:0'>No</button><input type=hidden>",
    "in a transparent parent": "<div style='opacity:0'><button>No</button></div>",
    "cut by its parent": f"<div style='{AT} left:10px; top:10px; width:60px; height:40px; overflow:hidden'>"
    f"<button style='{AT} left:0; top:0; width:200px; height:40px'>Wide</button></div>",
    "disabled": "<button disabled>No</button><fieldset disabled><input></fieldset>"
    "<div role=button aria-disabled=true>No</div><button>Yes</button>",
    "labels": "<label><input type=checkbox> Milk </label><input type=radio id=r><label for=r>Tea</label>"
    "<label>Name <input value=typed></label>",
    "inputs": "<input type=submit><input type=reset value=Clear><input type=button value=Go>"
    "<input type=range><textarea>Dear</textarea><input type=password value=secret>",
    "list": "<select><option value=3>Three</option><option value=4 selected>Four</option></select>",
    "value of a button": "<button value=7>Go</button>",
    "hidden words": "<button style='width:50px; height:30px'>"
    "<span style='display:none'>Secret</span></button>",
    "button with a drawing": "<button>"
    "<svg width=40 height=40><rect width=40 height=40 fill=red /></svg></button>",
    "link around a button": "<a href='#' style='display:block; width:200px'>Buy <button>now</button></a>",
    "link around nothing to see": "<a href='#'>Buy <button style='display:none'>now</button></a>",
    "shapes": "<svg width=400 height=100><rect x=10 y=10 width=40 height=40 fill=red />"
    "<circle cx=100 cy=30 r=20 fill='rgb(0,0,250)' /><polygon points='150,50 190,50 170,10' fill='#008000' />"
    "<polygon points='200,50 240,50 240,10 200,10' fill=purple />"
    "<text x=250 y=40 font-size=40 fill=black>7</text><text x=300 y=40 font-size=40 fill=black>k</text>"
    "<text x=340 y=40 font-size=20 fill=black>word</text></svg>",
    "colours": "".join(
        f"<button style='background:{colour}; display:block'>{colour}</button>"
        for colour in ("red", "#f00", "rgba(255,0,0,0.2)", "transparent", "rgb(60,160,200)", "rgb(250,5,5)")
    ),
    "the query": "<div id=query><button>No</button></div><button>Yes</button>",
    "tabs and links": "<ul class=tabs><li><a>One</a></li></ul><span class=alink>Two</span><a>Three</a>"
    "<div role=tab>Four</div>",
}


async def _read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What is read of every page."""
    browser = await Browser.launch(CHROMIUM, folder)
    try:
        page = await browser.open_page()
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        await page.post("Emulation.setDeviceMetricsOverride", size)
        found = {}
        for name, html in PAGES.items():
            await page.evaluate(f"void (document.body.innerHTML = {html!r})")
            found[name] = await page.evaluate(f"{READ_ELEMENTS}({WIDTH}, {HEIGHT})")
        return found
    finally:
        await browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    return asyncio.run(_read(tmp_path_factory.mktemp("browser")))


Pages = dict[str, list[dict[str, Any]]]


def of(pages: Pages, name: str, *keys: str) -> list[Any]:
    """The values of the elements of a page, in the order of the page."""
    return [one[keys[0]] if len(keys) == 1 else tuple(one[key] for key in keys) for one in pages[name]]


def test_an_element_has_its_box_its_kind_and_its_words_on_one_line(pages: Pages) -> None:
    assert of(pages, "two buttons", "box", "kind", "text", "shows_text") == [
        ([10, 20, 90, 50], "button", "Save", True),
        ([10, 80, 90, 110], "button", "Open it", True),
    ]


@pytest.mark.parametrize(
    "name", ["covered", "letting clicks through", "without size", "in a transparent parent"]
)
def test_what_no_click_reaches_or_nobody_sees_is_left_out(pages: Pages, name: str) -> None:
    assert pages[name] == []


def test_of_overlapping_elements_those_count_whose_centre_is_free(pages: Pages) -> None:
    assert of(pages, "overlapping", "text") == ["Below", "Above"]


def test_what_is_outside_of_the_screen_is_left_out_and_what_is_partly_there_is_cut(pages: Pages) -> None:
    assert of(pages, "outside", "text", "box") == [("Cut", [380, 20, 400, 50])]


def test_a_box_ends_where_a_parent_cuts_its_element(pages: Pages) -> None:
    assert of(pages, "cut by its parent", "box") == [[10, 10, 70, 50]]


def test_a_disabled_control_cannot_be_clicked(pages: Pages) -> None:
    assert of(pages, "disabled", "text") == ["Yes"]


def test_an_input_has_the_words_of_its_label_and_not_what_was_typed(pages: Pages) -> None:
    assert of(pages, "labels", "kind", "text", "shows_text") == [
        ("checkbox", "Milk", False),
        ("radio button", "Tea", False),
        ("text field", "Name", False),
    ]


def test_inputs_have_their_kinds_and_only_those_that_show_their_value_have_words(pages: Pages) -> None:
    assert of(pages, "inputs", "kind", "text", "shows_text") == [
        ("button", "Submit", True),
        ("button", "Clear", True),
        ("button", "Go", True),
        ("slider", "", False),
        ("text area", "Dear", True),
        ("text field", "", False),
    ]


def test_a_list_shows_the_words_of_its_option_and_options_are_no_elements(pages: Pages) -> None:
    assert of(pages, "list", "kind", "text", "shows_text") == [("list", "Four", True)]


def test_a_button_shows_its_words_and_not_its_value_or_hidden_ones(pages: Pages) -> None:
    assert of(pages, "value of a button", "text") == ["Go"]
    assert of(pages, "hidden words", "text", "shows_text") == [("", False)]


def test_of_nested_elements_the_inner_one_counts_if_it_can_be_seen(pages: Pages) -> None:
    assert of(pages, "link around a button", "kind", "text") == [("button", "now")]
    assert of(pages, "link around nothing to see", "kind", "text") == [("link", "Buy")]


def test_a_drawing_on_a_button_is_part_of_the_button(pages: Pages) -> None:
    assert of(pages, "button with a drawing", "kind", "shape") == [("button", "")]


def test_shapes_of_a_drawing_have_names_and_colours(pages: Pages) -> None:
    assert of(pages, "shapes", "kind", "shape", "colour") == [
        ("shape", "rectangle", "red"),
        ("shape", "circle", "blue"),
        ("shape", "triangle", "green"),
        ("shape", "", "purple"),
        ("shape", "digit", "black"),
        ("shape", "letter", "black"),
        ("shape", "", "black"),
    ]


def test_a_colour_has_a_name_only_if_it_is_near_one_and_hardly_transparent(pages: Pages) -> None:
    assert of(pages, "colours", "colour") == ["red", "red", "", "", "", "red"]


def test_nothing_of_the_query_of_a_task_page_is_an_element(pages: Pages) -> None:
    assert of(pages, "the query", "text") == ["Yes"]


def test_tabs_and_links_are_known_by_their_marks(pages: Pages) -> None:
    assert of(pages, "tabs and links", "kind", "text") == [
        ("tab", "One"),
        ("link", "Two"),
        ("link", "Three"),
        ("tab", "Four"),
    ]
