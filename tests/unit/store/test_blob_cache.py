"""The cache of blobs that are kept elsewhere: no caller waits for another one, and no removal takes long."""

import fcntl
from dataclasses import replace
from pathlib import Path

import pytest

from dart.store.blob_cache import CachedBlobs, CacheFolder
from dart.store.blobs import STEPS, FolderBlobs

EACH_BYTES = 100


@pytest.fixture
def elsewhere(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "elsewhere", replace(STEPS, is_synced=False))


def cached(elsewhere: FolderBlobs, folder: Path, most_bytes: int = 10**6) -> CachedBlobs:
    return CachedBlobs(elsewhere, CacheFolder(folder, most_bytes), STEPS, puts_once=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def held_in(folder: Path) -> list[Path]:
    return list(folder.glob("steps/??/*"))


def fill(near: CachedBlobs, blobs: int, first: int = 0) -> None:
    for number in range(first, first + blobs):
        near.put(str(number).encode().rjust(EACH_BYTES))


def counted_in(folder: Path) -> int:
    return int.from_bytes((folder / "count").read_bytes(), "little")


def test_a_blob_is_read_and_put_while_another_process_removes_files_from_the_cache(
    elsewhere: FolderBlobs, cache: Path
) -> None:
    sha256 = elsewhere.put(b"steps")
    near = cached(elsewhere, cache)
    fill(near, 1)
    with (cache / "count").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert near.read(sha256) == b"steps"
        assert elsewhere.read(near.put(b"more")) == b"more"
        near.delete(sha256)
    assert len(held_in(cache)) == 1
    assert near.read(elsewhere.put(b"steps")) == b"steps"
    assert len(held_in(cache)) == 2


def test_a_removal_looks_at_a_part_of_a_large_cache_and_the_cache_stays_within_its_bound(
    elsewhere: FolderBlobs, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.blob_cache.LOOKED_AT", 50)
    near = cached(elsewhere, cache, most_bytes=200 * EACH_BYTES)
    fill(near, 200)
    assert len(held_in(cache)) == 200

    fill(near, 1, first=200)

    assert len(held_in(cache)) == 200 - 5 + 1, "a tenth of the looked-at files was removed"
    fill(near, 300, first=201)
    assert 195 <= len(held_in(cache)) <= 200
    assert counted_in(cache) == len(held_in(cache)) * EACH_BYTES


def test_a_removal_that_is_killed_leaves_fewer_files_and_a_count_of_them(
    elsewhere: FolderBlobs, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = cached(elsewhere, cache, most_bytes=100 * EACH_BYTES)
    fill(near, 100)
    unlink = Path.unlink
    removed: list[Path] = []

    def kill_at_the_fourth(path: Path, missing_ok: bool = False) -> None:
        if len(removed) == 3:
            raise KeyboardInterrupt
        removed.append(path)
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", kill_at_the_fourth)
        with pytest.raises(KeyboardInterrupt):
            fill(near, 1, first=100)

    assert len(held_in(cache)) == 97
    assert counted_in(cache) == 97 * EACH_BYTES


def test_a_blob_that_is_deleted_counts_no_more(elsewhere: FolderBlobs, cache: Path) -> None:
    near = cached(elsewhere, cache)
    sha256 = near.put(b"steps")
    near.delete(sha256)
    assert counted_in(cache) == 0


def test_a_cache_whose_files_a_person_deleted_is_filled_again(elsewhere: FolderBlobs, cache: Path) -> None:
    near = cached(elsewhere, cache, most_bytes=100 * EACH_BYTES)
    fill(near, 100)
    for path in held_in(cache):
        path.unlink()
    fill(near, 3, first=100)
    assert len(held_in(cache)) == 3
    assert counted_in(cache) == 3 * EACH_BYTES


def test_a_blob_for_which_a_look_finds_too_little_to_remove_is_left_out(
    elsewhere: FolderBlobs, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dart.store.blob_cache.LOOKED_AT", 10)
    near = cached(elsewhere, cache, most_bytes=100 * EACH_BYTES)
    fill(near, 100)
    large = bytes(50 * EACH_BYTES)
    assert near.read(elsewhere.put(large)) == large
    assert counted_in(cache) == 90 * EACH_BYTES
