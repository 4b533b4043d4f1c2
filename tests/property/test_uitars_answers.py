"""Answers of UI-TARS: any text is read as actions or refused, and what is written reads back."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dart.core.actions import (
    Action,
    ActionParseError,
    CallUser,
    Finished,
    Type,
    Wait,
    format_actions,
    parse_actions,
)
from dart.policy.coordinates import ResizeRule
from dart.policy.uitars import map_points, read_answer, write_answer
from tests.property.test_actions_property import any_action

UI_TARS = ResizeRule(factor_px=28, min_area_px=100 * 28 * 28, max_area_px=16384 * 28 * 28)

thoughts = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=60)
acting = any_action.filter(lambda action: not isinstance(action, Wait | Finished | CallUser))
answers_of_actions = st.one_of(
    any_action.map(lambda action: [action]), st.lists(acting, min_size=2, max_size=4)
)

named = ("click", "left_single", "press", "drag", "hotkey", "keydown", "type", "scroll", "finished", "wait")
names = st.sampled_from((*named, "dance", ""))
arguments = st.sampled_from(
    [
        *("start_box=", "end_box=", "point=", "key=", "content=", "direction=", "x="),
        *("'(1,2)'", '"(1, 2)"', "'<point>1 2</point>'", "'<|box_start|>(1,2)<|box_end|>'", "'(1,2,3,4)'"),
        *("'ctrl + S'", "'down'", "'it's'", "'", '"', "\\", "\\n", ",", " ", "(", ")"),
        *("é", "\x00", "\ud800", "9" * 12),
    ]
)
calls = st.tuples(names, st.lists(arguments, max_size=6)).map(lambda c: f"{c[0]}({''.join(c[1])})")
between = st.sampled_from(["\n\n", "\n", " ", "\nAction: ", ")\n\n", ""])
shaped = st.lists(st.tuples(calls, between), min_size=1, max_size=4).map(
    lambda parts: "Thought: I plan.\nAction: " + "".join(call + end for call, end in parts)
)


@given(answers_of_actions, thoughts)
def test_an_answer_that_was_written_is_read_as_the_same_actions(actions: list[Action], thought: str) -> None:
    before = f"Thought: {thought}\n" if thought else ""
    assert read_answer(before + write_answer(actions)) == tuple(actions)


@given(st.lists(st.one_of(calls, arguments, between), max_size=6).map("".join))
def test_a_typed_text_that_looks_like_answers_is_read_as_it_was_written(text: str) -> None:
    typed = Type(text.replace("\x00", "").replace("\ud800", "") + "Action: wait()")
    assert read_answer(write_answer([typed])) == (typed,)


@given(answers_of_actions, st.sampled_from(["\n", "\n\n", " ", "; "]))
def test_an_invalid_last_action_makes_the_whole_answer_invalid(actions: list[Action], end: str) -> None:
    with pytest.raises(ActionParseError):
        read_answer(f"{write_answer(actions)}{end}Action: click(start_box='')")


@given(st.one_of(shaped, st.text(max_size=200)))
@example("Action:" * 300 + "(" * 3000)
@example("Action: type(content='" + "\\" * 3000)
@example("Action: click(" + "x='1'," * 500)
@example("Action: wait()" + "\n" * 2000 + "x")
def test_any_answer_is_actions_of_the_grammar_or_a_parse_error_that_shows_it(text: str) -> None:
    try:
        actions = read_answer(text)
    except ActionParseError as error:
        shown = error.text
    else:
        shown = text
        on_screen = [map_points(one, UI_TARS.shown(1920, 1080).to_screen) for one in actions]
        assert parse_actions(format_actions(on_screen)) == tuple(on_screen)
    assert shown == text
