"""A full disk: a clear error, nothing half-written, readable meanwhile, and on it goes when there is room.
A disk that is read-only: readable."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from actors.board import Board
from dart.core.actions import Click
from dart.core.errors import DiskError
from dart.core.records import StoredResult
from dart.core.run_directory import RunPaths
from dart.environments.browser.demonstrations import OracleEpisode, add_episode
from dart.environments.osworld.guest_answers import Reading
from dart.environments.osworld.judgements import FOLDER, Judged, JudgementLog, read_judgements
from dart.environments.osworld.judging import Judgement
from dart.environments.protocol import NO_ROLLOUT
from dart.inspect.signals import read
from dart.run.listener import RunListener
from dart.run.signal_counter import SignalCounter
from dart.store.blobs import FolderBlobs
from dart.store.disk_wait import is_no_room
from dart.store.errors import StoreUnavailable
from dart.store.reader import StoreReader
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for
from dart.training.distributed import write_parts
from tests.small_disk import enlarge, small_disk

DISK_BYTES = 4 << 20
BALLAST_BYTES = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB, 1 MiB of which can be given back by deleting the file `ballast`."""
    with small_disk(tmp_path / "disk", str(DISK_BYTES)) as disk:
        (disk / "ballast").write_bytes(b"0" * BALLAST_BYTES)
        yield disk


def fill(store: Store) -> int:
    """Store long trajectories until the disk is full; returns how many were acknowledged."""
    for acknowledged in range(10_000):
        group_id = store.open_group("click-test", 7, 2, 300, 0)
        lease = store.lease_rollout(group_id, "env-000", 60.0)
        trajectory = trajectory_for(lease, versions=[0] * 300)
        answer = store.finish_rollout(lease.rollout_id, lease.fence, trajectory)
        assert answer == StoredResult.ACCEPTED, acknowledged
    raise AssertionError("the disk did not fill up")


def test_a_full_disk_is_a_clear_error_and_loses_nothing(disk: Path) -> None:
    path = disk / "store.db"
    with Store(path) as store, StoreReader(path) as reader:
        with pytest.raises(StoreUnavailable, match=r"store\.db: the disk is full: free space") as full:
            fill(store)
        assert isinstance(full.value, DiskError)
        for view in (store, reader):
            assert view.integrity() == ()
            assert view.conservation().holds
            assert view.conservation().stored > 0
        (disk / "ballast").unlink()
        lease = store.lease_rollout(store.open_group("click-test", 8, 2, 10, 0), "env-000", 60.0)
        assert store.finish_rollout(lease.rollout_id, 1, trajectory_for(lease)) == StoredResult.ACCEPTED
        assert reader.conservation() == store.conservation()


def test_a_screenshot_that_does_not_fit_leaves_nothing_behind(disk: Path) -> None:
    blobs = FolderBlobs(disk / "blobs")
    with pytest.raises(StoreUnavailable, match=r"No space left on device.*free space there"):
        blobs.put(b"0" * DISK_BYTES)
    assert [path for path in blobs.root.rglob("*") if path.is_file()] == []
    assert blobs.read(blobs.put(b"a small one")) == b"a small one"


def judged(seed: int) -> Judged:
    """A judgement whose answer is the same for all seeds, so that its blob is written once."""
    read = Reading(question="file", arguments={"path": "/a" * 200}, answer=b"done")
    judgement = Judgement(score=1.0, evaluator="desktop-env 0", task_sha256="x", readings=(read,))
    return Judged(judgement, "osworld/x/y", seed, NO_ROLLOUT)


def add_many(log: JudgementLog) -> None:
    for seed in range(1, 100):
        log.add(judged(seed))


def test_a_judgement_that_does_not_fit_leaves_no_part_of_its_line(disk: Path) -> None:
    log = JudgementLog(disk, "env-000")
    log.add(judged(0))
    with pytest.raises(OSError, match="No space left"):
        (disk / "rest").write_bytes(b"0" * DISK_BYTES)
    with pytest.raises(OSError, match="No space left") as full:
        add_many(log)
    assert is_no_room(full.value)
    assert (disk / FOLDER / "env-000.jsonl").read_bytes().endswith(b"}\n")
    seeds = [kept.seed for kept in read_judgements(disk)]
    assert seeds == list(range(len(seeds)))

    (disk / "ballast").unlink()
    log.add(judged(len(seeds)))
    assert [kept.seed for kept in read_judgements(disk)] == [*seeds, len(seeds)]


