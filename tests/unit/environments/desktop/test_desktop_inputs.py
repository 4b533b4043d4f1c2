"""Actions as input events of an X server: every one complete, balanced, and counted as the server counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dart.core.actions import (
    Action,
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
)
from dart.environments.desktop.inputs import (
    KEY_PAUSE,
    NOTCHES,
    SHIFT,
    desktop_calls,
    expected_desktop_counts,
    own_time_s,
)

CTRL = 0xFFE3


def down(keysym: int) -> tuple[str, dict[str, int]]:
    return "key_down", {"keysym": keysym}


def up(keysym: int) -> tuple[str, dict[str, int]]:
    return "key_up", {"keysym": keysym}


@pytest.mark.parametrize(
    ("action", "counted"),
    [
        (Click(3, 4), {"button_down": 1, "button_up": 1}),
        (LeftDouble(3, 4), {"button_down": 2, "button_up": 2}),
        (RightSingle(3, 4), {"button_down": 1, "button_up": 1}),
        (Drag(1, 2, 30, 40), {"button_down": 1, "button_up": 1}),
        (Scroll(3, 4, "left"), {"button_down": NOTCHES, "button_up": NOTCHES}),
        (Hotkey(("ctrl", "shift", "s")), {"key_down": 3, "key_up": 3}),
        (Hotkey(("ctrl", "+")), {"key_down": 3, "key_up": 3}),
        (Hotkey(("shift", "+")), {"key_down": 2, "key_up": 2}),
        (KeyDown("ctrl"), {"key_down": 1}),
        (KeyUp("ctrl"), {"key_up": 1}),
        (Hover(3, 4), {}),
        (ScrollHere("down"), {"button_down": NOTCHES, "button_up": NOTCHES}),
        (Type("aB"), {"key_down": 3, "key_up": 3}),
        (Type("a\tb"), {"key_down": 3, "key_up": 3}),
        (Wait(), {}),
        (Finished(), {}),
        (CallUser(), {}),
    ],
)
def test_the_events_of_an_action_are_counted(action: Action, counted: dict[str, int]) -> None:
    assert dict(expected_desktop_counts(desktop_calls(action))) == counted


def test_a_click_goes_where_it_is_to_go_first() -> None:
    assert desktop_calls(Click(3, 4)) == [
        ("move", {"x": 3, "y": 4}),
        ("button_down", {"button": 1}),
        ("button_up", {"button": 1}),
    ]


def test_a_drag_ends_where_it_is_to_end() -> None:
    calls = desktop_calls(Drag(0, 0, 80, 40))
    moves = [arguments for name, arguments in calls if name == "move"]
    assert moves[0] == {"x": 0, "y": 0}
    assert moves[-1] == {"x": 80, "y": 40}
    assert calls[-1][0] == "button_up"


def test_the_wheel_is_four_buttons() -> None:
    buttons = {
        direction: desktop_calls(Scroll(0, 0, direction))[1][1]["button"]
        for direction in ("up", "down", "left", "right")
    }
    assert buttons == {"up": 4, "down": 5, "left": 6, "right": 7}


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("a", [down(0x61), up(0x61)]),
        ("A", [down(SHIFT), down(0x61), up(0x61), up(SHIFT)]),
        ("?", [down(SHIFT), down(0x2F), up(0x2F), up(SHIFT)]),
        ("\n", [down(0xFF0D), up(0xFF0D)]),
        ("ä", [down(0xE4), up(0xE4)]),
        ("€", [down(0x010020AC), up(0x010020AC)]),
    ],
)
def test_a_character_is_typed_as_a_us_keyboard_does(text: str, calls: list[object]) -> None:
    assert desktop_calls(Type(text)) == [*calls, KEY_PAUSE]


def test_modifiers_are_held_around_the_last_key_and_let_go_in_reverse() -> None:
    assert desktop_calls(Hotkey(("ctrl", "shift", "f5"))) == [
        *(down(CTRL), down(SHIFT)),
        *(down(0xFFC2), up(0xFFC2)),
        *(up(SHIFT), up(CTRL)),
    ]


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=20))
def test_every_key_that_goes_down_comes_up_again(text: str) -> None:
    held: list[int] = []
    for name, arguments in desktop_calls(Type(text)):
        if name == "key_down":
            held.append(arguments["keysym"])
        elif name == "key_up":
            held.remove(arguments["keysym"])
    assert not held


def test_a_page_of_text_takes_longer_by_itself_than_a_click() -> None:
    assert own_time_s(desktop_calls(Click(3, 4))) == 0.0
    page = desktop_calls(Type("x" * 1000))
    pauses_s = sum(event["s"] for name, event in page if name == "pause")
    assert own_time_s(page) > 2 * pauses_s
