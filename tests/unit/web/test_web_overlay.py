"""Where an action is drawn on its screenshot."""

import pytest

from dart.web.overlay import Head, Label, Line, Mark, Overlay, Ring, overlay


def drawn(answer: str, width: int = 100, height: int = 200) -> Overlay:
    return overlay(answer, width, height)


def kinds(marks: tuple[Mark, ...]) -> list[str]:
    return [mark.kind for mark in marks]


def test_a_click_is_a_cross_at_its_point() -> None:
    assert drawn("click(start_box='(50,60)')").marks == (Line(44, 60, 56, 60), Line(50, 54, 50, 66))


@pytest.mark.parametrize(
    ("answer", "expected", "caption"),
    [
        ("left_double(start_box='(1,2)')", ["line", "line", "ring", "ring"], "double click at 1, 2"),
        ("right_single(start_box='(1,2)')", ["line", "line", "ring"], "right click at 1, 2"),
        (
            "drag(start_box='(10,10)', end_box='(90,10)')",
            ["ring", "line", "head"],
            "drag from 10, 10 to 90, 10",
        ),
        ("drag(start_box='(10,10)', end_box='(10,10)')", ["ring"], "drag from 10, 10 to 10, 10"),
        ("scroll(start_box='(10,10)', direction='up')", ["ring", "line", "head"], "scroll up at 10, 10"),
        ("type(content='a\\nb')", ["label"], "type “a⏎b”"),
        ("hotkey(key='ctrl c')", ["label"], "press ctrl + c"),
        ("wait()", [], "wait"),
        ("finished()", [], "says that it is done"),
        ("call_user()", [], "says that it cannot be done"),
    ],
)
def test_every_action_is_drawn_and_said(answer: str, expected: list[str], caption: str) -> None:
    found = drawn(answer)

    assert (kinds(found.marks), found.caption, found.is_action) == (expected, caption, True)


def test_an_arrow_ends_at_its_point_with_its_head_around_its_line() -> None:
    start, line, head = drawn("drag(start_box='(10,50)', end_box='(90,50)')").marks

    assert start == Ring(10, 50, 3)
    assert isinstance(line, Line)
    assert (line.x1, line.y1, line.y2) == (10, 50, 50)
    assert isinstance(head, Head)
    assert head.corners[0] == (90, 50)
    assert [y for _, y in head.corners[1:]] == [50 + 3.6, 50 - 3.6]
    assert all(line.x2 == pytest.approx(x) for x, _ in head.corners[1:])


def test_a_point_outside_is_drawn_at_the_edge_and_said() -> None:
    found = drawn("click(start_box='(500,20)')")

    assert found.marks[1] == Line(99, 14, 99, 26)
    assert found.caption == "click at 500, 20, outside of the picture"


def test_marks_grow_with_the_picture() -> None:
    small, large = drawn("click(start_box='(5,5)')", 100, 100), drawn("click(start_box='(5,5)')", 1000, 500)
    assert isinstance(small.marks[0], Line)
    assert isinstance(large.marks[0], Line)

    assert large.marks[0].x2 - large.marks[0].x1 == 10 * (small.marks[0].x2 - small.marks[0].x1)


def test_typed_text_that_is_too_long_is_cut_where_the_picture_ends() -> None:
    (label,) = drawn("type(content='" + "m" * 300 + "')").marks

    assert isinstance(label, Label)
    assert label.text.endswith("…")
    x, y, width, height = label.plate
    assert x >= 0
    assert x + width <= 100
    assert y + height <= 200


@pytest.mark.parametrize("answer", ["", "click", "click(start_box='(1,2)') now", "<script>alert(1)</script>"])
def test_an_answer_that_is_no_action_says_so(answer: str) -> None:
    found = drawn(answer)

    assert found.marks == ()
    assert not found.is_action
    assert found.caption.startswith("no action: expected")