def test_a_new_record_on_a_full_disk_says_so(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "rest").write_bytes(b"0" * DISK_BYTES)
    with pytest.raises(StoreUnavailable, match=r"store\.db: the disk"):
        Store(disk / "store.db")


def test_a_record_on_a_read_only_file_system_is_read(disk: Path) -> None:
    with Store(disk / "store.db") as store:
        store.add_version()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with StoreReader(disk / "store.db") as reader:
        assert [version.version for version in reader.versions()] == [0]


def test_a_new_name_on_a_full_disk_does_not_end_the_process(tmp_path: Path) -> None:
    claim_all = """
import sys
from pathlib import Path
from actors.board import Board

board = Board(Path(sys.argv[1]))
for number in range(board.slots):
    print(len(board.rows()), board.claim(f"rollout-{number}", "pool"))
"""
    with small_disk(tmp_path / "disk", "512k") as disk:
        Board.create(disk / "board", 64).close()
        with pytest.raises(OSError, match="No space left"):
            (disk / "rest").write_bytes(b"0" * DISK_BYTES)
        command = [sys.executable, "-c", claim_all, str(disk / "board")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "63 63"


def test_a_board_that_the_disk_has_no_room_for_is_refused_and_leaves_no_descriptor(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        before = psutil.Process().num_fds()
        with pytest.raises(OSError, match="No space left"):
            Board.create(disk / "board", 64)
        assert psutil.Process().num_fds() == before
        assert list(disk.iterdir()) == []


def test_wherever_the_disk_gets_full_in_an_optimizers_state_the_error_is_that_of_a_full_disk(
    tmp_path: Path,
) -> None:
    state = {"state": {f"weight {number}": {"exp_avg": torch.randn(50, 50)} for number in range(16)}}
    for kib in range(8, 160, 8):
        with small_disk(tmp_path / f"{kib}", f"{kib}k") as disk:
            with pytest.raises(OSError, match="No space left") as full:
                write_parts(state, disk)
            assert is_no_room(full.value), kib


def test_demonstrations_that_filled_the_disk_are_written_again_whole_by_the_next_call(tmp_path: Path) -> None:
    small, large = b"1", b"2" * 100_000
    episodes = [
        OracleEpisode("miniwob/click-test", seed, "Click.", ((png, Click(3, 4), None),), 1.0)
        for seed, png in enumerate((small, large))
    ]
    with small_disk(tmp_path / "disk", "64k") as disk:
        add_episode(disk, episodes[0])
        with pytest.raises(OSError, match="No space left"):
            add_episode(disk, episodes[1])
        enlarge(disk, "256k")
        add_episode(disk, episodes[1])

        lines = [json.loads(line) for line in (disk / "demonstrations.jsonl").read_text().splitlines()]
        pictures = [disk / "screenshots" / f"{line['steps'][0]['screenshot_sha256']}.png" for line in lines]
        assert [path.read_bytes() for path in pictures] == [small, large]


def test_a_line_of_demonstrations_that_the_disk_has_no_room_for_is_left_out_whole(tmp_path: Path) -> None:
    long = OracleEpisode("miniwob/click-test", 7, "Click. " * 10_000, (), 1.0)
    with small_disk(tmp_path / "disk", "64k") as disk:
        with pytest.raises(OSError, match="No space left"):
            add_episode(disk, long)
        assert (disk / "demonstrations.jsonl").read_bytes() == b""


def test_a_signal_is_noted_on_a_full_disk_so_that_a_later_down_does_not_end_the_run_at_once(
    tmp_path: Path,
) -> None:
    with (
        small_disk(tmp_path / "disk", "64k") as disk,
        SignalCounter(RunPaths(disk), RunListener()) as counter,
    ):
        with pytest.raises(OSError, match="No space left"):
            (disk / "rest").write_bytes(b"0" * DISK_BYTES)
        assert read(RunPaths(disk)) is None
        for count in (1, 2):
            signal.raise_signal(signal.SIGTERM)
            noted = read(RunPaths(disk))
            assert noted is not None
            assert (noted.signal, noted.count, counter.count) == (signal.SIGTERM, count, count)


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
