"""What the page must count for each action, and in which words a difference is told."""

from collections import Counter

import pytest

from dart.core.actions import Action, Click, Drag, Hotkey, LeftDouble, Scroll, Type, Wait
from dart.environments.browser_inputs import differences, expected_counts, input_calls
from dart.environments.screenshot_checks import FrameWatch


@pytest.mark.parametrize(
    ("action", "counted"),
    [
        (Click(1, 2), {"pointerdown": 1, "pointerup": 1}),
        (LeftDouble(1, 2), {"pointerdown": 2, "pointerup": 2}),
        (Drag(1, 2, 30, 40), {"pointerdown": 1, "pointerup": 1}),
        (Type("ab\n"), {"keydown": 3, "keyup": 3}),
        (Hotkey(("ctrl", "c")), {"keydown": 2, "keyup": 2}),
        (Scroll(1, 2, "up"), {"wheel": 100}),
        (Wait(), {}),
    ],
)
def test_each_action_has_its_receipts(action: Action, counted: dict[str, int]) -> None:
    assert expected_counts(input_calls(action)) == Counter(counted)


@pytest.mark.parametrize(
    ("sent", "arrived", "says"),
    [
        ({"keydown": 2}, {"keydown": 2}, ""),
        ({"keydown": 2}, {"keydown": 2, "wheel": 0}, ""),
        ({"keydown": 2}, {"keydown": 1}, "1 of 2 keydown"),
        ({"keydown": 2, "keyup": 2}, {}, "0 of 2 keydown, 0 of 2 keyup"),
        ({}, {"wheel": 100}, "100 of 0 wheel"),
    ],
)
def test_what_does_not_agree_is_said(sent: dict[str, int], arrived: dict[str, int], says: str) -> None:
    assert differences(sent, arrived) == says


@pytest.mark.parametrize(
    ("happens", "suspicious"),
    [
        (["a"], False),
        (["a", "b"], False),
        (["a", None, "b", None, "a"], False),
        (["a", "a"], False),
        (["a", None, "a"], True),
        (["a", None, "b", None, "b", None, "c"], True),
    ],
)
def test_a_screenshot_that_an_action_did_not_change_is_suspicious(
    happens: list[str | None], suspicious: bool
) -> None:
    watch = FrameWatch()
    for event in happens:
        if event is None:
            watch.acted()
        else:
            watch.saw(event.encode())
    assert watch.is_suspicious is suspicious
