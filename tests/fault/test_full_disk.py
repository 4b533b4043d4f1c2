"""A full disk: a clear error, nothing half-written, readable meanwhile, and on it goes when there is room."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.core.errors import DiskError
from dart.core.records import StoredResult
from dart.store.blobs import FolderBlobs
from dart.store.errors import StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for

DISK_BYTES = 4 << 20
BALLAST_BYTES = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB, 1 MiB of which can be given back by deleting the file `ballast`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("needs the commands mount and umount")
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    mounted = subprocess.run([mount, *options], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    (disk / "ballast").write_bytes(b"0" * BALLAST_BYTES)
    yield disk
    subprocess.run([umount, str(disk)], check=True)


def fill(store: Store) -> int:
    """Store long trajectories until the disk is full; returns how many were acknowledged."""
    for acknowledged in range(10_000):
        group_id = store.open_group("click-test", 7, 2, 300, 0)
        lease = store.lease_rollout(group_id, "env-000", 60.0)
        trajectory = trajectory_for(lease, versions=[0] * 300)
        answer = store.finish_rollout(lease.rollout_id, lease.fence, trajectory)
        assert answer == StoredResult.ACCEPTED, acknowledged
    raise AssertionError("the disk did not fill up")


def test_a_full_disk_is_a_clear_error_and_loses_nothing(small_disk: Path) -> None:
    path = small_disk / "store.db"
    with Store(path) as store, StoreReader(path) as reader:
        with pytest.raises(StoreUnavailable, match=r"store\.db: the disk is full: free space") as full:
            fill(store)
        assert isinstance(full.value, DiskError)
        for view in (store, reader):
            assert view.integrity() == ()
            assert view.conservation().holds
            assert view.conservation().stored > 0
        (small_disk / "ballast").unlink()
        lease = store.lease_rollout(store.open_group("click-test", 8, 2, 10, 0), "env-000", 60.0)
        assert store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease)) == StoredResult.ACCEPTED
        assert reader.conservation() == store.conservation()


def test_a_screenshot_that_does_not_fit_leaves_nothing_behind(small_disk: Path) -> None:
    blobs = FolderBlobs(small_disk / "blobs")
    with pytest.raises(StoreUnavailable, match=r"No space left on device.*free space there"):
        blobs.put(b"0" * DISK_BYTES)
    assert [path for path in blobs.root.rglob("*") if path.is_file()] == []
    assert blobs.read(blobs.put(b"a small one")) == b"a small one"


def test_a_new_record_on_a_full_disk_says_so(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "rest").write_bytes(b"0" * DISK_BYTES)
    with pytest.raises(StoreUnavailable, match=r"store\.db: the disk"):
        Store(small_disk / "store.db")


def test_a_file_size_limit_is_a_clear_error_too(tmp_path: Path) -> None:
    """Needs no rights: the limit is the process's own."""
    limited = """
import resource, sys
from pathlib import Path
from dart.store.errors import StoreUnavailable
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for

store = Store(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
try:
    while True:
        lease = store.lease_rollout(store.open_group("click-test", 7, 2, 300, 0), "env-000", 60.0)
        store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease, versions=[0] * 300))
except StoreUnavailable as error:
    assert store.integrity() == (), store.integrity()
    print(error)
"""
    path = tmp_path / "store.db"
    command = [sys.executable, "-c", limited, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"store {path}: the disk" in done.stdout
    with Store(path) as store:
        assert store.integrity() == ()
        assert store.conservation().stored > 0
