"""Accuracy of grounding: the share of points inside the box, by kind of element, query, size and number.

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
"""Upper bounds of an element's share of the screen, each with its name."""

COUNTS = ((1, "1"), (3, "2 to 3"), (6, "4 to 6"), (float("inf"), "7 and more"))
"""Upper bounds of the number of elements on a screen, each with its name."""

ChooseCandidate = Callable[[GroundingSample, Sequence[Point]], Verified]
"""Asks a verifier to choose among the candidates for a sample."""


@dataclass(frozen=True, slots=True)
class Grounded:
    """What came of one sample."""

    sample: GroundingSample
    point: Point
    """In fractions of the screen."""
    is_hit: bool
    """Whether the point is in the box."""
    is_hit_of_k: bool
    """Whether any of the first k regions points into the box."""
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
    """Sizes in which the model is shown them."""
    k: int
    is_zoomed: bool
    verifier: str
    """Checkpoint of the verifier; empty without one."""
    rows: tuple[AccuracyRow, ...]
    """The first row is that of all samples."""
    hits_of_k: AccuracyRow
    """Samples of which any of the first k regions is right."""
    seconds_per_query: float
    candidates_per_query: float
    """How many candidates the verifier scored for each query; 0 without one."""


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
    choose_candidate   takes the place of the best region, if given
    report             called with a line of text about the progress every REPORT_EVERY_S
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
    """Summarise what came of the samples of a data set; at least one."""
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
    """Return the accuracy of all samples, then by each of their properties that the set knows."""
    rows = [_row("all", "all", [is_hit for _, is_hit in hits])]
    for group, name_of in GROUPS.items():
        named: dict[str, list[bool]] = {}
        for sample, is_hit in hits:
            named.setdefault(name_of(sample), []).append(is_hit)
        rows += [_row(group, name, values) for name, values in sorted(named.items()) if name]
    return rows


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
"""What samples are grouped by; an empty name leaves a sample out of the group."""
