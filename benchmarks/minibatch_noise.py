"""What it changes that samples with one prefix stay in one mini-batch: noise, learning, work.

    python -m benchmarks.minibatch_noise runs/laptop --policies base=configs/base-policy:1,2 v10=10:11

Takes batches of a run of the laptop job and computes the gradient of the policy's loss for each sample alone.
From their inner products follows, without another pass, how large the deviation of any mini-batch is:

noise       mean of |g_minibatch - g_batch|^2 / |g_batch|^2 over the mini-batches of many seeds: what one
            optimizer step adds to the direction of the batch
one by one  every sample drawn alone; by prefix: samples with the same prompt and screenshot together
            (`dart.training.passes.minibatches`)
prefixes    prefixes that one pass over all mini-batches computes, beside the distinct ones
learned     what one update changes: the mean over samples of advantage times the change of log-prob per
            token, on the batch itself and on the next one of the run (of the last one: the one before), with
            the optimizer's state of the checkpoint; mean over --updates seeds

A policy is given as NAME=FOLDER:BATCHES, the batches (numbered from 1) that were trained from about there;
instead of FOLDER the number of a version whose checkpoint the run still has. Prints a table and writes OUT as
JSON.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.actors import machine
from benchmarks.trainer_compare import LAPTOP, batches_of
from dart.policy.small_policy import SmallPolicy
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import checkpoint_name, load_checkpoint
from dart.training.batch import StepSample, padded, step_samples
from dart.training.learner import Learner, LearnerConfig
from dart.training.loss import LossConfig, TokenBatch, dart_loss
from dart.training.passes import micro_batches, minibatches

OUT = Path(__file__).parent / "out" / "minibatch_noise.json"
PARTS: int = LAPTOP["minibatches"]

Figures = dict[str, Any]


def inner_products(policy: SmallPolicy, samples: Sequence[StepSample], blobs: FolderBlobs) -> torch.Tensor:
    """Return the inner products [n, n] of the gradients of all samples, each the loss of its sample alone."""
    config = LossConfig(kl_beta=0.0)
    names = {sample.step.screenshot_sha256 for sample in samples}
    screens = {name: policy.codec.screen(name, blobs.read(name)) for name in names}
    rows = []
    for sample in samples:
        scores = policy.score([sample.step], screens, 1.0)
        like, has_behaviour = scores.logprobs, sample.step.has_behaviour
        batch = TokenBatch(
            logp=like,
            old=like.detach(),
            behaviour=padded([torch.tensor(sample.step.logprobs) if has_behaviour else None], like),
            has_behaviour=torch.tensor([has_behaviour]),
            reference=None,
            advantage=torch.tensor([sample.advantage]),
            mask=scores.mask,
        )
        found = torch.autograd.grad(dart_loss(batch, config).loss, policy.trainable(), allow_unused=True)
        pairs = zip(found, policy.trainable(), strict=True)
        rows.append(torch.cat([(torch.zeros_like(w) if g is None else g).flatten() for g, w in pairs]))
    gradients = torch.stack(rows)
    return (gradients @ gradients.T).double()


def noise(products: torch.Tensor, parts: Sequence[Sequence[int]]) -> float:
    """Return the mean of |g_part - g|^2 / |g|^2 over the parts of a batch."""
    whole = products.mean()
    found = []
    for part in parts:
        chosen = torch.tensor(part)
        own, cross = products[chosen][:, chosen].mean(), products[chosen].mean()
        found.append(float((own - 2 * cross + whole) / whole))
    return statistics.fmean(found)


def measure(policy: SmallPolicy, groups: Sequence[Any], blobs: FolderBlobs, seeds: int) -> Figures:
    """Return the figures of one batch."""
    samples = step_samples(groups).kept
    products = inner_products(policy, samples, blobs)
    keys = [policy.prefix_key(sample.step) for sample in samples]
    found: Figures = {"samples": len(samples), "distinct_prefixes": len(set(keys))}
    ways: dict[str, list[Hashable | None]] = {"one by one": [None] * len(keys), "by prefix": [*keys]}
    for way, given in ways.items():
        drawn = [minibatches(given, PARTS, Random(seed)) for seed in range(seeds)]
        noises = [noise(products, parts) for parts in drawn]
        computed = [sum(len({keys[n] for n in part}) for part in parts) for parts in drawn]
        found[way] = {
            "noise": statistics.fmean(noises),
            "standard_error": statistics.stdev(noises) / seeds**0.5,
            "prefixes": statistics.fmean(computed),
        }
    return found


def logprobs(policy: SmallPolicy, samples: Sequence[StepSample], blobs: FolderBlobs) -> list[float]:
    """Return the mean log-prob per token of each sample's answer."""
    names = {sample.step.screenshot_sha256 for sample in samples}
    screens = {name: policy.codec.screen(name, blobs.read(name)) for name in names}
    ordered = sorted(range(len(samples)), key=lambda number: policy.sort_key(samples[number].step))
    found = {}
    with torch.no_grad():
        for numbers in micro_batches(ordered, 32, 0, lambda _: 1):
            scores = policy.score([samples[number].step for number in numbers], screens, 1.0)
            means = scores.logprobs.sum(-1) / scores.mask.sum(-1)
            found |= dict(zip(numbers, means.tolist(), strict=True))
    return [found[number] for number in range(len(samples))]


