"""Choosing among candidates by a verifier's scores, and the candidates that a verifier is trained on. Pure.

GUI-Actor (arXiv 2506.03143, section 3.4) takes other elements and random points as negatives. This module
adds near misses, points just outside of the box, because wrong candidates are often such points.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dart.core.boxes import Box
from dart.core.screenspot import GroundingSample
from dart.policy.pointer.model import Point

STOP_AT = 0.8
"""The first candidate with at least this score is chosen; GUI-Actor uses 0.95 on ScreenSpot-Pro."""

LARGEST_SHARE = 0.8
"""Elements that cover at least this share of the screen are no training data: most points hit them."""

NEAR_PATCHES = (1, 2)
"""Distances of near misses from the sides of the box, in patches."""

RANDOM_TRIES = 50


@dataclass(frozen=True, slots=True)
class Verified:
    """A verifier's choice."""

    index: int
    """Index of the chosen candidate."""
    score: float
    """Probability that the chosen candidate is right, in [0, 1]."""
    scored: int
    """Number of candidates that the verifier has scored, each by one pass of the model."""


def choose(
    candidates: Sequence[Point], score: Callable[[Point], float], stop_at: float = STOP_AT
) -> Verified:
    """Score candidates in their order and return the first with `stop_at` or more, else the best one.

    Raises ValueError without candidates.
    """
    if not candidates:
        raise ValueError("expected at least one candidate to verify, got none")
    best = Verified(0, -1.0, 0)
    for index, candidate in enumerate(candidates):
        found = score(candidate)
        if found > best.score:
            best = Verified(index, found, index + 1)
        if found >= stop_at:
            return best
    return Verified(best.index, best.score, len(candidates))


@dataclass(frozen=True, slots=True)
class MarkedPoint:
    """A right or wrong point of a sample, on which a verifier is trained."""

    sample: GroundingSample
    point: Point
    is_right: bool


def training_points(
    samples: Sequence[GroundingSample], patch: Callable[[GroundingSample], Point], draw: random.Random
) -> Iterator[MarkedPoint]:
    """Yield one right and one wrong point for each sample, except for elements that fill the screen.

    The wrong points are in turn the centre of another element, a near miss and a random point. If a sample
    has no point of one kind, the next kind is taken; if it has none at all, its wrong point is missing.

    patch   returns width and height of a patch of the model whose candidates will be verified, in fractions
            of the sample's screen
    """
    turn = 0
    for sample in samples:
        box = sample.box.scaled(1 / sample.width_px, 1 / sample.height_px)
        if box.area >= LARGEST_SHARE:
            continue
        turn += 1
        yield MarkedPoint(sample, _inside(box, draw), True)
        if (wrong := _wrong_point(sample, box, patch(sample), turn, draw)) is not None:
            yield MarkedPoint(sample, wrong, False)


def _wrong_point(
    sample: GroundingSample, box: Box, patch: Point, turn: int, draw: random.Random
) -> Point | None:
    kinds = (other_centres(sample, box), near_misses(box, patch), _outside(box, draw))
    for number in range(len(kinds)):
        if points := kinds[(turn + number) % len(kinds)]:
            return draw.choice(points)
    return None


def other_centres(sample: GroundingSample, box: Box) -> list[Point]:
    """Return the centres of the other elements of a screen, without those inside of the box."""
    scaled = (one.scaled(1 / sample.width_px, 1 / sample.height_px) for one in sample.elements)
    return [one.centre for one in scaled if not box.contains(*one.centre)]


def near_misses(box: Box, patch: Point) -> list[Point]:
    """Return the points one and two patches outside of each side of a box that are on the screen."""
    (x, y), (width, height) = box.centre, patch
    points = [
        point
        for far in NEAR_PATCHES
        for point in (
            (box.left - far * width, y),
            (box.right + far * width, y),
            (x, box.top - far * height),
            (x, box.bottom + far * height),
        )
    ]
    return [(px, py) for px, py in points if 0 <= px <= 1 and 0 <= py <= 1]


def _inside(box: Box, draw: random.Random) -> Point:
    return draw.uniform(box.left, box.right), draw.uniform(box.top, box.bottom)


def _outside(box: Box, draw: random.Random) -> list[Point]:
    """Return one random point of the screen outside of a box; an empty list if RANDOM_TRIES tries fail."""
    tries = ((draw.random(), draw.random()) for _ in range(RANDOM_TRIES))
    return [point for point in tries if not box.contains(*point)][:1]
