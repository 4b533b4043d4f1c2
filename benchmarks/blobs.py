"""Put and get with hash: screenshots and the steps of an episode, in a folder and in object storage.

    python -m benchmarks.blobs [--address s3://BUCKET/PREFIX] [--server NAME] [--rounds 5] [--count 40]

An episode of DART's size has 30 steps with prompts of 14,000 tokens. `episodes stored` is the whole way of a
result: pack, put, and the transaction that names it, by the store itself. Without an address only the folder
is measured.
"""

import argparse
import hashlib
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dart.core import messages as m
from dart.core.types import Step
from dart.store.blobs import SCREENSHOTS, STEPS, BlobKind, BlobStore, FolderBlobs
from dart.store.serialization import pack_steps
from dart.store.store import Store
from dart.testing.trajectories import step_at, trajectory_for

SCREENSHOT_BYTES = 300_000
STEPS_OF_EPISODE, PROMPT_TOKENS, ANSWER_TOKENS = 30, 14_000, 150


def episode(draw: random.Random) -> tuple[Step, ...]:
    """Steps of DART's size, no two of them equal."""
    prompt = tuple(draw.randrange(150_000) for _ in range(PROMPT_TOKENS))
    return tuple(
        replace(
            step_at(0, number),
            prompt_ids=prompt,
            token_ids=tuple(draw.randrange(150_000) for _ in range(ANSWER_TOKENS)),
            logprobs=tuple(-draw.random() for _ in range(ANSWER_TOKENS)),
            entropies=tuple(draw.random() for _ in range(ANSWER_TOKENS)),
        )
        for number in range(STEPS_OF_EPISODE)
    )


def stores(kind: BlobKind, folder: Path, address: str) -> Iterator[tuple[str, BlobStore]]:
    """The stores to measure, by name."""
    yield "folder", FolderBlobs(folder / kind.prefix, kind)
    if address:
        from dart.store.object_storage import ObjectBlobs, ObjectStorage

        yield "object storage", ObjectBlobs(ObjectStorage(f"{address}/{os.getpid()}"), kind)


def rate(work: Callable[[Any], object], items: list[Any]) -> float:
    """Items a second."""
    began_s = time.perf_counter()
    for item in items:
        work(item)
    return len(items) / (time.perf_counter() - began_s)


def put_and_get(kind: BlobKind, contents: list[bytes], folder: Path, address: str) -> dict[str, float]:
    found = {}
    for name, blobs in stores(kind, folder, address):
        found[f"{name}, put {kind.name}"] = rate(blobs.put, contents)
        names = [hashlib.sha256(content).hexdigest() for content in contents]
        found[f"{name}, get {kind.name}"] = rate(blobs.read, names)
    return found


def stored(episodes: list[tuple[Step, ...]], folder: Path, address: str) -> dict[str, float]:
    """Episodes a second that one store keeps: pack, put, read and check, and the transaction."""
    found = {}
    for name, blobs in stores(STEPS, folder / "stored", address):
        with Store(folder / f"{name}.db", steps=blobs) as store:
            group = store.open_group("click-test", 7, len(episodes), 50, 0)
            leases = [store.lease_rollout(group, "env-000", 1e12) for _ in episodes]

            def keep(
                one: tuple[Any, tuple[Step, ...]], store: Store = store, blobs: BlobStore = blobs
            ) -> None:
                lease, steps = one
                store.write(
                    m.FinishRollout(
                        rollout_id=lease.rollout_id,
                        fence=lease.fence,
                        trajectory=replace(trajectory_for(lease), steps=()),
                        steps_sha256=blobs.put(pack_steps(steps)),
                    )
                )

            found[f"{name}, episodes stored"] = rate(keep, list(zip(leases, episodes, strict=True)))
    return found


def measured(count: int, rounds: int, address: str) -> dict[str, list[float]]:
    """Every figure of every round; the order of stores is the same in each."""
    figures: dict[str, list[float]] = {}
    for number in range(rounds):
        draw = random.Random(f"{os.getpid()} {number}")
        screenshots = [draw.randbytes(SCREENSHOT_BYTES) for _ in range(count)]
        episodes = [episode(draw) for _ in range(max(4, count // 4))]
        packed = [pack_steps(steps) for steps in episodes]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.joinpath("stored").mkdir()
            of_round = put_and_get(SCREENSHOTS, screenshots, folder, address)
            of_round |= put_and_get(STEPS, packed, folder, address)
            of_round |= stored(episodes, folder, address)
        for what, value in of_round.items():
            figures.setdefault(what, []).append(value)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Put and get with hash, in a folder and in object storage.")
    parser.add_argument("--address", default="", help="s3://BUCKET/PREFIX; credentials in the environment")
    parser.add_argument("--server", default="", help="what the object storage is, for the result")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=40, help="screenshots of a round")
    asked = parser.parse_args()
    figures = measured(asked.count, asked.rounds, asked.address)
    result = {
        what: {"median_per_s": statistics.median(values), "least": min(values), "most": max(values)}
        for what, values in figures.items()
    }
    packed_bytes = len(pack_steps(episode(random.Random(0))))
    print(json.dumps({"server": asked.server, "packed_bytes": packed_bytes, "figures": result}, indent=1))


if __name__ == "__main__":
    main()
