"""Writers of blobs are killed at any moment: what bears a name is whole, and nothing else is read.

So is the process that deletes old screenshots: what is needed stays, and nothing counts as damaged.
"""

import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dart.config.config import Config
from dart.core.run_directory import RunPaths
from dart.core.types import FaultKind, RolloutLease
from dart.store.blobs import SCREENSHOTS, SHARDS, STEPS, BlobKind, FolderBlobs
from dart.store.integrity import check
from dart.store.steps_sweep import SPARED_S
from dart.store.store import Store
from dart.testing.trajectories import step_at, trajectory_for

LEASE_S = 120.0
KILLS = 8
WRITER = """
import hashlib, sys
from pathlib import Path
from dart.store.blobs import SCREENSHOTS, STEPS, FolderBlobs

kind = {kind.prefix: kind for kind in (SCREENSHOTS, STEPS)}[sys.argv[3]]
blobs = FolderBlobs(Path(sys.argv[1]), kind)
number = int(sys.argv[2])
while True:
    sha256 = blobs.put(hashlib.sha256(str(number).encode()).digest() * 40_000)
    print(sha256, flush=True)
    number += 1
"""


def write_until_killed(folder: Path, kind: BlobKind, first: int, after_s: float) -> list[str]:
    """Names that the writer said were kept."""
    command = [sys.executable, "-c", WRITER, str(folder), str(first), kind.prefix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline()]
        time.sleep(after_s)
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.readlines()
    assert writer.returncode == -signal.SIGKILL
    return [line.strip() for line in told if line.endswith("\n")]


@pytest.mark.parametrize("kind", [SCREENSHOTS, STEPS], ids=lambda kind: kind.prefix)
def test_a_killed_writer_leaves_whole_blobs_and_what_nobody_reads(tmp_path: Path, kind: BlobKind) -> None:
    blobs = FolderBlobs(tmp_path, kind)
    moments = random.Random(0)
    for number in range(KILLS):
        told = write_until_killed(tmp_path, kind, 1_000_000 * number, moments.uniform(0.0, 0.03))
        for sha256 in {*told, *(path.stem for path in tmp_path.glob(f"*/*{kind.suffix}"))}:
            blobs.read(sha256)
    (tmp_path / "ab").mkdir(exist_ok=True)
    (tmp_path / "ab" / ".cut-off.part").write_bytes(b"half of a picture")
    blobs.remove_leftovers()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != kind.suffix] == []
    assert len(list(tmp_path.glob(f"*/*{kind.suffix}"))) >= KILLS


SENDER = """
import os, signal, sys
from pathlib import Path
from dart.store.run_blobs import local_blobs
from dart.store.serialization import pack_steps
from dart.testing.trajectories import step_at

print(local_blobs(Path(sys.argv[1])).steps.put(pack_steps((step_at(0, 7),))), flush=True)
os.kill(os.getpid(), signal.SIGKILL)  # before it reports them
"""


def test_steps_of_an_environment_that_was_killed_before_its_report_go_and_no_others(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "blobs" / "steps", STEPS)
    now_unix_s = time.time() + 2 * SPARED_S
    with Store(tmp_path / "store.db", clock=lambda: now_unix_s) as store:
        group_id = store.open_group("click-test", 7, 2, 10, 0)
        lost = store.lease_rollout(group_id, "env-000", now_unix_s + LEASE_S)
        killed = subprocess.run([sys.executable, "-c", SENDER, str(tmp_path)], capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL
        orphan = killed.stdout.strip()
        assert blobs.exists(orphan)
        store.release_rollout(lost.rollout_id, lost.fence, FaultKind.INFRASTRUCTURE, "it was killed", 5)
        again = store.reassign_rollout(lost.rollout_id, "env-001", now_unix_s + LEASE_S)
        assert isinstance(again, RolloutLease)
        assert store.finish_rollout(again.rollout_id, again.fence, trajectory_for(again)) == "accepted"
        assert sum(store.sweep_steps(shard, LEASE_S) for shard in range(SHARDS)) == 1
        assert not blobs.exists(orphan)
        (group,) = store.groups_to_trajectories([group_id])
        assert [len(one.steps) for one in group.trajectories] == [2]
        assert store.integrity(0) == ()


SWEEPER = """
import sys, time
from pathlib import Path
from dart.store.blobs import SHARDS
from dart.store.run_blobs import local_blobs
from dart.store.screenshot_sweep import ScreenshotSweeper
from dart.store.store import Store

folder = Path(sys.argv[1])
with Store(folder / "store.db", clock=lambda: time.time() + 15 * 86_400.0) as store:
    kept = store.give_up_screenshots(14 * 86_400.0, 120.0)
    print("it begins", flush=True)
    sweeper = ScreenshotSweeper(local_blobs(folder))
    print(sum(sweeper.sweep(shard, kept) for shard in range(SHARDS)), flush=True)
"""


def sweep_until_killed(folder: Path, after_s: float) -> bool:
    """Whether the sweep of all screenshots came to its end before the kill."""
    command = [sys.executable, "-c", SWEEPER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sweeper:
        assert sweeper.stdout is not None
        assert sweeper.stdout.readline() == "it begins\n"
        time.sleep(after_s)
        sweeper.send_signal(signal.SIGKILL)
        return bool(sweeper.stdout.read())


def test_a_killed_sweep_of_screenshots_has_deleted_nothing_that_is_needed_and_goes_on(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    screenshots = FolderBlobs(paths.blobs)
    dropped, live = ([screenshots.put(f"{group} {at}".encode()) for at in range(400)] for group in range(2))
    with Store(paths.store) as store:
        store.add_version()
        for shown in (dropped, live):
            lease = store.lease_rollout(store.open_group("click-test", 7, 2, 2000, 0), "env-000", LEASE_S)
            steps = tuple(replace(step_at(0, at), screenshot_sha256=one) for at, one in enumerate(shown))
            store.finish_rollout(lease.rollout_id, 1, replace(trajectory_for(lease), steps=steps))
        store.drop_group(1, "equal rewards")
    after_s, kills = 0.002, 0
    while not sweep_until_killed(tmp_path, after_s):
        after_s, kills = 4.0 * after_s, kills + 1
        assert all(map(screenshots.exists, live))
        assert check(paths, Config(), full=True, reads_checkpoints=False) == []
    assert kills >= 2
    assert {path.stem for path in paths.blobs.glob("*/*.png")} == set(live)
