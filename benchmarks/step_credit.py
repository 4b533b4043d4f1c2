"""Is a comparison of single steps (GiGPO) worth more than DART's credit? `python -m benchmarks.step_credit`

Trains the laptop's policy on the tasks of the laptop job that take several steps, for each seed with both
methods of `curation.step_credit.method`. The two runs of a seed share the machine at the same time, and both
end after the same number of actions (environment steps), so a slow machine gives neither less to learn from.

Kept and shown as by `benchmarks.laptop_seeds`: each run's own report below OUT/METHOD, and the differences
paired by seed in OUT/comparison.md and .json. Started again, the program goes on with the seeds that lack a
report.
"""

import argparse
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import laptop_seeds

OUT = Path(__file__).parent / "out" / "step_credit"

METHODS = ("trajectory", "gigpo")
"""DART's method comes first: the differences are GiGPO's from it."""

TASKS = ("miniwob/enter-text", "miniwob/enter-password", "miniwob/login-user")
"""Three to five steps in the shortest solution."""

JOB: Mapping[str, Any] = {
    "tasks.train": list(TASKS),
    "run.minutes": 0.0,
    "environments.count": 6,
    "training.groups_per_update": 6,
}
"""What differs from configs/laptop.toml: fewer tasks need fewer groups, and two runs share the machine."""

QUICK: Mapping[str, Any] = {
    "environments.count": 2,
    "curation.rollouts_per_group": 4,
    "training.groups_per_update": 1,
    "evaluation.seeds_per_task": 1,
    "evaluation.greedy_seeds_per_task": 1,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--actions", type=int, default=2500, help="environment steps of training of a run")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--quick", action="store_true", help="one seed, few actions: only to see it work")
    options = parser.parse_args()
    seeds, actions = ([0], 40) if options.quick else (options.seeds, options.actions)
    job = {**JOB, **(QUICK if options.quick else {}), "training.actions": actions}
    folders = {method: options.out / method for method in METHODS}
    try:
        for seed in seeds:
            run_pair(folders, seed, job)
    except laptop_seeds.RunFailed as failure:
        print(f"{failure}\nThe same command goes on with the seeds that have no report.", file=sys.stderr)
        return 1
    found = {method: laptop_seeds.read(folder, seeds) for method, folder in folders.items()}
    for method, folder in folders.items():
        laptop_seeds.publish(folder, found[method])
    laptop_seeds.publish_comparison(options.out, found)
    return 0


def run_pair(folders: Mapping[str, Path], seed: int, job: Mapping[str, Any]) -> None:
    """Run a seed with both methods at the same time, except those that have a report. Raises RunFailed."""
    with ThreadPoolExecutor(len(METHODS)) as pool:
        started = [
            pool.submit(
                laptop_seeds.run,
                folder,
                laptop_seeds.CONFIG,
                seed,
                {**job, "curation.step_credit.method": method},
            )
            for method, folder in folders.items()
            if not laptop_seeds.report_of(folder, seed).exists()
        ]
        for one in started:
            one.result()


if __name__ == "__main__":
    sys.exit(main())
