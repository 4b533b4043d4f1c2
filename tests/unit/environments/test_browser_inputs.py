"""Which input events an action becomes, in order."""

from typing import Any

import pytest

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
from dart.environments.browser_inputs import NOTHING_LEFT, input_calls, own_time_s


def kinds(action: Action) -> list[str]:
    return [params["type"] for _, params in input_calls(action)]


def events(action: Action) -> list[dict[str, Any]]:
    return [params for _, params in input_calls(action)]


def test_a_click_moves_presses_and_releases_at_the_point() -> None:
    assert kinds(Click(3, 4)) == ["mouseMoved", "mousePressed", "mouseReleased"]
    assert {(e["x"], e["y"]) for e in events(Click(3, 4))} == {(3, 4)}
    assert [e["buttons"] for e in events(Click(3, 4))] == [0, 1, 0]


def test_a_double_click_counts_its_second_press_as_two() -> None:
    assert [e["clickCount"] for e in events(LeftDouble(1, 1))] == [0, 1, 1, 2, 2]


def test_a_right_click_uses_the_right_button() -> None:
    assert [e["button"] for e in events(RightSingle(1, 1))] == ["none", "right", "right"]


def test_a_drag_holds_the_button_from_start_to_end() -> None:
    moves = events(Drag(0, 0, 60, 30))
    assert (moves[1]["type"], moves[1]["x"], moves[1]["y"]) == ("mousePressed", 0, 0)
    assert (moves[-1]["type"], moves[-1]["x"], moves[-1]["y"]) == ("mouseReleased", 60, 30)
    assert all(move["buttons"] == 1 for move in moves[1:-1])
    assert [move["x"] for move in moves[2:-1]] == sorted(move["x"] for move in moves[2:-1])


def test_typing_presses_and_releases_every_key_with_its_character() -> None:
    typed = events(Type("aB ä\n"))
    assert kinds(Type("aB ä\n")) == ["keyDown", "keyUp"] * 5
    assert [e["text"] for e in typed[::2]] == ["a", "B", " ", "ä", "\r"]
    assert [e["code"] for e in typed[::2]] == ["KeyA", "KeyB", "Space", "", "Enter"]


def test_a_hotkey_holds_its_modifiers_around_the_last_key() -> None:
    keys = [(e["type"], e["key"], e["modifiers"]) for e in events(Hotkey(("ctrl", "shift", "x")))]
    assert keys == [
        ("rawKeyDown", "Control", 2),
        ("rawKeyDown", "Shift", 10),
        ("rawKeyDown", "x", 10),
        ("keyUp", "x", 10),
        ("keyUp", "Shift", 2),
        ("keyUp", "Control", 0),
    ]


def test_copying_is_an_edit_command_and_types_no_letter() -> None:
    press = events(Hotkey(("ctrl", "c")))[1]
    assert press["commands"] == ["copy"]
    assert "text" not in press


def test_shift_and_a_letter_types_the_capital() -> None:
    assert events(Hotkey(("shift", "a")))[1]["text"] == "A"


@pytest.mark.parametrize(
    ("direction", "delta"), [("up", (0, -100)), ("down", (0, 100)), ("left", (-100, 0)), ("right", (100, 0))]
)
def test_the_wheel_turns_in_the_named_direction(direction: str, delta: tuple[int, int]) -> None:
    (wheel,) = events(Scroll(5, 6, direction))
    assert (wheel["deltaX"], wheel["deltaY"]) == delta


@pytest.mark.parametrize("action", [Wait(), Finished(), CallUser()])
def test_waiting_and_finishing_touch_nothing(action: Action) -> None:
    assert input_calls(action) == []


def test_a_held_modifier_is_held_for_clicks_until_it_is_released() -> None:
    left = NOTHING_LEFT.after(KeyDown("ctrl"))
    assert [event["modifiers"] for _, event in input_calls(Click(1, 2), left)] == [2, 2, 2]
    (press, _) = input_calls(Type("a"), left)
    assert press[1]["type"] == "rawKeyDown"
    assert "text" not in press[1]
    assert left.after(KeyUp("ctrl")) == NOTHING_LEFT
    assert input_calls(KeyUp("ctrl"), NOTHING_LEFT)[0][1]["type"] == "keyUp"


def test_a_scroll_without_a_point_is_where_the_pointer_was_left() -> None:
    left = NOTHING_LEFT.after(Click(1, 2)).after(Type("a")).after(Drag(3, 4, 50, 60))
    ((_, wheel),) = input_calls(ScrollHere("down"), left)
    assert (wheel["x"], wheel["y"], wheel["deltaY"]) == (50, 60, 100)
    assert (left.after(Hover(7, 8)).x, left.after(Scroll(9, 9, "up")).y) == (7, 9)


def test_a_tab_in_a_text_presses_the_key() -> None:
    assert [event["key"] for event in events(Type("a\t"))] == ["a", "a", "Tab", "Tab"]


def test_only_keys_take_time_of_their_own_and_each_the_same() -> None:
    key_s, text_s = (own_time_s(input_calls(Type("x" * count))) for count in (1, 1000))
    assert own_time_s(input_calls(Click(3, 4))) == 0.0
    assert text_s == pytest.approx(1000 * key_s)
