"""Thresholds at which two screens are the same, from labelled pairs (`benchmarks.exploration --pairs`)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Largest distances at which two screens still count as the same."""

    d_dom: float
    d_img: float


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """The distances of two screens, and whether the screens are the same state of the page."""

    d_dom: float
    d_img: float
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """A pair of thresholds with the rates that they have on labelled pairs."""

    thresholds: Thresholds
    true_positive_rate: float
    """Share of the pairs with the same state that count as the same screen."""
    false_positive_rate: float
    """Share of the pairs with different states that count as the same screen."""

    @property
    def youden(self) -> float:
        """Youden's J: true positive rate minus false positive rate."""
        return self.true_positive_rate - self.false_positive_rate


def operating_point(pairs: Sequence[LabelledPair], thresholds: Thresholds) -> OperatingPoint:
    """Return the rates of one pair of thresholds on labelled pairs of screens.

    Raises ValueError unless there are pairs with the same state and pairs with different states.
    """

    def rate(label: bool) -> float:
        own = [pair for pair in pairs if pair.is_same is label]
        if not own:
            raise ValueError(
                "expected pairs with the same state and pairs with different states, got none labelled "
                f"is_same={label}"
            )
        hits = sum(pair.d_dom <= thresholds.d_dom and pair.d_img <= thresholds.d_img for pair in own)
        return hits / len(own)

    return OperatingPoint(
        thresholds=thresholds, true_positive_rate=rate(True), false_positive_rate=rate(False)
    )


def calibrate(
    pairs: Sequence[LabelledPair], d_doms: Sequence[float], d_imgs: Sequence[float]
) -> OperatingPoint:
    """Return the thresholds with the largest Youden's J; if several have it, those with the smallest d_dom,
    then the smallest d_img."""
    points = [operating_point(pairs, Thresholds(dom, img)) for dom in d_doms for img in d_imgs]
    return max(points, key=lambda one: (one.youden, -one.thresholds.d_dom, -one.thresholds.d_img))
