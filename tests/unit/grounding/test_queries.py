"""Instructions that mean exactly one element."""

from dart.core.boxes import Box
from dart.grounding.queries import LabelledElement, queries, reading_order


def element(kind: str, left: float, top: float, **values: str) -> LabelledElement:
    return LabelledElement(
        box=Box(left, top, left + 20, top + 10),
        kind=kind,
        text=values.get("text", ""),
        shows_text=bool(values.get("text")),
        colour=values.get("colour", ""),
        shape=values.get("shape", ""),
    )


def written(*elements: LabelledElement) -> dict[str, LabelledElement]:
    found = list(queries(elements))
    assert len({query.instruction for query in found}) == len(found)
    return {query.instruction: query.element for query in found}


def test_a_single_element_of_a_kind_is_named_by_its_kind_and_its_words() -> None:
    button, field = element("button", 0, 0, text="OK"), element("text field", 0, 30)

    assert written(button, field) == {
        "click the button": button,
        'click "OK"': button,
        "click the text field": field,
    }


def test_what_two_elements_share_is_never_written() -> None:
    one, two = (
        element("button", 0, 0, text="OK", colour="red"),
        element("button", 50, 0, text="OK", colour="red"),
    )

    assert set(written(one, two)) == {"click the first button", "click the second button"}


def test_colours_and_shapes_name_an_element_and_neutral_colours_do_not() -> None:
    circle = element("shape", 0, 0, colour="red", shape="circle")
    square = element("shape", 50, 0, colour="white", shape="rectangle")
    found = written(circle, square)

    assert found["click what is red"] == found["click the red circle"] == found["click the circle"] == circle
    assert found["click the rectangle"] == square
    assert not any("white" in instruction for instruction in found)


def test_order_is_that_of_reading() -> None:
    places = [(80, 2), (0, 0), (0, 40), (40, 38)]
    boxes = [element("checkbox", left, top) for left, top in places]

    assert reading_order(boxes) == [
        boxes[1],
        boxes[0],
        boxes[2],
        boxes[3],
    ]
    assert written(*boxes)["click the first checkbox"] == boxes[1]
    assert written(*boxes)["click the third checkbox"] == boxes[2]


def test_more_than_five_of_a_kind_have_no_order() -> None:
    assert written(*(element("link", 0, 20 * number) for number in range(6))) == {}


def test_long_texts_are_not_quoted() -> None:
    assert set(written(element("link", 0, 0, text="word " * 20))) == {"click the link"}
