"""What an engine of the small policy saves by keeping prefixes, beside an engine that computes each anew.

    python -m benchmarks.engine_prefixes --run runs/laptop    # the requests of a run of the laptop job
    python -m benchmarks.engine_prefixes --quick              # made-up groups, in seconds

Answers the requests of trained groups again: the first steps of all rollouts of a group, then their second
steps, and so on, --batch at a time. Both ways take turns, group by group, on one thread:

anew   every prefix is computed for every answer
kept   the prefixes that were used last are kept (`dart.policy.prefixes`) until the next batch of the trainer,
       whose version would drop them

cpu_ms     processor time of one answer
prefixes   prefixes that were computed, as a share of the answers

Prints a table with the ratio anew / kept, its median and range over the groups, and writes OUT as JSON.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.actors import machine
from benchmarks.trainer_compare import batches_of, made_up_batch
from dart.core.types import Group, Step
from dart.policy.prefixes import PrefixCache, prefix_of
from dart.policy.sampling import sample, sample_after
from dart.policy.small_policy import SmallPolicy
from dart.store.blobs import BlobStore, FolderBlobs

OUT = Path(__file__).parent / "out" / "engine_prefixes.json"
POLICY = Path("configs", "base-policy")

Pixels = Mapping[str, Tensor]
"""Screenshots uint8 [H, W, 3] by sha256."""

Figures = dict[str, Any]


def requests_of(group: Group, batch: int) -> Iterator[list[Step]]:
    """Yield the steps of a group in batches: the first steps of all rollouts, then their second ones."""
    rounds = zip_longest(*[trajectory.steps for trajectory in group.trajectories])
    in_order = [step for one in rounds for step in one if step is not None]
    for start in range(0, len(in_order), batch):
        yield in_order[start : start + batch]


def steps_of(group: Group) -> list[Step]:
    return [step for trajectory in group.trajectories for step in trajectory.steps]


def pixels_of(policy: SmallPolicy, groups: Sequence[Group], blobs: BlobStore) -> Pixels:
    names = {step.screenshot_sha256 for group in groups for step in steps_of(group)}
    screens = {name: policy.codec.screen(name, blobs.read(name)) for name in names}
    return {name: torch.from_numpy(screen.pixels) for name, screen in screens.items()}


def cpu_s(answer: Callable[[Sequence[Step]], object], group: Group, batch: int) -> float:
    """Return the processor time in which a group's requests are answered."""
    began_s = time.process_time()
    for steps in requests_of(group, batch):
        answer(steps)
    return time.process_time() - began_s


def measure(policy: SmallPolicy, groups: Sequence[Group], blobs: BlobStore, batch: int) -> list[Figures]:
    """Measure both ways on the groups of one batch of the trainer."""
    generator = torch.Generator().manual_seed(0)
    pixels = pixels_of(policy, groups, blobs)
    cache = PrefixCache(policy.module)

    def anew(steps: Sequence[Step]) -> None:
        shown = torch.stack([pixels[step.screenshot_sha256] for step in steps])
        sample(policy.module, [step.prompt_ids for step in steps], shown, [1.0] * len(steps), generator)

    @torch.inference_mode()
    def kept(steps: Sequence[Step]) -> None:
        out = cache.outputs([prefix_of(step) for step in steps], pixels)
        sample_after(policy.module, out, [1.0] * len(steps), generator)

    rows = []
    for number, group in enumerate(groups):
        before, spent = cache.computed, {}
        for way in (anew, kept) if number % 2 == 0 else (kept, anew):
            spent[way.__name__] = cpu_s(way, group, batch)
        rows.append({"answers": len(steps_of(group)), "computed": cache.computed - before, **spent})
    return rows


def report(rows: Sequence[Figures]) -> Figures:
    """Return the figures over all groups."""
    answers = sum(row["answers"] for row in rows)
    ratios = [row["anew"] / row["kept"] for row in rows]
    return {
        "groups": len(rows),
        "answers": answers,
        "prefixes": sum(row["computed"] for row in rows) / answers,
        "cpu_ms": {way: 1000 * sum(row[way] for row in rows) / answers for way in ("anew", "kept")},
        "ratio": {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help="run directory of the laptop job; default: made-up groups")
    parser.add_argument("--policy", type=Path, default=POLICY, help="the policy of the run")
    parser.add_argument("--batch", type=int, default=4, help="requests that are answered together")
    parser.add_argument("--quick", action="store_true", help="two made-up groups")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    policy = SmallPolicy(options.policy)
    with tempfile.TemporaryDirectory(prefix="prefixes-") as folder:
        blobs = FolderBlobs(Path(folder) if options.run is None else options.run / "blobs")
        batches = (
            [made_up_batch(options.policy, blobs, 0, 2 if options.quick else 16)]
            if options.run is None
            else batches_of(options.run)
        )
        measure(policy, batches[0][:1], blobs, options.batch)  # the first answers of a process take longer
        rows = [row for groups in batches for row in measure(policy, groups, blobs, options.batch)]
    found = report(rows)
    table = Table("answers", "prefixes", "anew, ms", "kept, ms", "anew / kept")
    ratio, cpu_ms = found["ratio"], found["cpu_ms"]
    table.add_row(
        str(found["answers"]),
        f"{found['prefixes']:.0%}",
        *(f"{cpu_ms[way]:.1f}" for way in ("anew", "kept")),
        f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})",
    )
    Console().print(table)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    written = {"machine": machine(), "batch": options.batch, **found, "rows": rows}
    options.out.write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
