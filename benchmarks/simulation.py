"""The scheduling at sizes no small machine can run: a discrete-event clock around the real decisions.

    python -m benchmarks.simulation            # arms at 180 environments, a run at 10,000, decades: minutes
    python -m benchmarks.simulation --quick    # smaller sizes, seconds
    python -m benchmarks.simulation --only arms --environments 80 --engines 4

SIMULATION: nothing here is a measurement of the system but `decades`. The curator and its service
(`dart.curation`, on a record in memory), admission and the order of weight updates
(`dart.inference.weight_sync_plan`) are the code that runs in production; environments, engines and the
trainer are the service times that configs/decoupling.toml states, at the length of real ones, and messages
take no time. An environment that has to wait is asked again as soon as something changed, where a real one
asks several times a second.

arms      the six ways to schedule and sync at the paper's size, 180 environments and 16 engines
staleness what the bound K costs at that size
scale     10,000 environments and 512 engines
decades   the real curator on this machine: decisions per second, and memory, as tasks and environments grow

Writes OUT/simulation.json and OUT/simulation.png.
"""

import argparse
import json
import pickle
import random
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.actors import machine
from benchmarks.simulated_record import SimulatedRecord
from benchmarks.simulated_run import ideal, predict
from benchmarks.utilisation import quantile
from dart.config.config import Config, load_config
from dart.core.records import Batch
from dart.core.types import RolloutLease
from dart.curation.curator import Curator
from dart.curation.service import open_service
from dart.curation.settings import settings_of
from dart.testing.local_record import at_once

REPOSITORY = Path(__file__).resolve().parent.parent
OUT = Path(__file__).parent / "out"
CONFIG = REPOSITORY / "configs" / "decoupling.toml"


# ---- the real curator on this machine ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Decade:
    """The curator at one size, measured."""

    tasks: int
    environments: int
    decisions: int
    """Leases given and episodes looked at, batches and updates among them."""
    decisions_per_s: float
    p99_us: float
    """Of one call of the service."""
    curator_mib: float
    """Everything a curator keeps that was restored from the record at the end."""


