"""The cache of blobs that are kept elsewhere: no caller waits for another one, and no removal takes long."""

import fcntl
from pathlib import Path

import pytest

from dart.store.blob_cache import CachedBlobs, CacheFolder
from dart.store.blobs import STEPS, FolderBlobs

EACH_BYTES = 100


@pytest.fixture
def elsewhere(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "elsewhere", STEPS)


def cached(elsewhere: FolderBlobs, folder: Path, most_bytes: int = 10**6) -> CachedBlobs:
    return CachedBlobs(elsewhere, CacheFolder(folder, most_bytes), STEPS, puts_once=False)


def held_in(folder: Path) -> list[Path]:
    return list(folder.glob("steps/??/*"))


def fill(near: CachedBlobs, blobs: int, first: int = 0) -> None:
    for number in range(first, first + blobs):
        near.put(str(number).encode().rjust(EACH_BYTES))


def counted_in(folder: Path) -> int:
    return int.from_bytes((folder / "count").read_bytes(), "little")


def test_a_blob_is_read_and_put_while_another_process_removes_files_from_the_cache(
    elsewhere: FolderBlobs, tmp_path: Path
) -> None:
    sha256 = elsewhere.put(b"steps")
    folder = tmp_path / "cache"
    near = cached(elsewhere, folder)
    fill(near, 1)
    with (folder / "count").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert near.read(sha256) == b"steps"
        assert elsewhere.read(near.put(b"more")) == b"more"
        near.delete(sha256)
    assert len(held_in(folder)) == 1
    assert near.read(elsewhere.put(b"steps")) == b"steps"
    assert len(held_in(folder)) == 2


def test_a_removal_looks_at_a_part_of_a_large_cache_and_the_cache_stays_within_its_bound(
    elsewhere: FolderBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.blob_cache.LOOKED_AT", 50)
    folder = tmp_path / "cache"
    near = cached(elsewhere, folder, most_bytes=200 * EACH_BYTES)
    fill(near, 200)
    assert len(held_in(folder)) == 200

    fill(near, 1, first=200)

    assert len(held_in(folder)) == 200 - 5 + 1, "a tenth of the looked-at files was removed"
    fill(near, 300, first=201)
    assert 195 <= len(held_in(folder)) <= 200
    assert counted_in(folder) == len(held_in(folder)) * EACH_BYTES


def test_a_removal_that_is_killed_leaves_fewer_files_and_a_count_of_them(
    elsewhere: FolderBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    near = cached(elsewhere, folder, most_bytes=100 * EACH_BYTES)
    fill(near, 100)
    unlink, removed = Path.unlink, []

    def kill_at_the_fourth(path: Path, missing_ok: bool = False) -> None:
        if len(removed) == 3:
            raise KeyboardInterrupt
        removed.append(path)
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", kill_at_the_fourth)
        with pytest.raises(KeyboardInterrupt):
            fill(near, 1, first=100)

    assert len(held_in(folder)) == 97
    assert counted_in(folder) == 97 * EACH_BYTES


def test_a_blob_that_is_deleted_counts_no_more(elsewhere: FolderBlobs, tmp_path: Path) -> None:
    near = cached(elsewhere, tmp_path)
    sha256 = near.put(b"steps")
    near.delete(sha256)
    assert counted_in(tmp_path) == 0


def test_a_blob_for_which_a_look_finds_too_little_to_remove_is_left_out(
    elsewhere: FolderBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.blob_cache.LOOKED_AT", 10)
    near = cached(elsewhere, tmp_path, most_bytes=100 * EACH_BYTES)
    fill(near, 100)
    large = bytes(50 * EACH_BYTES)
    assert near.read(elsewhere.put(large)) == large
    assert counted_in(tmp_path) == 90 * EACH_BYTES
