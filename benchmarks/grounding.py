"""Grounding on pages that were never trained on: which head finds the element, and against which controls?

    python -m benchmarks.grounding                     # three seeds, two hours of a free core
    python -m benchmarks.grounding --quick             # one seed, a few updates: does it measure?
    python -m benchmarks.grounding --data FOLDER       # pages that were collected before
    python -m benchmarks.grounding --training-sites shop forum admin   # screens of three sites, too
    python -m benchmarks.grounding --join FILE FILE    # the table of seeds that were measured apart

All heads have the same backbone (the small policy), data, batches and updates. Held-out pages have held-out
seeds of the training tasks; unseen pages are of tasks that no training page is of, and the measured screens
are of sites that no training screen is of. Controls: a random element of the page, the centre, the same model
without the picture, the same model with another page's picture.

Attribute queries (kind, colour, shape, order) must beat a random element; text queries need reading and are
reported as they are. Intervals are Student's t over seeds. The verifier chooses among the pointer head's
candidates: hits gained, candidates and seconds a query.
"""

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks import grounding_controls as controls
from benchmarks.intervals import half_width
from dart.config.sections import GroundingSettings
from dart.core.screenspot import ANNOTATIONS, GroundingSample, read_screenspot
from dart.environments.sites.catalogue import SITES as SITE_NAMES
from dart.grounding.data import pixels_of
from dart.grounding.evaluation import COUNTS, Grounded, ground_all
from dart.grounding.jobs import train_job, train_verifier_job
from dart.grounding.pages import SITES, TASKS, UNSEEN_TASKS, Split, collect_pages
from dart.grounding.verification import Verified, choose
from dart.grounding.verifier import load_verifier
from dart.policy.pointer.model import GroundingModel, Point

HEADS = {
    "pointer head": {"head": "pointer"},
    "pointer head, Gaussian labels": {"head": "pointer", "labels": "gaussian"},
    "attention head": {"head": "attention"},
    "coordinate head": {"head": "coordinates"},
}
"""The arms, and how `[grounding]` says them."""

VERIFIED = "pointer head and verifier"

VERIFIER_LR = 5e-4
"""The verifier starts from a trained model, as GUI-Actor's does, so it needs smaller steps."""

