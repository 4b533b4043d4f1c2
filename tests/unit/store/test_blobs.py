"""Screenshots by content: kept once, read back whole or not at all."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from dart.store.blobs import SCREENSHOTS, STEPS, BlobKind, FolderBlobs
from dart.store.errors import BlobCorrupt, BlobMissing, StoreUnavailable

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


def test_a_blob_is_named_by_its_content_and_lies_in_its_folder(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    sha256 = blobs.put(PNG)
    assert sha256 == hashlib.sha256(PNG).hexdigest()
    assert blobs.path(sha256) == tmp_path / "blobs" / sha256[:2] / f"{sha256}.png"
    assert blobs.read(sha256) == PNG


def test_the_same_bytes_are_written_once(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    first = blobs.path(blobs.put(PNG)).stat()
    second = blobs.path(blobs.put(PNG)).stat()
    assert first.st_ino == second.st_ino


def test_nothing_but_blobs_is_left_in_the_folder(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    path = blobs.path(blobs.put(PNG))
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_a_missing_blob_says_so(tmp_path: Path) -> None:
    with pytest.raises(BlobMissing, match=f"{'0' * 64}.png is missing"):
        FolderBlobs(tmp_path).read("0" * 64)


@pytest.mark.parametrize("damaged", [b"", PNG[:-1], PNG + b"x"])
def test_damage_is_found_by_the_hash(tmp_path: Path, damaged: bytes) -> None:
    blobs = FolderBlobs(tmp_path)
    sha256 = blobs.put(PNG)
    blobs.path(sha256).write_bytes(damaged)
    with pytest.raises(BlobCorrupt, match=f"has {len(damaged)} bytes with sha256"):
        blobs.read(sha256)


def test_a_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("in the way")
    with pytest.raises(StoreUnavailable, match="Not a directory"):
        FolderBlobs(tmp_path / "blobs").put(PNG)


def test_a_torn_file_is_replaced_by_who_has_its_bytes(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    sha256 = blobs.put(b"a whole picture")
    blobs.path(sha256).write_bytes(b"a who")
    with pytest.raises(BlobCorrupt):
        blobs.read(sha256)
    assert blobs.put(b"a whole picture") == sha256
    assert blobs.read(sha256) == b"a whole picture"


@pytest.mark.parametrize("kind", [SCREENSHOTS, STEPS])
def test_a_file_of_the_right_size_with_other_bytes_is_replaced_by_who_has_its_bytes(
    tmp_path: Path, kind: BlobKind
) -> None:
    blobs = FolderBlobs(tmp_path, kind)
    path = blobs.path(blobs.put(PNG))
    path.write_bytes(PNG[:-1] + b"x")
    assert blobs.held(PNG) == ""
    assert blobs.read(blobs.put(PNG)) == PNG


def test_a_file_that_the_disk_cannot_read_is_corrupt_and_replaced_by_who_has_its_bytes(
    tmp_path: Path,
) -> None:
    blobs = FolderBlobs(tmp_path)
    sha256 = blobs.put(b"")
    blobs.path(sha256).unlink()
    blobs.path(sha256).symlink_to("/proc/self/mem")  # of size 0, and to read its begin is an error (EIO)
    with pytest.raises(BlobCorrupt, match=rf"{blobs.path(sha256)} cannot be read: Input/output error"):
        blobs.read(sha256)
    assert blobs.held(b"") == ""
    assert blobs.read(blobs.put(b"")) == b""


def test_steps_are_on_the_disk_with_the_names_of_all_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("dart.store.blobs.sync_path", synced.append)
    blobs = FolderBlobs(tmp_path / "blobs" / "steps", STEPS)
    folder = blobs.path(blobs.put(PNG)).parent
    assert set(synced) == {folder, *list(folder.parents)[:3]}
    assert tmp_path in synced
    FolderBlobs(tmp_path / "blobs").put(PNG)
    assert len(synced) == 4, "screenshots are not synced"


def test_a_folder_that_cannot_be_listed_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Path, pattern: str) -> list[Path]:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), pattern)

    monkeypatch.setattr(Path, "glob", gone)
    with pytest.raises(StoreUnavailable, match=rf"{tmp_path}/07 cannot be read .*: Stale file handle"):
        list(FolderBlobs(tmp_path).entries(7))
