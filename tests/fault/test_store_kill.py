"""The store's process is killed while it writes: what it acknowledged is there, nothing is torn."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.core.record_address import RecordAddress, parse_record_address
from dart.core.records import StoredResult
from dart.core.types import RolloutState
from dart.store.blobs import STEPS, FolderBlobs
from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for
from tests.record_places import RecordPlaces

KILLS = 6
START_DEADLINE_S = 30.0

WRITER = """
import sys
from tests.fault.test_store_kill import opened
from dart.testing.trajectories import trajectory_for
from dart.core.types import FaultKind

store = opened(*sys.argv[1:3])
acknowledged = open(sys.argv[3], "a", buffering=1)
store.add_version()
while True:
    if (batch := store.open_batch()) is None:
        live = store.snapshot().groups
        group_id = live[0].group_id if live else store.open_group("click-test", 7, 4, 10, 0)
        for number in range(4 - len(store.group(group_id).rollouts)):
            lease = store.lease_rollout(group_id, "env-000", 60.0)
            store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, number % 2, [0] * 20))
            print("finished", lease.rollout_id, file=acknowledged)
        for rollout in store.group(group_id).rollouts:
            if rollout.state == "leased":
                store.release_rollout(rollout.rollout_id, 1, FaultKind.INFRASTRUCTURE, "killed", 1)
        store.lease_batch([group_id], 60.0)
        batch = store.open_batch()
    version = store.latest_version().version + 1
    store.commit_update(batch.batch_id, 1, version, {"loss": 0.5})
    print("committed", version, file=acknowledged)
"""


def opened(record: str, steps: str) -> Store:
    """The store of a process that is killed."""
    return Store(parse_record_address(record), steps=FolderBlobs(Path(steps), STEPS))


def read_acknowledged(path: Path) -> Iterator[tuple[str, int]]:
    """What the writer said it had done; the kill may have torn the last line."""
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            what, number = line.split()
            yield what, int(number)


def write_until_killed(record: RecordAddress, steps: Path, acknowledged: Path, after_s: float) -> None:
    """Start a writer, let it write for a while after its first acknowledgement, kill it."""
    said_before = acknowledged.stat().st_size
    with subprocess.Popen([sys.executable, "-c", WRITER, *map(str, (record, steps, acknowledged))]) as writer:
        deadline = time.monotonic() + START_DEADLINE_S
        while acknowledged.stat().st_size == said_before:
            assert writer.poll() is None, f"the writer ended by itself with {writer.returncode}"
            assert time.monotonic() < deadline, "the writer acknowledged nothing by the deadline"
            time.sleep(0.005)
        time.sleep(after_s)
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_store_keeps_what_it_acknowledged_and_nothing_half_written(
    places: RecordPlaces, tmp_path: Path
) -> None:
    record, acknowledged = places.empty(), tmp_path / "acknowledged"
    acknowledged.touch()
    for _ in range(KILLS):
        write_until_killed(record, tmp_path / "steps", acknowledged, after_s=random.uniform(0.0, 0.2))
        with StoreReader(record) as reader:
            assert reader.integrity(staleness_bound=None) == ()
            assert reader.conservation().holds
            assert_all_is_there(reader, acknowledged)


def assert_all_is_there(reader: StoreReader, acknowledged: Path) -> None:
    """durable-before-ack: an acknowledgement is never forgotten."""
    versions = {version.version for version in reader.versions()}
    for what, number in read_acknowledged(acknowledged):
        if what == "committed":
            assert number in versions
        else:
            assert reader.rollout(number).state in (RolloutState.STORED, RolloutState.TRAINED)


def test_a_store_killed_inside_a_transaction_comes_back_without_it(
    places: RecordPlaces, tmp_path: Path
) -> None:
    """Steps and trajectory are written, the state is not yet changed: all of it must be gone."""
    record, steps = places.empty(), tmp_path / "steps"
    with opened(str(record), str(steps)) as store:
        lease = store.lease_rollout(store.open_group("click-test", 7, 2, 10, 0), "env-000", 60.0)
    torn = """
import os, signal, sys
from tests.fault.test_store_kill import opened
from dart.testing.trajectories import trajectory_for
from dart.core.types import RolloutLease

store = opened(*sys.argv[1:])
lease = RolloutLease(rollout_id=1, group_id=1, task_id="click-test", seed=7, step_cap=10, attempt=1, fence=1,
                     deadline_unix_s=60.0)
def die_at_last(table, key, **values):
    assert values["state"] == "stored"
    os.kill(os.getpid(), signal.SIGKILL)
store._update = die_at_last
store.finish_rollout(1, 1, trajectory_for(lease, versions=[0] * 500))
"""
    command = [sys.executable, "-c", torn, str(record), str(steps)]
    died = subprocess.run(command, timeout=START_DEADLINE_S, check=False)
    assert died.returncode == -signal.SIGKILL
    with opened(str(record), str(steps)) as store:
        assert store.integrity() == ()
        assert store.totals().trajectories == 0
        assert store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease)) == StoredResult.ACCEPTED
