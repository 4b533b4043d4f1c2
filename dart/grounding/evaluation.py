"""Accuracy of grounding: the share of samples whose point is in the box, in total and for groups of samples.

A report names the prompt and the sizes of the images, because accuracies of one checkpoint differ by several
points between prompts and resolutions. Imports no torch.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dart.core.screenspot import GroundingSample
from dart.core.statistics import Score
from dart.grounding.data import fraction_box, pixels_of
from dart.grounding.verification import Verified
from dart.grounding.zoom import ground_with_zoom
from dart.policy.pointer.model import GroundingModel, Point
from dart.policy.pointer.regions import Region
from dart.policy.protocols import Pixels

SIZES = ((0.001, "below 0.1 %"), (0.01, "0.1 to 1 %"), (0.05, "1 to 5 %"), (float("inf"), "above 5 %"))
"""Groups of samples by the element's share of the screen's area: upper bound and name of each group."""

COUNTS = ((1, "1"), (3, "2 to 3"), (6, "4 to 6"), (float("inf"), "7 and more"))
"""Groups of samples by the number of elements on the screen: upper bound and name of each group."""

ChooseCandidate = Callable[[GroundingSample, Sequence[Point]], Verified]
"""Function that asks a verifier to choose among the candidates for a sample."""


@dataclass(frozen=True, slots=True)
class Grounded:
    """The result of grounding one sample."""

    sample: GroundingSample
    point: Point
    """The point that the model or the verifier chose, in fractions of the screen."""
    is_hit: bool
    """Whether the point is in the box."""
    is_hit_of_k: bool
    """Whether the centre of any of the model's first k regions is in the box."""
    seconds: float
    verified: Verified | None = None


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """Accuracy of one group of samples, with its 95 % interval."""

    group: str
    """What the samples are grouped by, such as `kind`."""
    name: str
    hits: int
    samples: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyReport:
    """The accuracy of a checkpoint on a data set, with all that is needed to measure it again."""

    checkpoint: str
    data: str
    head: str
    prompt: str
    """The whole prompt, with `{instruction}` in place of the instruction."""
    screen_sizes_px: tuple[str, ...]
    """Sizes of the screenshots."""
    shown_sizes_px: tuple[str, ...]
    """Sizes of the images that the model sees."""
    k: int
    is_zoomed: bool
    verifier: str
    """Checkpoint of the verifier; empty without one."""
    rows: tuple[AccuracyRow, ...]
    """The first row is for all samples, the others are for groups of samples."""
    hits_of_k: AccuracyRow
    """Accuracy if a sample counts as a hit when any of the model's first k regions hits."""
    seconds_per_query: float
    candidates_per_query: float
    """Mean number of candidates that the verifier scored for a query; 0 without a verifier."""


REPORT_EVERY_S = 10.0


def ground_all(
    model: GroundingModel,
    samples: Sequence[GroundingSample],
    *,
    k: int = 3,
    is_zoomed: bool = False,
    choose_candidate: ChooseCandidate | None = None,
    clock: Callable[[], float] = time.monotonic,
    report: Callable[[str], object] = lambda _: None,
) -> list[Grounded]:
    """Ground every sample.

    k                  how many regions count for `is_hit_of_k`
    is_zoomed          ground twice, the second time in a crop
    choose_candidate   chooses the point among the model's candidates; None: the best region's centre
    report             called with a line of text about the progress about every REPORT_EVERY_S seconds
    """
    found: list[Grounded] = []
    reported_s = clock()
    for sample in samples:
        found.append(_ground(model, sample, k, is_zoomed, choose_candidate, clock))
        if clock() - reported_s >= REPORT_EVERY_S:
            reported_s = clock()
            report(f"{len(found)} of {len(samples)} samples measured")
    return found


