"""What the benchmark of alignment measured, and its tables."""

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alignment_data import Yield
from benchmarks.grounding import mean_with_interval

ALL_SITES = "all sites"

GROUPS = ("all", "outcome", "element or order", "new here", "known elsewhere")
"""Groups of the queries of unseen screens. `known elsewhere`: the oracle's training samples have the same
instruction with an element at the same place."""

RESAMPLES = 10_000

PAIRS = (
    ("generic", "base"),
    ("random", "base"),
    ("memory_q", "base"),
    ("oracle", "base"),
    ("random", "generic"),
    ("memory_q", "generic"),
    ("oracle", "generic"),
    ("memory_q", "random"),
)
"""Arms whose accuracies are compared on the same samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query that is measured."""

    instruction: str
    query: str
    is_known: bool
    chance: float
    """Probability that a random element of the screen is the right one."""

    @property
    def groups(self) -> tuple[str, ...]:
        kind = "outcome" if self.query == "outcome" else "element or order"
        return "all", kind, "known elsewhere" if self.is_known else "new here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The hits of one model on one set, in the order of the set."""

    arm: str
    site: str
    seed: int
    data: str
    """`unseen`, `unseen without the picture`, or `generic`."""
    hits: str
    """One digit for each sample."""

    @property
    def values(self) -> list[int]:
        return [int(one) for one in self.hits]


@dataclass(slots=True)
class Result:
    """All that was measured with one setting."""

    setting: dict[str, Any]
    yields: list[Yield] = field(default_factory=list)
    asked: dict[str, list[Asked]] = field(default_factory=dict)
    """The queries of each site."""
    measured: list[Measured] = field(default_factory=list)

    def has(self, arm: str, site: str, seed: int) -> bool:
        """Whether an arm was measured."""
        return any((one.arm, one.site, one.seed) == (arm, site, seed) for one in self.measured)

    def write(self, out: Path) -> None:
        """Write everything so far; the file is replaced at once."""
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        partial.replace(out)


def read_result(path: Path) -> Result:
    read = json.loads(path.read_text(encoding="utf-8"))
    return Result(
        read["setting"],
        [Yield(**one) for one in read["yields"]],
        {site: [Asked(**one) for one in asked] for site, asked in read["asked"].items()},
        [Measured(**one) for one in read["measured"]],
    )


def joined(results: Sequence[Result]) -> Result:
    """Results of one setting as one, each figure once. Raises ValueError for different settings."""
    first = results[0]
    for other in results[1:]:
        if other.setting != first.setting:
            raise ValueError(f"expected results of one setting, got {first.setting} and {other.setting}")
        first.asked |= other.asked
    return Result(
        first.setting,
        list(dict.fromkeys(one for result in results for one in result.yields)),
        first.asked,
        list(dict.fromkeys(one for result in results for one in result.measured)),
    )


# ---- figures ----


def hits_of(result: Result, arm: str, site: str, seed: int, data: str) -> list[int]:
    """The hits of an arm on a site, or on all sites one after the other; empty if one was not measured."""
    sites = list(result.asked) if site == ALL_SITES else [site]
    found = {
        one.site: one.values for one in result.measured if (one.arm, one.seed, one.data) == (arm, seed, data)
    }
    if not all(one in found for one in sites):
        return []
    return [value for one in sites for value in found[one]]


def asked_of(result: Result, site: str) -> list[Asked]:
    sites = list(result.asked) if site == ALL_SITES else [site]
    return [one for name in sites for one in result.asked[name]]


def seeds_of(result: Result) -> list[int]:
    return sorted({one.seed for one in result.measured if one.arm != "base"})


def by_seed(result: Result, arm: str, site: str, data: str) -> list[list[int]]:
    """The hits of an arm for every seed that has them; the base is the same for all seeds."""
    seeds = [0] if arm == "base" else seeds_of(result)
    return [hits for seed in seeds if (hits := hits_of(result, arm, site, seed, data))]


def in_group(values: Sequence[int], asked: Sequence[Asked], group: str) -> list[int]:
    """The values of the queries of a group; of a set that has no groups, all."""
    return [value for value, one in zip(values, asked, strict=True) if group in one.groups]


