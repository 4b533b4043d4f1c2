"""The check of a run's data: the record against the files it names."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dart.config.config import Config
from dart.core.errors import DiskError
from dart.core.run_directory import RunPaths
from dart.store.blobs import FolderBlobs
from dart.store.checkpoints import CheckpointState, write_checkpoint
from dart.store.integrity import SHOWN, Finding, check, refuse_damage
from dart.store.run_blobs import local_blobs
from dart.store.store import Store
from dart.testing.trajectories import step_at, trajectory_for
from tests.record_places import RecordPlaces

TRAINED, LIVE, PARKED = b"of a trained episode", b"of a live group", b"of a parked episode"


@pytest.fixture
def paths(places: RecordPlaces, tmp_path: Path) -> RunPaths:
    """A run with a trained group, a live one, a parked episode, and two checkpoints."""
    paths = places.run_in(tmp_path)
    blobs = FolderBlobs(paths.blobs)
    with Store(paths.record, steps=local_blobs(tmp_path).steps) as store:
        store.add_version()
        for version in (1, 2):
            write_checkpoint(
                paths.checkpoints,
                CheckpointState(version=version, learner={}),
                lambda folder: (folder / "weights").write_bytes(b"1234") and None,
            )
            group_id = play_group(store, blobs.put(TRAINED), version - 1)
            batch = store.lease_batch([group_id], 60.0)
            store.commit_update(batch.batch_id, 1, version, {})
        play_group(store, blobs.put(LIVE), 2)
        lease = store.lease_rollout(store.open_group("click-test", 9, 2, 10, 2), "env-000", 60.0)
        seen = replace(step_at(2), screenshot_sha256=blobs.put(PARKED))
        store.park_rollout(lease.rollout_id, 1, (seen,), "the run is stopped", 8)
    return paths


def play_group(store: Store, screenshot_sha256: str, version: int) -> int:
    group_id = store.open_group("click-test", 7, 2, 10, version)
    for reward in (0.0, 1.0):
        lease = store.lease_rollout(group_id, "env-000", 60.0)
        seen = replace(step_at(version), screenshot_sha256=screenshot_sha256)
        store.finish_rollout(lease.rollout_id, 1, replace(trajectory_for(lease, reward), steps=(seen,)))
    return group_id


def blob_of(paths: RunPaths, content: bytes) -> Path:
    blobs = FolderBlobs(paths.blobs)
    return blobs.path(blobs.put(content))


def told(paths: RunPaths, *, full: bool = False) -> list[str]:
    return [str(finding) for finding in check(paths, Config(), full=full)]


@pytest.mark.parametrize("full", [False, True])
def test_whole_data_have_no_findings(paths: RunPaths, full: bool) -> None:
    assert told(paths, full=full) == []


@pytest.mark.parametrize("content", [LIVE, PARKED])
def test_a_screenshot_the_run_still_needs_is_missed(paths: RunPaths, content: bytes) -> None:
    path = blob_of(paths, content)
    path.unlink()
    assert told(paths) == [f"screenshot {path}: is missing"]


def test_a_screenshot_with_other_bytes_is_found(paths: RunPaths) -> None:
    path = blob_of(paths, LIVE)
    path.write_bytes(b"half of it")
    assert told(paths) == [f"screenshot {path}: has other bytes than its name promises"]
    path.unlink()
    path.symlink_to("/proc/self/mem")
    assert told(paths) == [f"screenshot {path}: cannot be read from the disk"]


def test_a_screenshot_of_a_trained_episode_is_missed_in_full_only(paths: RunPaths) -> None:
    path = blob_of(paths, TRAINED)
    path.unlink()
    assert told(paths) == []
    assert told(paths, full=True) == [f"screenshot {path}: is missing"]


def test_the_newest_checkpoint_must_be_there(paths: RunPaths) -> None:
    newest = paths.checkpoints / "v000002"
    (newest / "state.json").unlink()
    assert told(paths) == [f"checkpoint {newest}: is missing or incomplete"]


def test_an_older_checkpoint_is_read_in_full_only(paths: RunPaths) -> None:
    older = paths.checkpoints / "v000001"
    (older / "weights").write_bytes(b"1235")
    assert told(paths) == []
    (finding,) = told(paths, full=True)
    assert finding.startswith(f"checkpoint {older}: weights is corrupt: expected sha256")
    (damage,) = check(paths, Config(), full=True)
    assert damage.remedy.startswith("remove the folder")
    shutil.rmtree(older)
    assert told(paths, full=True) == []


def test_a_version_that_was_trained_too_late_counts_from_where_it_was_resumed(
    places: RecordPlaces, paths: RunPaths
) -> None:
    places.run(paths.record, "UPDATE trajectories SET oldest_version = -9 WHERE rollout_id = 1")
    assert len(check(paths, Config())) == 1
    assert check(paths, Config(), fresh_since=2) == []


def test_nothing_is_made_where_data_are_missing(paths: RunPaths, tmp_path: Path) -> None:
    shutil.rmtree(paths.blobs)
    assert len(told(paths)) == 3, "the steps of two episodes that may be trained, and of a parked one"
    assert not paths.blobs.exists()


@pytest.mark.only_sqlite
def test_a_header_that_makes_the_record_read_only_is_named_in_full_only(paths: RunPaths) -> None:
    """SQLite reads such a file, and refuses to write it."""
    content = bytearray(paths.store.read_bytes())
    content[18] ^= 4
    paths.store.write_bytes(content)
    assert told(paths) == []
    assert told(paths, full=True) == [
        "the database file: its formats for writing and reading are 0602, not 0202"
    ]


def test_damage_is_refused_with_what_which_and_remedy(tmp_path: Path) -> None:
    findings = [Finding("is missing", f"screenshot {number}", "restore it") for number in range(SHOWN + 2)]
    refuse_damage(RunPaths(tmp_path), [])
    with pytest.raises(DiskError, match=r"screenshot 0: is missing \(restore it\)(.|\n)*and 2 more"):
        refuse_damage(RunPaths(tmp_path), findings)
