"""The language of UI-TARS: what policies write is read, and nothing else."""

import time

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
    parse_action,
)
from dart.policy.uitars import (
    NOT_AN_ACTION,
    PROMPT,
    PROMPT_NAMES,
    map_points,
    named_prompt,
    read_answer,
    write_answer,
)


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
        ("scroll(direction='down')", ScrollHere("down")),
        ("scroll(start_box='', direction='Scroll down')", ScrollHere("down")),
        ("left_single(start_box='(1,2)')", Click(1, 2)),
        ("click(start_box='(1,2,5,8)')", Click(3, 5)),
        ("click(start_box='<|box_start|>(1,2,5,8)<|box_end|>')", Click(3, 5)),
        ("click(point='<point>84 120</point>')", Click(84, 120)),
        ("drag(start_point='<point>1 2</point>', end_point='<point>3 4</point>')", Drag(1, 2, 3, 4)),
        ("select(start_box='(1,2)', end_box='(3,4)')", Drag(1, 2, 3, 4)),
        ("hover(start_box='(1,2)')", Hover(1, 2)),
        ("click(start_box='(1,2)', end_box='(3,4)')", Click(1, 2)),
        ("computer.click(start_box='(1,2)')", Click(1, 2)),
        ("click(start_box='(-4,123456)')", Click(0, 99_999)),
        ("click(start_box='(1,2)'", Click(1, 2)),
        ("press(key='enter')", Hotkey(("enter",))),
        ("press(press='Enter')", Hotkey(("enter",))),
        ("hotkey(hotkey='v ctrl')", Hotkey(("v", "ctrl"))),
        ("hotkey(key='ctrl')", Hotkey(("ctrl",))),
        ("hotkey(key='ctrl S')", Hotkey(("ctrl", "shift", "s"))),
        ("hotkey(key='ctrl +')", Hotkey(("ctrl", "+"))),
        ("hotkey(key='ctrl -')", Hotkey(("ctrl", "-"))),
        ("hotkey(key='ctrl nosuchkey c')", Hotkey(("ctrl", "c"))),
        ("keydown(key='ctrl')", KeyDown("ctrl")),
        ("keyup(key='ctrl')", KeyUp("ctrl")),
        ("release(key='ctrl')", KeyUp("ctrl")),
        ("type(content='a\\tb')", Type("a\tb")),
        ("type(content='Action: wait()')", Type("Action: wait()")),
        ("type(content='Action: wait()'", Type("Action: wait()")),
        ("""type(content="Action: click(start_box='')")""", Type("Action: click(start_box='')")),
        (r"type(content='f(\'a\'); click(x=\'b\')')", Type("f('a'); click(x='b')")),
        ("""type(content="f('a') hotkey(key='b')")""", Type("f('a') hotkey(key='b')")),
        ("type(content='print('a'); foo('b')')", Type("print('a'); foo('b')")),
        ("type(content='gui.press('a'); gui.click('b')')", Type("gui.press('a'); gui.click('b')")),
        ("type(content='I don't click('here')')", Type("I don't click('here')")),
        ("type(content='it's (so 'said') 'wait'')", Type("it's (so 'said') 'wait'")),
        ("wait()", Wait()),
        ("finished()", Finished()),
        ("finished(content='The file is saved.')", Finished()),
        ("call_user()", CallUser()),
        ("error_env()", CallUser()),
        ("infeasible()", CallUser()),
    ],
)
def test_every_action_is_read_in_the_forms_policies_write(said: str, meant: Action) -> None:
    assert read_answer(f"Thought: I plan.\nThen I do: it.\nAction: {said}\n") == (meant,)
    assert read_answer(f"Action: {said}") == (meant,)
    assert read_answer(f"I do this. Action:{said}") == (meant,)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (
            "click(start_box='(1,2)')\n\ntype(content='a\nb')\n\npress(key='enter')",
            (Click(1, 2), Type("a\nb"), Hotkey(("enter",))),
        ),
        ("type(content='it's')\n\nhotkey(key='enter')", (Type("it's"), Hotkey(("enter",)))),
        ("type(content='f(x)\n\ng(y)')", (Type("f(x)\n\ng(y)"),)),
        ("type(content='it's')\n\ntype(content='Action: wait()')", (Type("it's"), Type("Action: wait()"))),
        ("click(start_box='(1,2)')\n\nfinished(content='done')", (Finished(),)),
        ("click(start_box='(1,2)')\n\nwait()\n\nfinished()", (Wait(),)),
        ("click(start_box='(1,2)')\n\ncall_user()", (CallUser(),)),
        ("click(start_box='(1,2)')\n\ndance()", (Click(1, 2),)),
        ("wait()\nAction: click(start_box='(1,2)')", (Click(1, 2),)),
    ],
)
def test_several_actions_act_as_in_the_agent_of_the_authors(said: str, meant: tuple[Action, ...]) -> None:
    assert read_answer(f"Thought: I plan.\nAction: {said}") == meant


