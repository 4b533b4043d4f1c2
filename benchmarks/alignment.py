"""Does data from a site help to find elements on screens of the site that were never trained on?

    python -m benchmarks.alignment --base CHECKPOINT   # two sites, three seeds
    python -m benchmarks.alignment --quick             # one site, one seed, few updates: does it measure?
    python -m benchmarks.alignment --data FOLDER       # generic pages that were collected before
    python -m benchmarks.alignment --join FILE FILE    # the tables of seeds that were measured apart

GUI-Bee's claim in small. One base checkpoint is trained further, with equal updates, batches and numbers of
samples, on generic pages, on what random and memory-Q exploration found on a site, or on what its machine
knows (the oracle); the data of a site is mixed with generic pages. All are measured on the same queries for
screens of shapes that none was trained on, half of them about outcomes, and on held-out generic pages.

What is finished is kept: data in `--work`, figures in `--out`. The same call goes on with both.
"""

import argparse
import asyncio
import hashlib
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from benchmarks import grounding_controls as controls
from benchmarks.alignment_data import (
    Yield,
    draw_oracle,
    explore,
    is_known,
    mixture,
    samples_in,
    usable,
)
from benchmarks.alignment_report import Asked, Measured, Result, joined, lines, read_result
from benchmarks.grounding import Size as GenericSize
from benchmarks.grounding import data_sets
from dart.config.sections import GroundingSettings
from dart.core.screenspot import GroundingSample, read_screenspot
from dart.environments.sites.catalogue import SITES
from dart.grounding.evaluation import ground_all
from dart.grounding.training import train_grounding
from dart.policy.placement import ModelPlacement
from dart.policy.pointer.load import load_grounding
from dart.policy.pointer.model import GroundingModel

STRATEGIES = ("random", "memory_q")
ARMS = ("generic", *STRATEGIES, "oracle")
"""What the base is trained further on."""

BASE_POLICY = Path(__file__).parents[1] / "configs" / "base-policy-pointer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    actions: int = 200
    """Actions of one exploration; a reset counts as one."""
    updates: int = 100
    batch: int = 16
    lr: float = 5e-4
    generic_share: float = 0.3
    """Share of the training samples of a site's arm that are generic."""
    samples: int = 0
    """Different samples of the own data of an arm; 0: as many as the smallest of all arms has."""
    unseen: int = 160
    """Queries for unseen screens of a site at most."""
    generic_unseen: int = 150
    """Queries for held-out generic pages."""
    base_updates: int = 600
    """Updates of the base, if no checkpoint is named."""


