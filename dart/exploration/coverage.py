"""How much of a site was found after how many actions, and when to stop. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FLAT_WINDOW = 100
"""Actions over which the slope of the curve is measured."""

FLAT_BELOW = 1 / 25
"""New shapes for each action below which the curve is flat."""


@dataclass(frozen=True, slots=True)
class CoveragePoint:
    """What was known after a number of actions."""

    actions: int
    screens: int
    shapes: int


def coverage_curve(found: Iterable[tuple[int, str]], actions: int) -> list[CoveragePoint]:
    """The curve from 0 to `actions`, with a point wherever something was found.

    found   for each screen, the number of actions with which it was found, and its shape
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
    """The newest point of a curve that is not after a number of actions."""
    return max((point for point in curve if point.actions <= actions), key=lambda point: point.actions)


def slope(curve: Sequence[CoveragePoint], window: int = FLAT_WINDOW) -> float:
    """New shapes for each of the last `window` actions; infinite before there were that many."""
    last = curve[-1]
    if last.actions < window:
        return float("inf")
    return (last.shapes - at(curve, last.actions - window).shapes) / window


def is_flat(curve: Sequence[CoveragePoint]) -> bool:
    """Whether more actions find hardly anything of a new kind: below one new shape in 25 actions."""
    return slope(curve) < FLAT_BELOW


def area_under(counts: Sequence[tuple[int, int]], actions: int) -> float:
    """Mean count over the first `actions` actions, which is the area under the curve divided by them.

    counts   number of actions and what was found by then, ascending, beginning at 0 actions
    """
    if actions <= 0:
        raise ValueError(f"expected at least one action, got {actions}")
    ends = [at_ for at_, _ in counts[1:]] + [actions]
    area = sum(
        found * (min(end, actions) - begin)
        for (begin, found), end in zip(counts, ends, strict=True)
        if begin < actions
    )
    return area / actions
