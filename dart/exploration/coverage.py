"""The coverage curve: numbers of screens and shapes found over actions, and when the curve is flat. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FLAT_WINDOW = 100
"""Number of newest actions over which the slope of the curve is measured."""

FLAT_BELOW = 1 / 25
"""Slope, in new shapes per action, below which the curve counts as flat."""


@dataclass(frozen=True, slots=True)
class CoveragePoint:
    """The numbers of screens and shapes that were known after a number of actions."""

    actions: int
    screens: int
    shapes: int


def coverage_curve(found: Iterable[tuple[int, str]], actions: int) -> list[CoveragePoint]:
    """Return the curve from 0 to `actions`, with a point at each number of actions that found a screen.

    found   for each screen, the number of actions up to the one that found it, and its shape
    """
    curve = [CoveragePoint(0, 0, 0)]
    shapes: set[str] = set()
    for screens, (at, shape) in enumerate(sorted(found), start=1):
        shapes.add(shape)
        if curve[-1].actions == at:
            curve.pop()
        curve.append(CoveragePoint(at, screens, len(shapes)))
    if curve[-1].actions < actions:
        curve.append(CoveragePoint(actions, curve[-1].screens, curve[-1].shapes))
    return curve


def at(curve: Sequence[CoveragePoint], actions: int) -> CoveragePoint:
    """Return the last point of a curve with at most this number of actions."""
    return max((point for point in curve if point.actions <= actions), key=lambda point: point.actions)


def slope(curve: Sequence[CoveragePoint]) -> float:
    """Return the number of new shapes per action over the last `FLAT_WINDOW` actions.

    It is infinite if there were fewer actions.
    """
    last = curve[-1]
    if last.actions < FLAT_WINDOW:
        return float("inf")
    return (last.shapes - at(curve, last.actions - FLAT_WINDOW).shapes) / FLAT_WINDOW


def is_flat(curve: Sequence[CoveragePoint]) -> bool:
    """Whether the last 100 actions found fewer than one new shape in 25 actions."""
    return slope(curve) < FLAT_BELOW