QUICK = Size(actions=30, updates=2, batch=4, unseen=8, generic_unseen=4, base_updates=2)
QUICK_PAGES = GenericSize(pages=17, held_out_pages=17, unseen_pages=3, samples=4)


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of a measurement."""

    work: Path
    data: Path
    """Generic pages."""

    def unseen(self, site: str) -> Path:
        return self.work / site / "unseen"

    def source(self, site: str, source: str, seed: int) -> Path:
        return self.work / site / ("oracle" if source == "oracle" else f"{source}-{seed}")


# ---- data ----


def collect(places: Places, sites: Sequence[str], seeds: Sequence[int], size: Size) -> list[Yield]:
    """Collect what is missing, and say what every source of data gave."""
    found: list[Yield] = []
    for site in sites:
        wanted = [("oracle", 0), *((strategy, seed) for seed in seeds for strategy in STRATEGIES)]
        for source, seed in wanted:
            folder = places.source(site, source, seed)
            if not (folder / "yield.json").exists():
                with tempfile.TemporaryDirectory(prefix="alignment-") as scratch:
                    collect_one(site, source, seed, size, Path(scratch), folder, places)
                print(f"collected {folder}", flush=True)
            told = Yield(**json.loads((folder / "yield.json").read_text(encoding="utf-8")))
            found.append(replace(told, usable=len(own_samples(places, site, source, seed))))
    return found


def collect_one(
    site: str, source: str, seed: int, size: Size, scratch: Path, folder: Path, places: Places
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if source == "oracle":
        asyncio.run(draw_oracle(site, size.unseen, scratch, folder, places.unseen(site)))
    else:
        asyncio.run(explore(site, source, seed, size.actions, scratch, folder))


def own_samples(places: Places, site: str, source: str, seed: int) -> list[GroundingSample]:
    """What an arm may be trained on: all samples of its source but those of measured shapes."""
    return usable(samples_in(places.source(site, source, seed)), read_screenspot(places.unseen(site)))


def asked_of_site(places: Places, site: str) -> list[Asked]:
    unseen = read_screenspot(places.unseen(site))
    known = own_samples(places, site, "oracle", 0)
    chances = controls.random_element(unseen)
    return [
        Asked(
            instruction=sample.instruction,
            query=sample.query,
            is_known=is_known(sample, known),
            chance=round(chance, 4),
        )
        for sample, chance in zip(unseen, chances, strict=True)
    ]


# ---- models ----


def prepare_base(named: Path | None, places: Places, size: Size, generic: list[GroundingSample]) -> Path:
    """The checkpoint to start from; one is trained on generic pages if none is named."""
    if named is not None:
        return named
    folder = places.work / "base"
    if not (folder / "config.json").exists():
        model = load_grounding(BASE_POLICY, "pointer", ModelPlacement(is_trained=True))
        train_grounding(
            model, generic, settings_of(replace(size, updates=size.base_updates, lr=1.5e-3), 0), print
        )
        folder.mkdir(parents=True)
        model.save(folder)
    return folder


def settings_of(size: Size, seed: int) -> GroundingSettings:
    return GroundingSettings(warmup_updates=0, updates=size.updates, batch=size.batch, lr=size.lr, seed=seed)


def trained(
    base: Path, own: list[GroundingSample], generic: list[GroundingSample], seed: int, size: Size, count: int
) -> GroundingModel:
    """The base after its updates on `count` own samples mixed with generic ones."""
    chosen = random.Random(seed).sample(own, count)
    mixed = mixture(chosen, generic, size.updates * size.batch, size.generic_share, seed)
    model = load_grounding(base, "pointer", ModelPlacement(is_trained=True))
    train_grounding(model, mixed, settings_of(size, seed), lambda _: None)
    return model


def hits(model: GroundingModel, samples: Sequence[GroundingSample]) -> str:
    return digits([one.is_hit for one in ground_all(model, samples, k=1)])


def digits(values: Sequence[bool]) -> str:
    return "".join(str(int(one)) for one in values)


def measure(
    model: GroundingModel, arm: str, site: str, seed: int, unseen: list[GroundingSample], on_generic: str
) -> Iterator[Measured]:
    """Yield the hits of a model on the unseen screens of a site and on generic pages."""
    for data, found in (
        ("unseen", hits(model, unseen)),
        ("unseen without the picture", digits(controls.text_only(model, unseen))),
        ("generic", on_generic),
    ):
        yield Measured(arm=arm, site=site, seed=seed, data=data, hits=found)


@dataclass(slots=True)
class Bench:
    """A measurement under way."""

    places: Places
    size: Size
    base: Path
    generic: list[GroundingSample]
    generic_unseen: list[GroundingSample]
    result: Result
    out: Path

    def run(self, seeds: Sequence[int], count: int) -> None:
        """Measure what is missing, seed by seed."""
        for site in self.result.asked:
            self._measure_base(site)
        for seed in seeds:
            self._measure_generic(seed, count)
            for site in self.result.asked:
                for source in (*STRATEGIES, "oracle"):
                    self._measure_source(site, source, seed, count)

    def _measure_base(self, site: str) -> None:
        if not self.result.has("base", site, 0):
            model = load_grounding(self.base, "pointer")
            self._keep("base", [site], 0, model)

    def _measure_generic(self, seed: int, count: int) -> None:
        missing = [site for site in self.result.asked if not self.result.has("generic", site, seed)]
        if missing:
            model = trained(self.base, self.generic, self.generic, seed, self.size, count)
            self._keep("generic", missing, seed, model)

    def _measure_source(self, site: str, source: str, seed: int, count: int) -> None:
        if not self.result.has(source, site, seed):
            own = own_samples(self.places, site, source, seed)
            self._keep(source, [site], seed, trained(self.base, own, self.generic, seed, self.size, count))

    def _keep(self, arm: str, sites: Sequence[str], seed: int, model: GroundingModel) -> None:
        on_generic = hits(model, self.generic_unseen)
        for site in sites:
            unseen = read_screenspot(self.places.unseen(site))
            self.result.measured += measure(model, arm, site, seed, unseen, on_generic)
        self.result.write(self.out)
        print(f"measured {arm} on {', '.join(sites)}, seed {seed}", flush=True)


# ---- the command ----


def result_for(out: Path, setting: dict[str, object]) -> Result:
    """The figures that are there already, if they have the same setting."""
    if out.exists():
        found = read_result(out)
        if found.setting == json.loads(json.dumps(setting)):
            return found
    return Result(setting)


def fingerprint(checkpoint: Path) -> str:
    return hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()[:16]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.join:
        result = joined([read_result(path) for path in options.join])
        result.write(options.out)
    else:
        result = measured(options)
    print("\n".join(lines(result)))
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="one site, one seed, few actions and updates")
    made.add_argument("--sites", nargs="+", choices=list(SITES), default=["shop", "mail"], metavar="SITE")
    made.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    made.add_argument("--base", type=Path, help="checkpoint with a pointer head to start from")
    made.add_argument("--data", type=Path, help="folder of generic pages; what it lacks is collected into it")
    made.add_argument("--work", type=Path, help="folder that keeps the data of the sites and the base")
    for name in ("actions", "updates", "samples", "unseen", "generic-unseen", "base-updates"):
        made.add_argument(f"--{name}", type=int, help=f"{name.replace('-', ' ')} instead of the usual number")
    made.add_argument("--out", type=Path, default=Path("benchmarks/results/alignment.json"))
    made.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="measure nothing: join results")
    return made


def measured(options: argparse.Namespace) -> Result:
    """Collect, train and measure what is missing."""
    usual = QUICK if options.quick else Size()
    chosen = {name: value for name in asdict(usual) if (value := getattr(options, name, None)) is not None}
    size = replace(usual, **chosen)
    sites, seeds = (["shop"], [0]) if options.quick else (options.sites, options.seeds)
    torch.set_num_threads(1)
    began_s = time.process_time()
    with tempfile.TemporaryDirectory(prefix="dartrl-alignment-") as scratch:
        work = options.work or Path(scratch)
        places = Places(work, options.data or work / "generic")
        pages = QUICK_PAGES if options.quick else GenericSize()
        held_out = data_sets(places.data, replace(pages, samples=size.generic_unseen))["held-out"]
        generic = read_screenspot(places.data / "train")
        yields = collect(places, sites, seeds, size)
        count = size.samples or min(one.usable for one in yields)
        base = prepare_base(options.base, places, size, generic)
        setting = {**asdict(size), "samples": count, "base": fingerprint(base)}
        result = result_for(options.out, setting)
        result.yields = list(dict.fromkeys([*result.yields, *yields]))
        result.asked |= {site: asked_of_site(places, site) for site in sites}
        Bench(places, size, base, generic, held_out, result, options.out).run(seeds, count)
    print(f"{count} own samples, {time.process_time() - began_s:.0f} s of a core, written to {options.out}")
    return result


if __name__ == "__main__":
    raise SystemExit(main())