def learned(
    start: tuple[Path, Any], batch: Sequence[Any], other: Sequence[Any], blobs: FolderBlobs, updates: int
) -> Figures:
    """Return what updates with each way of drawing change on their own batch and on another one.

    start   base policy, and the checkpoint to resume from if there is one
    """
    base, checkpoint = start
    sets = {"own": step_samples(batch).kept, "other": step_samples(other).kept}
    before = {
        name: logprobs(SmallPolicy(base if checkpoint is None else checkpoint.folder), samples, blobs)
        for name, samples in sets.items()
    }
    found: Figures = {way: {name: [] for name in sets} for way in ("one by one", "by prefix")}
    for seed in range(updates):
        for way, gains in found.items():
            learner = Learner(base, LearnerConfig(**LAPTOP, seed=seed), resume=checkpoint)
            if way == "one by one":
                learner._policy.prefix_key = lambda _: None  # type: ignore[method-assign]
            learner.update(batch, blobs)
            for name, samples in sets.items():
                after = logprobs(learner._policy, samples, blobs)  # type: ignore[arg-type]
                changes = zip(samples, before[name], after, strict=True)
                gains[name].append(statistics.fmean(one.advantage * (b - a) for one, a, b in changes))
    return found


def start_of(given: str, run: Path, base: Path) -> tuple[Path, Any]:
    """Return the base policy and the checkpoint that FOLDER or the number of a version means."""
    if not given.isdecimal():
        return Path(given), None
    return base, load_checkpoint(run / "checkpoints" / checkpoint_name(int(given)))


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run directory of the laptop job")
    parser.add_argument("--policies", nargs="+", required=True, metavar="NAME=FOLDER:BATCHES")
    parser.add_argument("--base", type=Path, default=Path("configs/base-policy"), help="of the run")
    parser.add_argument("--seeds", type=int, default=1000, help="of the noise")
    parser.add_argument("--updates", type=int, default=4, help="seeds of what is learned")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    batches, blobs = batches_of(options.run, most=10**6), FolderBlobs(options.run / "blobs")
    rows = []
    for given in options.policies:
        name, _, rest = given.partition("=")
        folder, _, numbers = rest.rpartition(":")
        start = start_of(folder, options.run, options.base)
        policy = SmallPolicy(start[0] if start[1] is None else start[1].folder)
        for number in map(int, numbers.split(",")):
            batch, other = batches[number - 1], batches[number if number < len(batches) else number - 2]
            row: Figures = {"policy": name, "batch": number}
            row |= measure(policy, batch, blobs, options.seeds)
            row["learned"] = learned(start, batch, other, blobs, options.updates)
            rows.append(row)
            print(json.dumps(row), flush=True)
    table = Table("policy", "batch", "samples", "prefixes", "noise one by one", "by prefix", "learned")
    for row in rows:
        one, by = row["one by one"], row["by prefix"]
        row["ratio"] = by["noise"] / one["noise"]
        table.add_row(
            *(row["policy"], str(row["batch"]), str(row["samples"])),
            f"{one['prefixes']:.0f} / {by['prefixes']:.0f} for {row['distinct_prefixes']}",
            *(f"{way['noise']:.3f} ± {way['standard_error']:.3f}" for way in (one, by)),
            ", ".join(
                " / ".join(f"{statistics.fmean(row['learned'][way][name]):.3f}" for way in row["learned"])
                for name in ("own", "other")
            ),
        )
    Console().print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
