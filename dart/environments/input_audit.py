"""Whether the screen got exactly the input events that were sent: what a lost or doubled action shows by.

Pure. Both sides count events by the name the page gives them; the wheel counts in pixels, because a browser
may make one event of two. The page counts pointer events rather than mouse events: a disabled button takes
no mouse events, and whoever stops a pointer event stops the mouse event that follows it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from dart.environments.browser_inputs import Call

Receipts = Counter[str]
"""Events by name: pointerdown, pointerup, keydown, keyup; and wheel, in pixels."""

EVENT_OF = {
    "mousePressed": "pointerdown",
    "mouseReleased": "pointerup",
    "keyDown": "keydown",
    "rawKeyDown": "keydown",
    "keyUp": "keyup",
}


def receipts_of(calls: Iterable[Call]) -> Receipts:
    """What the page counts when exactly these calls reach it."""
    counted: Receipts = Counter()
    for _, event in calls:
        if event["type"] in EVENT_OF:
            counted[EVENT_OF[event["type"]]] += 1
        elif event["type"] == "mouseWheel":
            counted["wheel"] += int(abs(event["deltaX"]) + abs(event["deltaY"]))
    return counted


def differences(sent: Mapping[str, int], arrived: Mapping[str, int]) -> str:
    """In words what does not agree, empty when all does: `2 of 1 pointerdown`."""
    names = sorted({*sent, *arrived})
    return ", ".join(
        f"{arrived.get(name, 0)} of {sent.get(name, 0)} {name}"
        for name in names
        if arrived.get(name, 0) != sent.get(name, 0)
    )