def decade(tasks: int, environments: int, decisions: int, seed: int = 0) -> Decade:
    """Drive a service with so many tasks and environments, as fast as it goes; episodes end in random
    order."""
    groups_per_update = max(2, environments // 16)
    config = load_config(
        CONFIG,
        [
            "tasks.train=[" + ", ".join(f'"simulated/{number_}"' for number_ in range(tasks)) + "]",
            f"training.groups_per_update={groups_per_update}",
        ],
    )
    config = of_size(config, environments, config.rollout.count)
    draw, record, names = random.Random(seed), SimulatedRecord(lambda: 0.0), deque[str]()
    names.extend(f"env-{index:05d}" for index in range(environments))
    service = at_once(open_service(settings_of(config), record, lambda: 0.0))
    service.serving(0)
    held: list[tuple[str, RolloutLease]] = []
    took_us: list[float] = []
    version, began_s = 0, time.perf_counter()

    def timed(call: Any) -> Any:
        started_s = time.perf_counter()
        answer = at_once(call)
        took_us.append(1e6 * (time.perf_counter() - started_s))
        return answer

    while len(took_us) < decisions:
        answer = timed(service.work(names[0])) if names else None
        if isinstance(answer, RolloutLease):
            held.append((names.popleft(), answer))
            continue
        batch = timed(service.batch())
        if isinstance(batch, Batch):
            version += 1
            record.commit_update(batch, version)
            timed(service.committed(version))
            service.serving(version)
        for _ in range(min(len(held), max(1, environments // 16))):
            place = draw.randrange(len(held))
            held[place], held[-1] = held[-1], held[place]
            name, lease = held.pop()
            record.finish(lease, float(draw.random() < 0.5), 8, version)
            timed(service.look(lease.rollout_id))
            names.append(name)
    seconds = time.perf_counter() - began_s
    return Decade(
        tasks=tasks,
        environments=environments,
        decisions=len(took_us),
        decisions_per_s=len(took_us) / seconds,
        p99_us=quantile(sorted(took_us), 0.99) or 0.0,
        curator_mib=curator_mib(service.settings, pickle.dumps(record.snapshot())),
    )


def curator_mib(settings: Any, snapshot: bytes) -> float:
    """Memory of a curator restored from a snapshot, its rows included."""
    tracemalloc.start()
    curator = Curator(settings, pickle.loads(snapshot), 0)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del curator
    return kept / 2**20


# ---- the program ----

ARMS = tuple(
    (scheduling, sync)
    for scheduling in ("batch", "task", "rollout")
    for sync in ("all_at_once", "one_at_a_time")
)

LONGER = ("generate_base_s", "generate_each_s", "load_s", "update_base_s", "update_each_s")
"""Service times that are stated at the scale of the configuration."""


def at_size(arm: tuple[str, str], environments: int, engines: int, groups: int, **curation: Any) -> Config:
    """One arm at another size, in real seconds; the trainer grows with the environments."""
    stated = load_config(CONFIG)
    scheduling, sync = arm
    times = {name: getattr(stated.simulation, name) / stated.environments.latency.scale for name in LONGER}
    times["update_each_s"] *= stated.environments.count / environments
    curation = {"scheduling": scheduling, **({"staleness": 0} if scheduling == "batch" else {}), **curation}
    overrides = [
        f"training.groups_per_update={groups}",
        f"rollout.sync={sync}",
        "environments.latency.scale=1.0",
        "environments.reset_deadline_s=60",
        "curation.lease_s=3600",
        *(f"simulation.{name}={value}" for name, value in times.items()),
        *(f"curation.{name}={value}" for name, value in curation.items()),
    ]
    return of_size(load_config(CONFIG, overrides), environments, engines)


def of_size(config: Config, environments: int, engines: int) -> Config:
    """The configuration with so many of both, also more than a run may have."""
    pools = {
        "environments": config.environments.model_copy(update={"count": environments}),
        "rollout": config.rollout.model_copy(update={"count": engines}),
    }
    return config.model_copy(update=pools)


COLUMNS = (
    ("actions_per_min", "actions/min", ",.0f", 1),
    ("env_util", "env %", ".1f", 100),
    ("rollout_util", "engine %", ".1f", 100),
    ("trainer_util", "trainer %", ".1f", 100),
    ("goodput", "goodput %", ".1f", 100),
    ("staleness_p50", "stale p50", ".0f", 1),
    ("staleness_p95", "p95", ".0f", 1),
    ("staleness_max", "max", ".0f", 1),
    ("wall_s", "took s", ".1f", 1),
)


def line(title: str, found: Any) -> str:
    """One row of a table."""
    cells = []
    for name, _, form, times in COLUMNS:
        value = getattr(found, name, None)
        cells.append(f"{'–' if value is None else format(times * value, form):>12}")
    return f"    {title:34}" + "".join(cells)


def header(title: str) -> str:
    return f"{title}\n    {'':34}" + "".join(f"{head:>12}" for _, head, _, _ in COLUMNS)


Rows = dict[str, Any]


def simulate(title: str, cells: Iterable[tuple[str, Config]], updates: int) -> Rows:
    """Predict each configuration; print a table as it comes."""
    print(header(f"SIMULATION: {title}"), flush=True)
    rows: Rows = {}
    for name, config in cells:
        found = predict(config, updates)
        rows[name] = asdict(found)
        print(line(name, found), flush=True)
    each = min(200, max(20, 200_000 // config.environments.count))  # what begins together is soon spread out
    bound = ideal(config, each)  # the same for all: what differs is scheduling
    rows["bound"] = asdict(bound)
    print(line("bound", bound))
    print(f"    {bound.words}\n", flush=True)
    return rows


def arms(sizes: argparse.Namespace, updates: int) -> Rows:
    """The six arms at the paper's size: a rollout for every environment in a batch, and 8 groups."""
    found = {}
    for groups in dict.fromkeys((max(1, sizes.environments // 8), sizes.groups)):
        title = (
            f"{sizes.environments} environments, {sizes.engines} engines, {groups} groups of 8 in an update"
        )
        cells = (
            (f"{arm[0]}+{arm[1]}", at_size(arm, sizes.environments, sizes.engines, groups)) for arm in ARMS
        )
        found[f"groups_{groups}"] = simulate(title, cells, updates)
    return found


def staleness(sizes: argparse.Namespace, updates: int) -> Rows:
    """What the staleness bound costs."""
    groups = max(1, sizes.environments // 8)
    title = f"the staleness bound K; {sizes.environments} environments, {sizes.engines} engines, rollout-wise"
    cells = (
        (
            f"{sync}, K = {bound}",
            at_size(("rollout", sync), sizes.environments, sizes.engines, groups, staleness=bound),
        )
        for sync in ("all_at_once", "one_at_a_time")
        for bound in (1, 2, 3, 4, 8)
    )
    return simulate(title, cells, updates)


def scale(sizes: argparse.Namespace, updates: int) -> Rows:
    """Far more than anybody runs."""
    groups = max(1, sizes.scale_environments // 8)
    title = f"{sizes.scale_environments:,} environments, {sizes.scale_engines} engines, {groups} groups of 8"
    cells = (
        (
            f"{arm[0]}+{arm[1]}",
            at_size(arm, sizes.scale_environments, sizes.scale_engines, groups),
        )
        for arm in (("batch", "all_at_once"), ("rollout", "all_at_once"), ("rollout", "one_at_a_time"))
    )
    return simulate(title, cells, updates)


def decades(tasks: Sequence[int], environments: Sequence[int], decisions: int) -> Rows:
    """Measured: what the real curator does and keeps as everything grows."""
    print("MEASURED on this machine: the curator and its service, on a record in memory")
    print(f"    {'tasks':>9}{'environments':>14}{'decisions/s':>14}{'p99, us':>10}{'curator, MiB':>15}")
    rows: Rows = {}
    for task_count in tasks:
        for environment_count in environments:
            found = decade(task_count, environment_count, decisions)
            rows[f"{task_count}x{environment_count}"] = asdict(found)
            print(
                f"    {task_count:>9,}{environment_count:>14,}{found.decisions_per_s:>14,.0f}"
                f"{found.p99_us:>10,.0f}{found.curator_mib:>15.2f}",
                flush=True,
            )
    print()
    return rows


def draw(whole: dict[str, Any], path: Path) -> None:
    """The arms as bars and the decades as lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    _draw_arms(axes[0], whole.get("arms", {}), "actions_per_min", "simulated actions/min in updates", 1)
    _draw_arms(axes[1], whole.get("arms", {}), "env_util", "simulated: environments in episode, %", 100)
    _draw_decades(axes[2], whole.get("decades", {}))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw_arms(axis: Any, cells: dict[str, Rows], name: str, title: str, times: float) -> None:
    width = 0.8 / max(1, len(cells))
    for place, (cell, rows) in enumerate(cells.items()):
        names = [arm for arm in rows if arm != "bound"]
        places = [number_ + place * width for number_ in range(len(names))]
        axis.bar(places, [times * rows[arm][name] for arm in names], width, label=cell.replace("_", " = "))
        axis.axhline(times * rows["bound"][name], linestyle="--", color=f"C{place}")
        axis.set_xticks(range(len(names)), [arm.replace("+", "\n") for arm in names], fontsize=7)
    axis.set_title(title, fontsize=10)
    if cells:
        axis.legend(fontsize=8)


def _draw_decades(axis: Any, rows: Rows) -> None:
    for environments in sorted({row["environments"] for row in rows.values()}):
        found = sorted(
            (row["tasks"], row["decisions_per_s"])
            for row in rows.values()
            if row["environments"] == environments
        )
        axis.plot(*zip(*found, strict=True), "o-", label=f"{environments:,} environments")
    if rows:
        axis.legend(fontsize=8)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("tasks")
    axis.set_title("measured: curator decisions a second", fontsize=10)
    axis.grid(alpha=0.3)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Ends with exit code 2 and the reason when it makes no sense."""
    parts = ("arms", "staleness", "scale", "decades")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=parts, default=parts, metavar="PART", help=", ".join(parts)
    )
    parser.add_argument("--environments", type=int, default=180, help="of the arms")
    parser.add_argument("--engines", type=int, default=16)
    parser.add_argument("--groups", type=int, default=8, help="in an update of the second table of arms")
    parser.add_argument("--scale-environments", type=int, default=10_000)
    parser.add_argument("--scale-engines", type=int, default=512)
    parser.add_argument("--updates", type=int, default=40, help="simulated, 4 of them warm-up")
    parser.add_argument("--decisions", type=int, default=100_000, help="of each cell of the decades")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.quick:
        options.environments, options.engines, options.updates = 40, 4, 12
        options.scale_environments, options.scale_engines, options.decisions = 400, 16, 5_000
    for name in ("environments", "engines", "groups", "scale_environments", "scale_engines", "decisions"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(options, name)}")
    if options.updates < 6:
        parser.error(f"--updates must be at least 6 (4 are warm-up), got {options.updates}")
    return options


def main() -> int:
    """Simulate, measure, write."""
    options = parse()
    whole: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.simulation", *sys.argv[1:]]),
        "machine": machine(),
        "is_simulation": ["arms", "staleness", "scale"],
    }
    tenfold = (10, 1_000) if options.quick else (10, 100, 1_000, 10_000, 100_000)
    parts: dict[str, Callable[[], Rows]] = {
        "arms": lambda: arms(options, options.updates),
        "staleness": lambda: staleness(options, options.updates),
        "scale": lambda: scale(options, max(6, options.updates // 4)),
        "decades": lambda: decades(tenfold, [n for n in tenfold if n <= 10_000], options.decisions),
    }
    for name in options.only:
        whole[name] = parts[name]()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "simulation.json").write_text(json.dumps(whole, indent=1) + "\n")
    draw(whole, options.out / "simulation.png")
    print(f"written to {options.out}: simulation.json, simulation.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
