"""Comparison of the input events that were sent with those that the screen counted. Pure.

It shows when an action was lost or doubled. Both sides count events by the name the page gives them; the
wheel counts in pixels, because a browser may split one event into two. The page counts pointer events, not
mouse events: a disabled button receives no mouse events, and a page that cancels a pointer event suppresses
the mouse event that follows it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from dart.environments.browser_inputs import Call

InputCounts = Counter[str]
"""Number of events by name: pointerdown, pointerup, keydown, keyup; and wheel, in pixels."""

EVENT_OF = {
    "mousePressed": "pointerdown",
    "mouseReleased": "pointerup",
    "keyDown": "keydown",
    "rawKeyDown": "keydown",
    "keyUp": "keyup",
}


def expected_counts(calls: Iterable[Call]) -> InputCounts:
    """Return what the page counts when it receives exactly these calls."""
    counted: InputCounts = Counter()
    for _, event in calls:
        if event["type"] in EVENT_OF:
            counted[EVENT_OF[event["type"]]] += 1
        elif event["type"] == "mouseWheel":
            counted["wheel"] += int(abs(event["deltaX"]) + abs(event["deltaY"]))
    return counted


def differences(sent: Mapping[str, int], arrived: Mapping[str, int]) -> str:
    """Describe what does not agree, such as `2 of 1 pointerdown`; empty when everything agrees."""
    counts = {name: (arrived.get(name, 0), sent.get(name, 0)) for name in sorted({*sent, *arrived})}
    return ", ".join(f"{came} of {went} {name}" for name, (came, went) in counts.items() if came != went)
