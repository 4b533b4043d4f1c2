"""Writers of blobs are killed at any moment: what bears a name is whole, and nothing else is read."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dart.core.types import FaultKind, RolloutLease
from dart.store.blobs import SCREENSHOTS, SHARDS, STEPS, BlobKind, FolderBlobs
from dart.store.steps_sweep import SPARED_S
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for

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
