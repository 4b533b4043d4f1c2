"""The exact text forms of the action grammar, and what is refused with which words."""

import pytest

from dart.core.actions import (
    Action,
    ActionParseError,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    Hover,
    KeyDown,
    KeyUp,
    LeftDouble,
    RightSingle,
    Scroll,
    ScrollHere,
    Type,
    Wait,
    format_action,
    format_actions,
    parse_action,
    parse_actions,
)

FORMS: list[tuple[str, Action]] = [
    ("click(start_box='(84,120)')", Click(84, 120)),
    ("left_double(start_box='(0,7)')", LeftDouble(0, 7)),
    ("right_single(start_box='(159,209)')", RightSingle(159, 209)),
    ("drag(start_box='(1,2)', end_box='(3,4)')", Drag(1, 2, 3, 4)),
    ("hotkey(key='ctrl c')", Hotkey(("ctrl", "c"))),
    ("hotkey(key='enter')", Hotkey(("enter",))),
    ("hotkey(key='meta')", Hotkey(("meta",))),
    (r"hotkey(key='ctrl \'')", Hotkey(("ctrl", "'"))),
    ("hover(start_box='(1,2)')", Hover(1, 2)),
    ("keydown(key='ctrl')", KeyDown("ctrl")),
    ("keyup(key='+')", KeyUp("+")),
    (r"type(content='a\tb')", Type("a\tb")),
    ("scroll(direction='up')", ScrollHere("up")),
    (r"type(content='it\'s a \\ here\n')", Type("it's a \\ here\n")),
    ("scroll(start_box='(5,6)', direction='down')", Scroll(5, 6, "down")),
    ("wait()", Wait()),
    ("finished()", Finished()),
    ("call_user()", CallUser()),
]


@pytest.mark.parametrize(("text", "action"), FORMS)
def test_each_action_has_exactly_this_text_form(text: str, action: Action) -> None:
    assert parse_action(text) == action
    assert format_action(action) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "click",
        "clik(start_box='(1,2)')",
        "click(start_box='(1, 2)')",
        "click(start_box='(01,2)')",
        "click(start_box='(-1,2)')",
        "click(start_box='(1.5,2)')",
        "click(start_box='(100000,2)')",
        "click(start_box='(1,2)') ",
        " click(start_box='(1,2)')",
        "click(start_box='(1,2)')\nwait()",
        "drag(start_box='(1,2)',end_box='(3,4)')",
        "hotkey(key='')",
        "hotkey(key='ctrl  c')",
        "hotkey(key='ctrl ctrl c')",
        "hotkey(key='Ctrl C')",
        "hotkey(key='?')",
        "keydown(key='ctrl c')",
        "keyup(key='')",
        "scroll(start_box='', direction='up')",
        "type(content='')",
        "type(content='a'b')",
        "type(content='\t')",
        "type(content='a\nb')",
        "type(content='\ud800')",
        "scroll(start_box='(5,6)', direction='sideways')",
        "wait(1)",
        "finished(content='x')",
        "call_user('x')",
    ],
)
def test_anything_else_is_a_parse_error_that_shows_the_text(text: str) -> None:
    with pytest.raises(ActionParseError) as caught:
        parse_action(text)
    assert repr(text) in str(caught.value)


def test_the_message_for_a_wrong_argument_shows_the_right_form() -> None:
    with pytest.raises(ActionParseError, match=r"expected the form click\(start_box='\(x,y\)'\), got: "):
        parse_action("click(84,120)")


def test_the_message_for_an_unknown_action_lists_the_known_ones() -> None:
    with pytest.raises(ActionParseError, match="click, left_double, right_single, drag, hover, hotkey"):
        parse_action("press(key='a')")


def test_an_escaped_double_quote_is_read_because_policies_of_the_field_write_it() -> None:
    assert parse_action(r"type(content='\"x\"')") == Type('"x"')


def test_an_action_that_has_no_text_form_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="between 0 and 99999"):
        Click(-1, 0)


def test_the_actions_of_one_answer_are_read_in_order() -> None:
    actions = (Click(1, 2), Type("a\n\nb"), Hotkey(("enter",)))
    assert parse_actions(format_actions(actions)) == actions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "wait()\n\nclick(start_box='(1,2)')",
        "click(start_box='(1,2)')\n\n",
        "hover(start_box='(1,2)')\nwait()",
    ],
)
def test_actions_that_stand_alone_or_are_none_are_refused_with_the_whole_text(text: str) -> None:
    with pytest.raises(ActionParseError) as refused:
        parse_actions(text)
    assert refused.value.text == text
