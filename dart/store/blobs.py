"""The bytes of a run, each named by its sha256: screenshots and the packed steps of episodes.

Messages and rows hold the sha256, never a path, so that any machine can find the bytes in its own way.
`dart.store.run_blobs` chooses where the blobs are kept. `FolderBlobs`, in this module, keeps them as files of
a folder, which all processes of one machine share.

A file is written under a temporary name and then renamed. So a reader sees all of it or nothing, and two
writers of the same content do no harm. A written file survives the death of its writer. Steps are also synced
to the disk (fsync), because the record names them: a crash of the machine must not leave a row without its
steps. Screenshots are not synced: there are many more of them, and if one is lost, only the groups that show
it are dropped.
"""

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from dart.core.disk_errors import FULL_DISK
from dart.core.run_directory import make_private
from dart.store.errors import (
    BlobCorrupt,
    BlobMissing,
    BlobsUnavailable,
    BlobUnreadable,
    StoreBusy,
    StoreUnavailable,
)

SHARDS = 256
"""Number of shards (parts) of a blob store. The first byte of a blob's sha256 is the number of its shard."""

READERS = 16
"""Number of requests that `read_each` makes at the same time to another machine."""

T = TypeVar("T")

SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobKind:
    """What the blobs of one store are: screenshots or packed steps."""

    name: str
    """What messages call such a blob."""
    folder: str
    """Folder of these blobs below the folder `blobs` of a run directory; empty for that folder itself."""
    prefix: str
    """First part of their keys in object storage, and their folder in a cache."""
    suffix: str
    without: str
    """What follows from the loss of such a blob; the end of messages about a missing one."""
    is_synced: bool = False
    """Whether `put` returns only after the file is on the disk itself (fsync)."""


SCREENSHOTS = BlobKind(
    name="screenshot",
    folder="",
    prefix="screenshots",
    suffix=".png",
    without="the groups that name it are dropped instead of trained",
)
STEPS = BlobKind(
    name="packed steps",
    folder="steps",
    prefix="steps",
    suffix=".steps",
    without="the episode cannot be trained or shown",
    is_synced=True,
)


class BlobEntry(NamedTuple):
    """A stored blob, as a listing shows it."""

    sha256: str
    put_unix_s: float
    """When the blob was last put, by the clock of the machine that keeps it."""


class BlobStore(Protocol):
    """Content-addressed bytes of one kind. Any number of processes may share them."""

    is_remote: bool
    """Whether calls wait for another machine. If so, actors make them in a thread."""

    def put(self, content: bytes) -> str:
        """Store bytes durably and return their sha256 in hex. Raises StoreUnavailable or StoreBusy."""

    def read(self, sha256: str) -> bytes:
        """The bytes of a blob. Raises BlobMissing, BlobCorrupt, StoreUnavailable or StoreBusy."""

    def exists(self, sha256: str) -> bool:
        """Whether a blob is stored, without a check of its bytes. Raises StoreUnavailable or StoreBusy."""

    def delete(self, sha256: str) -> None:
        """Remove a blob, if it is stored. Raises StoreUnavailable or StoreBusy."""

    def entries(self, shard: int) -> Iterator[BlobEntry]:
        """The blobs of one shard, 0 to `SHARDS` - 1. Raises StoreUnavailable or StoreBusy."""

    def place(self, sha256: str) -> str:
        """The path or address of a blob, for messages. The blob need not exist."""