ATTRIBUTES = ("kind", "colour", "shape", "order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    pages: int = 2040
    held_out_pages: int = 170
    unseen_pages: int = 60
    site_pages: int = 120
    training_sites: tuple[str, ...] = ()
    """Sites whose screens are trained on; the screens of the others are measured."""
    training_site_pages: int = 900
    updates: int = 1000
    verifier_updates: int = 300
    samples: int = 400
    """Samples of each set that are measured, drawn once for all arms."""
    control_samples: int = 200


QUICK = Size(
    pages=17,
    held_out_pages=17,
    unseen_pages=3,
    site_pages=6,
    training_site_pages=3,
    updates=4,
    verifier_updates=2,
    samples=10,
    control_samples=4,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """Accuracy of one method on one group of samples, for one seed."""

    method: str
    seed: int
    data: str
    group: str
    accuracy: float
    samples: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What a query costs."""

    method: str
    seed: int
    seconds: float
    candidates: float


# ---- data ----


def data_sets(folder: Path, size: Size) -> dict[str, list[GroundingSample]]:
    """Collect the pages that are missing in a folder, and read the samples of all sets."""
    unseen_sites = [SITES + name for name in SITE_NAMES if name not in size.training_sites]
    training_sites = [SITES + name for name in size.training_sites]
    wanted: dict[str, tuple[Sequence[str], int, Split]] = {
        "train": (TASKS, size.pages, "train"),
        "held-out": (TASKS, size.held_out_pages, "held-out"),
        "unseen": (UNSEEN_TASKS, size.unseen_pages, "held-out"),
        "sites": (unseen_sites, size.site_pages, "held-out"),
    }
    if training_sites:
        wanted["train-sites"] = (training_sites, size.training_site_pages, "train")
    for name, (tasks, pages, split) in wanted.items():
        if not (folder / name / ANNOTATIONS).exists():  # written last
            collect_pages(tasks, pages, split, folder / name)
    draw = random.Random(0)
    sets = {name: read_screenspot(folder / name) for name in ("held-out", "unseen", "sites")}
    return {name: draw.sample(held, min(size.samples, len(held))) for name, held in sets.items()}


# ---- cells ----


def cells(
    method: str, seed: int, data: str, values: Sequence[tuple[GroundingSample, float]]
) -> Iterator[Cell]:
    """Yield the accuracy of all samples and of each group of them."""
    groups: dict[str, list[float]] = {}
    for sample, value in values:
        for group in groups_of(sample):
            groups.setdefault(group, []).append(value)
    for group, held in sorted(groups.items()):
        yield Cell(method, seed, data, group, statistics.fmean(held), len(held))


def groups_of(sample: GroundingSample) -> tuple[str, ...]:
    kind = "attributes" if sample.query in ATTRIBUTES else "text"
    count = next(name for bound, name in COUNTS if len(sample.elements) <= bound)
    names = ("all", kind, f"{kind}, {count} elements")
    return (*names, f"query {sample.query}") if kind == "attributes" else names


def control_cells(data: str, samples: Sequence[GroundingSample]) -> Iterator[Cell]:
    """Yield the controls that need no model."""
    yield from cells(
        "random element", 0, data, list(zip(samples, controls.random_element(samples), strict=True))
    )
    yield from cells("centre", 0, data, list(zip(samples, controls.centre(samples), strict=True)))


def model_cells(
    method: str, seed: int, data: str, model: GroundingModel, samples: Sequence[GroundingSample], size: Size
) -> Iterator[Cell]:
    """Yield the accuracy of a model, and of the same model without the picture and with a wrong one."""
    found = ground_all(model, samples)
    yield from cells(method, seed, data, hits(found))
    few = samples[: size.control_samples]
    blind = controls.text_only(model, few)
    yield from cells(f"{method}, text only", seed, data, list(zip(few, blind, strict=True)))
    wrong = controls.shuffled_image(model, few, seed)
    yield from cells(f"{method}, shuffled image", seed, data, list(zip(few, wrong, strict=True)))


def hits(found: Sequence[Grounded]) -> list[tuple[GroundingSample, float]]:
    return [(one.sample, float(one.is_hit)) for one in found]


# ---- one seed ----


def measure_head(
    method: str, seed: int, folder: Path, size: Size, out: Path
) -> tuple[list[Cell], list[Cost]]:
    """Train and measure one head with one seed; with a verifier too, if it is the pointer head."""
    sets = data_sets(folder, size)
    trained_on = (folder / "train", *((folder / "train-sites",) if size.training_sites else ()))
    settings = GroundingSettings(data=trained_on, updates=size.updates, seed=seed, **HEADS[method])
    place = out / f"{method}-{seed}"
    model = train_job(settings, place, print)
    found = [
        cell
        for data, samples in sets.items()
        for cell in model_cells(method, seed, data, model, samples, size)
    ]
    costs = [Cost(method, seed, seconds_of(model, sets["held-out"][:20]), 0.0)]
    if method == "pointer head":
        change = {"base": str(place), "updates": size.verifier_updates, "lr": VERIFIER_LR}
        trained = settings.model_copy(update=change)
        more, cost = measure_verifier(seed, model, trained, sets, size, out)
        found, costs = found + more, [*costs, cost]
    return found, costs


def seconds_of(model: GroundingModel, samples: Sequence[GroundingSample]) -> float:
    return statistics.fmean(one.seconds for one in ground_all(model, samples))


def measure_verifier(
    seed: int,
    model: GroundingModel,
    settings: GroundingSettings,
    sets: dict[str, list[GroundingSample]],
    size: Size,
    out: Path,
) -> tuple[list[Cell], Cost]:
    """Train a verifier, and let it choose among the model's candidates."""
    place = out / f"verifier-{seed}"
    train_verifier_job(settings, place, print)
    verifier = load_verifier(place)

    def choose_candidate(sample: GroundingSample, candidates: Sequence[Point]) -> Verified:
        image = pixels_of(sample.image)
        return choose(candidates, lambda point: verifier.score(image, sample.instruction, point))

    found: list[Cell] = []
    verified: list[Grounded] = []
    for data, samples in sets.items():
        few = samples[: size.control_samples]
        with_it = ground_all(model, few, choose_candidate=choose_candidate)
        found += cells(VERIFIED, seed, data, hits(with_it))
        found += cells("pointer head, same samples", seed, data, hits(ground_all(model, few)))
        verified += with_it
    looked = [one.verified.scored for one in verified if one.verified is not None]
    seconds = statistics.fmean(one.seconds for one in verified)
    return found, Cost(VERIFIED, seed, seconds, statistics.fmean(looked))


# ---- the table ----


def mean_with_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean over seeds and half the width of its 95 % interval; not a number with one seed."""
    half = half_width(values)
    return statistics.fmean(values), math.nan if half is None else half


def lines(found: Sequence[Cell], costs: Sequence[Cost]) -> Iterator[str]:
    """Yield the table as Markdown."""
    for data in dict.fromkeys(cell.data for cell in found):
        here = [cell for cell in found if cell.data == data]
        groups = list(dict.fromkeys(cell.group for cell in here if "elements" not in cell.group))
        groups += sorted({cell.group for cell in here if "elements" in cell.group})
        yield f"\n{data} pages: share of hits, mean over seeds ± 95 %\n"
        yield f"| method | {' | '.join(groups)} |"
        yield "|---|" + "---|" * len(groups)
        for method in dict.fromkeys(cell.method for cell in here):
            yield f"| {method} | " + " | ".join(_entry(here, method, group) for group in groups) + " |"
    yield "\ncost of a query\n"
    yield "| method | seconds | candidates |"
    yield "|---|---|---|"
    for method in dict.fromkeys(cost.method for cost in costs):
        own = [cost for cost in costs if cost.method == method]
        seconds = statistics.fmean(cost.seconds for cost in own)
        yield f"| {method} | {seconds:.3f} | {statistics.fmean(cost.candidates for cost in own):.1f} |"


def _entry(found: Sequence[Cell], method: str, group: str) -> str:
    own = [cell for cell in found if cell.method == method and cell.group == group]
    if not own:
        return ""
    mean, half = mean_with_interval([cell.accuracy for cell in own])
    spread = "" if math.isnan(half) else f" ± {half:.2f}"
    return f"{mean:.2f}{spread} ({own[0].samples})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed, few pages, few updates")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--heads", nargs="+", choices=list(HEADS), default=list(HEADS), metavar="HEAD")
    parser.add_argument("--data", type=Path, help="folder of pages; what it lacks is collected into it")
    known = [*SITE_NAMES]
    help_ = "sites to train on, too; the others are measured"
    parser.add_argument("--training-sites", nargs="+", choices=known, metavar="SITE", help=help_)
    parser.add_argument("--updates", type=int, help="updates of every head")
    parser.add_argument("--verifier-updates", type=int, help="updates of the verifier")
    parser.add_argument("--samples", type=int, help="samples of each set that are measured")
    parser.add_argument("--control-samples", type=int, help="samples of controls and verifier")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/grounding.json"))
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="measure nothing: join results")
    options = parser.parse_args(arguments)
    if options.join:
        return join(options.join, options.out)
    chosen = {
        name: value
        for name in ("training_sites", "updates", "verifier_updates", "samples", "control_samples")
        if (value := getattr(options, name)) is not None
    }
    size = Size(**{**asdict(QUICK if options.quick else Size()), **chosen})
    torch.set_num_threads(1)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dartrl-grounding-") as scratch:
        folder = options.data or Path(scratch) / "data"
        found = [cell for data, held in data_sets(folder, size).items() for cell in control_cells(data, held)]
        costs: list[Cost] = []
        for seed in [0] if options.quick else options.seeds:
            for method in options.heads:
                more, spent = measure_head(method, seed, folder, size, Path(scratch))
                found, costs = found + more, costs + spent
                write(options.out, size, found, costs)
    print("\n".join(lines(found, costs)))
    print(f"\n{time.monotonic() - began_s:.0f} s, written to {options.out}")
    return 0


def join(files: Sequence[Path], out: Path) -> int:
    """Write the figures of several files as one, each figure once, and print their table."""
    read = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    found = list(dict.fromkeys(Cell(**cell) for one in read for cell in one["cells"]))
    costs = list(dict.fromkeys(Cost(**cost) for one in read for cost in one["costs"]))
    write(out, Size(**read[0]["size"]), found, costs)
    print("\n".join(lines(found, costs)))
    return 0


def write(out: Path, size: Size, found: Sequence[Cell], costs: Sequence[Cost]) -> None:
    """Write all figures so far, so that a run that is cut short has those of its finished heads."""
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = {
        "size": asdict(size),
        "cells": [asdict(one) for one in found],
        "costs": [asdict(one) for one in costs],
    }
    out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