def _ground(
    model: GroundingModel,
    sample: GroundingSample,
    k: int,
    is_zoomed: bool,
    choose_candidate: ChooseCandidate | None,
    clock: Callable[[], float],
) -> Grounded:
    image, box = pixels_of(sample.image), fraction_box(sample)
    began_s = clock()
    ground = ground_with_zoom if is_zoomed else _ground_once
    regions = ground(model, image, sample.instruction, k)
    point, verified = regions[0].centre, None
    if choose_candidate is not None:
        candidates = model.candidates(image, sample.instruction)
        verified = choose_candidate(sample, candidates)
        point = candidates[verified.index]
    return Grounded(
        sample=sample,
        point=point,
        is_hit=box.contains(*point),
        is_hit_of_k=any(box.contains(*region.centre) for region in regions),
        seconds=clock() - began_s,
        verified=verified,
    )


def _ground_once(model: GroundingModel, image: Pixels, instruction: str, k: int) -> list[Region]:
    return model.ground(image, instruction, k)


def accuracy_report(
    model: GroundingModel,
    found: Sequence[Grounded],
    *,
    checkpoint: str,
    data: str,
    k: int,
    is_zoomed: bool = False,
    verifier: str = "",
) -> AccuracyReport:
    """Summarise the results of a data set's samples, of which there must be at least one."""
    images = {one.sample.image: one.sample for one in found}
    shown = {model.shown_size(pixels_of(image)) for image in images}
    scored = [one.verified.scored for one in found if one.verified is not None]
    return AccuracyReport(
        checkpoint=checkpoint,
        data=data,
        head=model.settings.head,
        prompt=model.prompt,
        screen_sizes_px=_spelled((one.width_px, one.height_px) for one in images.values()),
        shown_sizes_px=_spelled(shown),
        k=k,
        is_zoomed=is_zoomed,
        verifier=verifier,
        rows=tuple(accuracy_rows([(one.sample, one.is_hit) for one in found])),
        hits_of_k=_row("all", f"any of {k}", [one.is_hit_of_k for one in found]),
        seconds_per_query=sum(one.seconds for one in found) / len(found),
        candidates_per_query=sum(scored) / len(found),
    )


def _spelled(sizes: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    return tuple(f"{width}x{height}" for width, height in sorted(set(sizes)))


def accuracy_rows(hits: Sequence[tuple[GroundingSample, bool]]) -> list[AccuracyRow]:
    """Return a row for all samples, then one for each value of each property in GROUPS that samples have.

    The values of a property are in alphabetical order, sizes and numbers of elements from the smallest.
    """
    rows = [_row("all", "all", [is_hit for _, is_hit in hits])]
    for group, name_of in GROUPS.items():
        named: dict[str, list[bool]] = {}
        for sample, is_hit in hits:
            named.setdefault(name_of(sample), []).append(is_hit)
        rows += [_row(group, name, values) for name, values in sorted(named.items(), key=_place) if name]
    return rows


def _place(named: tuple[str, object]) -> tuple[int, str]:
    """Return the place of a group with this name among those of its property."""
    ordered = [name for _, name in (*SIZES, *COUNTS)]
    return (ordered.index(named[0]) if named[0] in ordered else 0, named[0])


def _row(group: str, name: str, hits: Sequence[bool]) -> AccuracyRow:
    score = Score(sum(hits), len(hits))
    interval = score.interval
    return AccuracyRow(group, name, score.successes, score.episodes, score.rate, interval.low, interval.high)


def _size_name(sample: GroundingSample) -> str:
    share = sample.box.area / (sample.width_px * sample.height_px)
    return next(name for bound, name in SIZES if share < bound)


def _count_name(sample: GroundingSample) -> str:
    count = len(sample.elements)
    return next(name for bound, name in COUNTS if count <= bound) if count else ""


GROUPS: Mapping[str, Callable[[GroundingSample], str]] = {
    "type": lambda sample: sample.element_type,
    "kind": lambda sample: sample.kind,
    "query": lambda sample: sample.query,
    "source": lambda sample: sample.source,
    "size": _size_name,
    "elements": _count_name,
}
"""By property, the function that names a sample's group; an empty name leaves the sample out."""