class FolderBlobs:
    """Blobs as files `<root>/ab/abcd….png` of one machine. The folder need not exist yet."""

    is_remote = False

    def __init__(self, root: Path, kind: BlobKind = SCREENSHOTS) -> None:
        self.root, self.kind = root, kind

    def path(self, sha256: str) -> Path:
        """The path of a blob, whether or not the file exists."""
        return self.root / sha256[:2] / f"{sha256}{self.kind.suffix}"

    def place(self, sha256: str) -> str:
        return str(self.path(sha256))

    def put(self, content: bytes) -> str:
        """Store a blob and return its sha256 in hex.

        If its file exists with this content, it is not written again. Only its modification time is set to
        now, so that a sweep (`dart.store.steps_sweep`) takes the blob for a new one.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        path = self.path(sha256)
        if not self._is_renewed(path, content):
            self._make_folder(path.parent)
            write_whole(path, content, is_synced=self.kind.is_synced)
        return sha256

    def held(self, content: bytes) -> str:
        """The sha256 of `content` if its file exists with this content; else empty.

        Sets the modification time of the file to now.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        return sha256 if self._is_renewed(self.path(sha256), content) else ""

    def touch(self, sha256: str) -> None:
        """Set the modification time of a blob's file to now. Errors are ignored."""
        with suppress(OSError):
            os.utime(self.path(sha256))

    def _is_renewed(self, path: Path, content: bytes) -> bool:
        """Whether a file exists with this content; if so, set its modification time to now.

        The content is compared because a crash of the machine or a failing disk can damage a file. Raises
        StoreUnavailable.
        """
        try:
            if path.read_bytes() != content:
                return False
            os.utime(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.EIO:
                return False
            raise unavailable(path, error) from error
        return True

    def _make_folder(self, folder: Path) -> None:
        try:
            if not folder.exists():
                make_private(self.root, folder)
                if self.kind.is_synced:
                    self._sync_folders()
        except OSError as error:
            raise unavailable(folder, error) from error

    def _sync_folders(self) -> None:
        """Write the names of a new folder and of the folders above it to the disk itself (fsync)."""
        for named_in in (self.root, self.root.parent, self.root.parent.parent):
            sync_path(named_in)

    def read(self, sha256: str) -> bytes:
        path = self.path(sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise missing(self.kind, sha256, str(path)) from error
        except OSError as error:
            if error.errno == errno.EIO:
                raise unreadable(self.kind, sha256, str(path), error) from error
            raise unavailable(path, error) from error
        return checked(self.kind, sha256, str(path), content)

    def exists(self, sha256: str) -> bool:
        return self.path(sha256).is_file()

    def delete(self, sha256: str) -> None:
        try:
            self.path(sha256).unlink(missing_ok=True)
        except OSError as error:
            raise unavailable(self.path(sha256), error) from error

    def entries(self, shard: int) -> Iterator[BlobEntry]:
        folder = self.root / f"{shard:02x}"
        try:
            for path in folder.glob(f"*{self.kind.suffix}"):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    if SHA256.fullmatch(path.stem):
                        yield BlobEntry(path.stem, path.stat().st_mtime)
        except OSError as error:
            raise unavailable(folder, error) from error

    def remove_leftovers(self) -> None:
        """Remove the temporary files of killed writers. Call it only while no process writes."""
        for left_over in self.root.glob("??/.*.part"):
            left_over.unlink()


def read_each(blobs: BlobStore, read: Callable[[str], T], sha256s: Collection[str]) -> dict[str, T]:
    """Call `read`, or another function that makes one request, for each blob; return the results by sha256.

    Up to `READERS` requests are made at the same time if the blobs are on another machine.
    """
    if not blobs.is_remote:
        return {sha256: read(sha256) for sha256 in sha256s}
    from concurrent.futures import ThreadPoolExecutor  # commands of one machine start faster without it

    with ThreadPoolExecutor(READERS) as pool:
        return dict(zip(sha256s, pool.map(read, sha256s), strict=True))


def missing(kind: BlobKind, sha256: str, place: str) -> BlobMissing:
    """The error for a blob that is not at its place."""
    return BlobMissing(
        sha256,
        f"{kind.name} {place} is missing: restore it from a copy of the run's blobs; "
        f"without it {kind.without}",
    )


def unreadable(kind: BlobKind, sha256: str, place: str, error: OSError) -> BlobUnreadable:
    """The error for a blob whose bytes the disk fails to read."""
    return BlobUnreadable(
        sha256,
        f"{kind.name} {place} cannot be read: {error.strerror}: delete it and restore a copy; "
        f"without it {kind.without}",
    )


def checked(kind: BlobKind, sha256: str, place: str, content: bytes) -> bytes:
    """Return `content` if it has this sha256. Raises BlobCorrupt if it has another one."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise BlobCorrupt(
            sha256,
            f"{kind.name} {place} has {len(content)} bytes with sha256 {found}, which is not its name: "
            f"delete it and restore a copy; without it {kind.without}",
        )
    return content


def write_whole(path: Path, content: bytes, *, is_synced: bool = False) -> None:
    """Write a file so that no reader sees a part of it.

    is_synced   return only when the file and its name are on the disk itself (fsync)

    Raises StoreUnavailable, and StoreBusy if the disk is full; then no temporary file is left.
    """
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
            temporary = Path(file.name)
            file.write(content)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if is_synced:
            sync_path(path.parent)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise unavailable(path, error) from error


def sync_path(path: Path) -> None:
    """Write a file, or the names of the files in a folder, to the disk itself (fsync). Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unavailable(path: Path, error: OSError) -> StoreUnavailable:
    kind = StoreBusy if error.errno in FULL_DISK else BlobsUnavailable
    return kind(
        f"{path} cannot be read or written: {error.strerror} (errno {error.errno}): "
        "free space there, correct the permissions of the folder, or check its disk and mount it again"
    )
