"""The language of UI-TARS: what policies write is read, and nothing else."""

import pytest

from dart.core.actions import (
    Action,
    ActionParseError,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    RightSingle,
    Scroll,
    Type,
    Wait,
    parse_action,
)
from dart.policy.uitars import NOT_AN_ACTION, PROMPT, map_points, read_answer, write_answer


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("click(start_box='(84,120)')", Click(84, 120)),
        ("click(start_box='<|box_start|>(84,120)<|box_end|>')", Click(84, 120)),
        ('click( start_box = "( 84 , 120 )" )', Click(84, 120)),
        ("click(start_box='(84.4,119.6)')", Click(84, 120)),
        ("left_double(start_box='(1,2)')", LeftDouble(1, 2)),
        ("right_single(start_box='(1,2)')", RightSingle(1, 2)),
        ("drag(start_box='(1,2)', end_box='(3,4)')", Drag(1, 2, 3, 4)),
        ("drag(end_box='(3,4)',start_box='(1,2)')", Drag(1, 2, 3, 4)),
        ("hotkey(key='ctrl c')", Hotkey(("ctrl", "c"))),
        ("hotkey(key='Ctrl+Shift+T')", Hotkey(("ctrl", "shift", "t"))),
        ("hotkey(key='Return')", Hotkey(("enter",))),
        ("hotkey(key='alt arrowleft')", Hotkey(("alt", "left"))),
        ("type(content='ada')", Type("ada")),
        ("type(content='ada\\n')", Type("ada\n")),
        ("type(content='it\\'s')", Type("it's")),
        ("type(content='it's', she said')", Type("it's', she said")),
        ('type(content="C:\\\\new")', Type("C:\\new")),
        (r"type(content='C:\Users \d+ \frac')", Type(r"C:\Users \d+ \frac")),
        ("""type(content='print("a") wait()')""", Type('print("a") wait()')),
        ("scroll(start_box='(1,2)', direction='down')", Scroll(1, 2, "down")),
        ("scroll(direction='left', start_box='(1,2)')", Scroll(1, 2, "left")),
        ("wait()", Wait()),
        ("finished()", Finished()),
        ("finished(content='The file is saved.')", Finished()),
        ("call_user()", CallUser()),
        ("infeasible()", CallUser()),
    ],
)
def test_every_action_is_read_in_the_forms_policies_write(said: str, meant: Action) -> None:
    assert read_answer(f"Thought: I plan.\nThen I do: it.\nAction: {said}\n") == meant
    assert read_answer(f"Action: {said}") == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "click(start_box='(84,120)')",
        "Thought: I would say Action: wait() but not on a line of its own",
        "Action: wait()\nAction: wait()",
        "Action: wait()\n\nclick(start_box='(84,120)')",
        "Action: type(content='a')\n\nhotkey(key='enter')",
        "Action: type(content='it's')\ntype(content='b')",
        "Action: dance()",
        "Action: click(start_box='(84,120)') and more",
        "Action: click(start_box='(84)')",
        "Action: click(start_box='(-1,2)')",
        "Action: click(start_box='(1,2)', start_box='(1,2)')",
        "Action: click()",
        "Action: click(point='(1,2)')",
        "Action: click(start_box='(999999,2)')",
        "Action: click(start_box='(1,2)' end_box='(1,2)')",
        "Action: scroll(start_box='(1,2)', direction='sideways')",
        "Action: hotkey(key='ctrl')",
        "Action: hotkey(key='')",
        "Action: hotkey(key='a b c d e f')",
        "Action: type(content='')",
        "Action: type(content='\x00')",
        "Action: wait(now='yes')",
        "Action: click(start_box='(1,2)'",
    ],
)
def test_what_is_no_action_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ActionParseError) as refused:
        read_answer(text)
    assert refused.value.text == text


def test_an_answer_that_was_no_action_is_none_to_the_screen_either() -> None:
    with pytest.raises(ActionParseError):
        parse_action(f"{NOT_AN_ACTION}click(start_box='(1,2)')")


def test_a_thought_comes_before_the_action() -> None:
    assert write_answer(Wait(), "It loads.") == "Thought: It loads.\nAction: wait()"
    assert write_answer(Wait()) == "Action: wait()"


def test_only_points_are_moved() -> None:
    def far(x: float, y: float) -> tuple[int, int]:
        return int(x) + 100, int(y) + 200

    assert map_points(Click(1, 2), far) == Click(101, 202)
    assert map_points(Drag(1, 2, 3, 4), far) == Drag(101, 202, 103, 204)
    assert map_points(Scroll(1, 2, "up"), far) == Scroll(101, 202, "up")
    assert map_points(Type("1"), far) == Type("1")


def test_the_prompt_names_every_action_that_is_read() -> None:
    listed = PROMPT.partition("## Actions\n")[2].partition("\n\n")[0].splitlines()
    assert len(listed) == 11
    for line in listed:
        sample = line.partition(" #")[0].replace("(x,y)", "(1,2)")
        read_answer(f"Action: {sample}")