def paired_difference(
    ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]
) -> tuple[float, float, float]:
    """Mean difference of two arms on the same samples, with the 95 % interval of a paired bootstrap.

    ours, theirs   hits by seed and sample; the hits of a sample are averaged over seeds first
    """
    difference = np.mean(ours, axis=0) - np.mean(theirs, axis=0)
    drawn = np.random.default_rng(0).integers(len(difference), size=(RESAMPLES, len(difference)))
    low, high = np.quantile(difference[drawn].mean(axis=1), [0.025, 0.975])
    return float(difference.mean()), float(low), float(high)


# ---- tables ----


def lines(result: Result) -> Iterator[str]:
    """Yield all tables as Markdown."""
    sites = [*result.asked, ALL_SITES] if len(result.asked) > 1 else list(result.asked)
    arms = list(dict.fromkeys(one.arm for one in result.measured))
    for site in sites:
        yield f"\n{site}: share of hits on unseen shapes, mean over seeds ± 95 %\n"
        yield from accuracy_lines(result, site, arms)
        yield f"\n{site}: difference on the same samples [95 % of a paired bootstrap]\n"
        yield from difference_lines(result, site)
    yield "\nwhat was found\n"
    yield from yield_lines(result.yields)


def accuracy_lines(result: Result, site: str, arms: Sequence[str]) -> Iterator[str]:
    asked = asked_of(result, site)
    counts = {group: sum(group in one.groups for one in asked) for group in GROUPS}
    heads = [f"{group} ({counts[group]})" for group in GROUPS]
    yield f"| arm | {' | '.join(heads)} | all, without the picture | generic before | generic after |"
    yield "|---|" + "---|" * (len(GROUPS) + 3)
    chances = [
        statistics.fmean(chosen)
        if (chosen := [one.chance for one in asked if group in one.groups])
        else math.nan
        for group in GROUPS
    ]
    yield "| a random element | " + " | ".join(f"{one:.2f}" for one in chances) + " | | | |"
    before = entry(by_seed(result, "base", site, "generic"))
    for arm in arms:
        unseen = by_seed(result, arm, site, "unseen")
        cells = [entry([in_group(values, asked, group) for values in unseen]) for group in GROUPS]
        cells.append(entry(by_seed(result, arm, site, "unseen without the picture")))
        cells += [before, "" if arm == "base" else entry(by_seed(result, arm, site, "generic"))]
        yield f"| {arm} | {' | '.join(cells)} |"


def entry(values: Sequence[Sequence[int]]) -> str:
    """Mean over seeds with its interval; empty without samples."""
    if not values or not values[0]:
        return ""
    mean, half = mean_with_interval([statistics.fmean(one) for one in values])
    return f"{mean:.2f}" + ("" if math.isnan(half) else f" ± {half:.2f}")


def difference_lines(result: Result, site: str) -> Iterator[str]:
    asked = asked_of(result, site)
    yield f"| arms | {' | '.join(GROUPS)} | generic |"
    yield "|---|" + "---|" * (len(GROUPS) + 1)
    for ours, theirs in PAIRS:
        pair = [by_seed(result, arm, site, "unseen") for arm in (ours, theirs)]
        generic = [by_seed(result, arm, site, "generic") for arm in (ours, theirs)]
        if not all((*pair, *generic)):
            continue
        cells = [
            difference_entry(*([in_group(values, asked, group) for values in arm] for arm in pair))
            for group in GROUPS
        ]
        yield f"| {ours} - {theirs} | {' | '.join([*cells, difference_entry(*generic)])} |"


def difference_entry(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> str:
    if not ours[0]:
        return ""
    mean, low, high = paired_difference(ours, theirs)
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def yield_lines(yields: Sequence[Yield]) -> Iterator[str]:
    yield "| site | source | seed | actions | screens | shapes | samples | outcomes | usable |"
    yield "|---|" + "---|" * 8
    for one in yields:
        yield "| " + " | ".join(str(value) for value in asdict(one).values()) + " |"