@pytest.mark.parametrize(
    "said",
    [
        "dance()",
        "scroll(start_box='(1,2)')",
        "scroll(start_box='(1,2)', direction='sideways')",
        "drag(start_box='(1,2)')",
        "hotkey(key='')",
        "hotkey(key='nosuchkey')",
        "press()",
        "keydown(key='')",
        "type(content='')",
        "type()",
    ],
)
def test_an_action_that_the_agent_of_the_authors_does_not_carry_out_does_nothing(said: str) -> None:
    assert read_answer(f"Action: {said}") == (Wait(),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "click(start_box='(84,120)')",
        "Thought: I would say Action: wait() but go on",
        "Action: I click on (1,2)",
        "Action: wait()\nwait()",
        "Action: wait()\n\nand more",
        "Action: wait()\nAction: and more",
        "Action: type(content='it's')\ntype(content='b')",
        "Action: type(content='a')\n\nAction: click(start_box='')",
        "Action: type(content='a'\nAction: click(start_box='')",
        "Action: type(content='a')\nAction: dance(x='1', x='2')",
        "Action: finished(content='done')\nAction: click(start_box='')",
        "Action: finished(content='done')\nAction: I click on 'it')",
        "Action: type(content='a') hotkey(key='enter')",
        "Action: type(content='a') computer.hotkey(key='enter')",
        "Action: type(content='a') dance(x='1')",
        "Action: type(content='a'); click(start_box='(1,2)')",
        "Action: type(content='a'); click('(1,2)')",
        "Action: type(content='a')\n\nThen click(start_box='(1,2)')",
        "Action: click(start_box='(84,120)') and more",
        "Action: click(start_box='(84)')",
        "Action: click(start_box='(1,2,3)')",
        "Action: click(start_box='(1,two)')",
        "Action: click(start_box='(1,2)', start_box='(1,2)')",
        "Action: click(start_box='(1,2)', point='(1,2)')",
        "Action: click()",
        "Action: click(start_box='')",
        "Action: click('(1,2)')",
        "Action: click(start_box='(1,2)' end_box='(1,2)')",
        "Action: type(content='\x00')",
    ],
)
def test_what_is_no_action_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ActionParseError) as refused:
        read_answer(text)
    assert refused.value.text == text


def seconds_to_refuse(text: str) -> float:
    """The least CPU time of three tries to read an invalid answer."""
    taken = []
    for _ in range(3):
        before = time.thread_time()
        with pytest.raises(ActionParseError):
            read_answer(text)
        taken.append(time.thread_time() - before)
    return min(taken)


@pytest.mark.parametrize("run", ["\n", " \n", " "])
@pytest.mark.parametrize("call", ["wait()", "type(content='a')", "wait() "])
def test_time_to_read_an_answer_grows_in_proportion_to_a_run_of_blanks(call: str, run: str) -> None:
    short, long = (f"Action: {call}{run * lines}x" for lines in (250, 4000))
    assert seconds_to_refuse(long) < 4 * 16 * seconds_to_refuse(short)


def test_an_answer_that_was_no_action_is_none_to_the_screen_either() -> None:
    with pytest.raises(ActionParseError):
        parse_action(f"{NOT_AN_ACTION}click(start_box='(1,2)')")


def test_an_answer_without_a_thought_is_the_line_of_its_action() -> None:
    assert write_answer([Wait()]) == "Action: wait()"


def test_only_points_are_moved() -> None:
    def far(x: float, y: float) -> tuple[int, int]:
        return int(x) + 100, int(y) + 200

    assert map_points(Click(1, 2), far) == Click(101, 202)
    assert map_points(Drag(1, 2, 3, 4), far) == Drag(101, 202, 103, 204)
    assert map_points(Hover(1, 2), far) == Hover(101, 202)
    assert map_points(Scroll(1, 2, "up"), far) == Scroll(101, 202, "up")
    assert map_points(Type("1"), far) == Type("1")


def test_the_prompt_names_every_action_that_is_read() -> None:
    listed = PROMPT.partition("## Actions\n")[2].partition("\n\n")[0].splitlines()
    assert len(listed) == 11
    for line in listed:
        sample = line.partition(" #")[0].replace("(x,y)", "(1,2)")
        read_answer(f"Action: {sample}")


@pytest.mark.parametrize("name", PROMPT_NAMES)
def test_the_prompt_of_a_checkpoint_lists_only_what_is_read(name: str) -> None:
    prompt = named_prompt(name)
    assert prompt is not None
    listed = prompt.partition("## Action Space\n\n")[2].partition("\n\n")[0].splitlines()
    assert len(listed) == (9 if name == "uitars-1.5" else 10)
    for line in listed:
        sample = line.partition(" #")[0].replace("(x1,y1)", "(1,2)").replace("(x3,y3)", "(3,4)")
        read_answer(f"Action: {sample}")
    assert prompt.endswith("## User Instruction\n")
