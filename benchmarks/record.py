"""How many rollouts of DART's size the record takes a second: SQLite beside PostgreSQL, taking turns.

    python -m benchmarks.record                       # both, five rounds
    python -m benchmarks.record --databases sqlite    # without a server

A rollout is what the store does for it: lease it, read its steps' blob and check them, finish it, and answer
the report once more. Each eighth ends a group, and each 32nd an update. A round is a new record. The
PostgreSQL server is started for this, with PostgreSQL's settings, so each commit is synced (fsync). It is on
this machine; a server elsewhere adds round trips, about ten for a lease and for a finish each. The sender's
writing of the blob is not part of it. `cpu` is this process's alone, and depends less on the machine's load.
Prints a table and writes `--out`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from dart.core import messages as m
from dart.core.record_address import RecordAddress, ServerAddress
from dart.core.types import RolloutLease, Step
from dart.store.run_blobs import local_blobs
from dart.store.serialization import pack_steps
from dart.store.store import Store
from dart.testing.postgresql_server import SAFE, running_server
from dart.testing.trajectories import step_at, trajectory_for

DATABASES = ("sqlite", "postgresql")
CALLS = ("lease", "finish", "repeat", "update")
OUT = Path(__file__).parent / "out" / "record.json"
GROUP, GROUPS_PER_UPDATE = 8, 4
PROMPT_TOKENS, ANSWER_TOKENS, STEPS = 14_000, 120, 30
"""Of DART's OSWorld job: an episode of 30 steps, each with a prompt of 14,000 tokens."""
LATER_UNIX_S = 1e12

Place = Callable[[], RecordAddress]

Spent = dict[str, float]
"""Seconds by kind of call, and of the processor."""


def steps_of_size(steps: int, prompt_tokens: int) -> tuple[Step, ...]:
    figures = (-0.5,) * ANSWER_TOKENS
    return tuple(
        replace(
            step_at(0, number),
            prompt_ids=tuple(range(prompt_tokens)),
            token_ids=tuple(range(ANSWER_TOKENS)),
            logprobs=figures,
            entropies=figures,
        )
        for number in range(steps)
    )


def measure(place: Place, rollouts: int, steps: tuple[Step, ...], folder: Path) -> Spent:
    """The seconds of the calls about `rollouts` rollouts, by kind, on a new record."""
    blobs = local_blobs(folder).steps
    sha256 = blobs.put(pack_steps(steps))
    spent = dict.fromkeys(CALLS, 0.0)
    began_cpu_s = time.process_time()
    with Store(place(), steps=blobs) as store:
        store.add_version()
        groups: list[int] = []
        for group_id, _ in zip(opened_groups(store), range(rollouts // GROUP), strict=False):
            for _ in range(GROUP):
                play(store, group_id, sha256, steps, spent)
            groups.append(group_id)
            if len(groups) == GROUPS_PER_UPDATE:
                began_s = time.perf_counter()
                update(store, groups)
                spent["update"] += time.perf_counter() - began_s
                groups = []
        assert store.conservation().holds
    return spent | {"cpu": time.process_time() - began_cpu_s}


def opened_groups(store: Store) -> Iterator[int]:
    for seed in count():
        opened = m.OpenGroup(
            task_id=f"task-{seed % 20}", seed=seed, rollouts_wanted=GROUP, step_cap=STEPS, policy_version=0
        )
        yield store.write(opened).group_id


def play(store: Store, group_id: int, sha256: str, steps: tuple[Step, ...], spent: Spent) -> None:
    def timed(kind: str, call: m.Call[object]) -> object:
        began_s = time.perf_counter()
        result = store.write(call)
        spent[kind] += time.perf_counter() - began_s
        return result

    given = m.LeaseRollout(group_id=group_id, environment="env-001", deadline_unix_s=LATER_UNIX_S)
    lease = timed("lease", given).result
    assert isinstance(lease, RolloutLease)
    played = replace(trajectory_for(lease), steps=())
    finished = m.FinishRollout(
        rollout_id=lease.rollout_id, fence=lease.fence, trajectory=played, steps_sha256=sha256
    )
    assert timed("finish", finished) == "accepted"
    assert timed("repeat", finished) == "duplicate"


def update(store: Store, groups: list[int]) -> None:
    batch = store.write(m.LeaseBatch(group_ids=tuple(groups), deadline_unix_s=LATER_UNIX_S))
    newest = store.latest_version()
    assert newest is not None
    store.commit_update(batch.batch_id, batch.fence, newest.version + 1, {"loss": 0.1})


def table(rates: Mapping[str, list[float]], spent: Mapping[str, list[Spent]], rollouts: int) -> str:
    kinds = "ms: lease finish repeat    cpu update"
    lines = [f"{'database':<12} {'rollouts/s':>11} {'least':>8} {'most':>8}   {kinds}"]
    updates = max(1, rollouts // (GROUP * GROUPS_PER_UPDATE))
    numbers = dict.fromkeys(("lease", "finish", "repeat", "cpu"), rollouts) | {"update": updates}
    for name, found in rates.items():
        medians = {kind: statistics.median(one[kind] for one in spent[name]) for kind in numbers}
        figures = " ".join(f"{1000 * medians[kind] / number:6.1f}" for kind, number in numbers.items())
        rate = f"{statistics.median(found):>11.1f} {min(found):>8.1f} {max(found):>8.1f}"
        lines.append(f"{name:<12} {rate}   {figures}")
    return "\n".join(lines)


def places(wanted: list[str], folder: Path, stack: ExitStack) -> dict[str, Place]:
    """Where each round's record is, by database."""
    numbers = count()
    found: dict[str, Place] = {}
    if "sqlite" in wanted:
        found["sqlite"] = lambda: folder / f"store-{next(numbers)}.db"
    if "postgresql" in wanted:
        server = stack.enter_context(running_server(SAFE))
        found["postgresql"] = lambda: ServerAddress(server.make_database(f"record_{next(numbers)}"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="How many rollouts the record takes a second.")
    parser.add_argument("--databases", nargs="+", default=list(DATABASES), choices=DATABASES)
    parser.add_argument("--rollouts", type=int, default=128, help="of a round; whole updates are 32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--prompt", type=int, default=PROMPT_TOKENS, help="tokens of each step's prompt")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in options.databases}
    spent: dict[str, list[Spent]] = {name: [] for name in options.databases}
    steps = steps_of_size(options.steps, options.prompt)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        where = places(options.databases, folder, stack)
        run = partial(measure, rollouts=options.rollouts, steps=steps, folder=folder)
        for _ in range(options.rounds):
            for name, place in where.items():
                spent[name].append(run(place))
                rates[name].append(options.rollouts / sum(spent[name][-1][kind] for kind in CALLS))
    size = f"{options.steps} steps with {options.prompt} tokens"
    print(f"{options.rollouts} rollouts of {size}, {options.rounds} rounds")
    print(table(rates, spent, options.rollouts))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"rollouts_per_s": rates, "spent_s": spent}, indent=1))


if __name__ == "__main__":
    main()
