"""Where an action is drawn on its screenshot."""

import pytest

from dart.web.overlay import Mark, Overlay, overlay


def drawn(answer: str, width: int = 100, height: int = 200) -> Overlay:
    return overlay(answer, width, height)


def line(x1: float, y1: float, x2: float, y2: float) -> Mark:
    return Mark("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2})


def kinds(marks: tuple[Mark, ...]) -> list[str]:
    return [mark.tag for mark in marks]


def test_a_click_is_a_cross_at_its_point() -> None:
    assert drawn("click(start_box='(50,60)')").marks == (line(44, 60, 56, 60), line(50, 54, 50, 66))


@pytest.mark.parametrize(
    ("answer", "expected", "caption"),
    [
        ("left_double(start_box='(1,2)')", ["line", "line", "circle", "circle"], "double click at 1, 2"),
        ("right_single(start_box='(1,2)')", ["line", "line", "circle"], "right click at 1, 2"),
        (
            "drag(start_box='(10,10)', end_box='(90,10)')",
            ["circle", "line", "polygon"],
            "drag from 10, 10 to 90, 10",
        ),
        ("drag(start_box='(10,10)', end_box='(10,10)')", ["circle"], "drag from 10, 10 to 10, 10"),
        ("scroll(start_box='(10,10)', direction='up')", ["circle", "line", "polygon"], "scroll up at 10, 10"),
        ("type(content='a\\nb')", ["rect", "text"], "type “a⏎b”"),
        ("hotkey(key='ctrl c')", ["rect", "text"], "press ctrl + c"),
        ("wait()", [], "wait"),
        ("finished()", [], "says that it is done"),
        ("call_user()", [], "says that it cannot be done"),
    ],
)
def test_every_action_is_drawn_and_said(answer: str, expected: list[str], caption: str) -> None:
    found = drawn(answer)

    assert (kinds(found.marks), found.caption, found.is_action) == (expected, caption, True)


def test_an_arrow_ends_at_its_point_with_its_head_around_its_line() -> None:
    ring, shaft, head = drawn("drag(start_box='(10,50)', end_box='(90,50)')").marks

    assert ring.attributes == {"cx": 10, "cy": 50, "r": 3}
    assert shaft == line(10, 50, 82.8, 50)
    assert head.attributes["points"] == "90,50 82.8,53.6 82.8,46.4"


@pytest.mark.parametrize(
    ("direction", "tip"), [("up", "50,82"), ("down", "50,118"), ("left", "32,100"), ("right", "68,100")]
)
def test_the_arrow_of_a_scroll_shows_its_direction(direction: str, tip: str) -> None:
    *_, head = drawn(f"scroll(start_box='(50,100)', direction='{direction}')").marks

    assert str(head.attributes["points"]).split()[0] == tip


def test_a_point_outside_is_drawn_at_the_edge_and_said() -> None:
    found = drawn("click(start_box='(500,20)')")

    assert found.marks[1] == line(99, 14, 99, 26)
    assert found.caption == "click at 500, 20, outside of the picture"
    dragged = drawn("drag(start_box='(10,10)', end_box='(10,200)')")
    assert dragged.caption == "drag from 10, 10 to 10, 200, outside of the picture"


def test_marks_grow_with_the_picture() -> None:
    small, large = drawn("click(start_box='(5,5)')", 100, 100), drawn("click(start_box='(5,5)')", 1000, 500)
    (short, *_), (long, *_) = small.marks, large.marks

    assert (short.attributes["x1"], short.attributes["x2"]) == (2, 8)
    assert (long.attributes["x1"], long.attributes["x2"]) == (-25, 35)


def test_typed_text_that_is_too_long_is_cut_where_the_picture_ends() -> None:
    plate, label = drawn("type(content='" + "m" * 300 + "')").marks

    assert label.text.endswith("…")
    x, y, width, height = (float(plate.attributes[name]) for name in ("x", "y", "width", "height"))
    assert x >= 0
    assert x + width <= 100
    assert y + height <= 200


@pytest.mark.parametrize("answer", ["", "click", "click(start_box='(1,2)') now", "<script>alert(1)</script>"])
def test_an_answer_that_is_no_action_says_so(answer: str) -> None:
    found = drawn(answer)

    assert found.marks == ()
    assert not found.is_action
    assert found.caption.startswith("no action: expected")
