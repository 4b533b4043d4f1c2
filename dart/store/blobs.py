"""The bytes of a run, each named by its sha256: screenshots and the packed steps of episodes.

Messages and rows hold the sha256, never a path, so that any machine can find the bytes in its own way.
`dart.store.run_blobs` chooses where they are kept. Here they are files of a folder, which all processes of
one machine share.

A file is written beside its place and then renamed, so that a reader sees all of it or nothing, and two
writers of the same content do no harm. What a process has written outlives the process. Steps are also synced
to the disk, because the record names them: a crash of the machine must not leave a row without its steps.
Screenshots are not: there are many more of them, and a lost one costs only the groups that show it.
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

from dart.core.run_directory import make_private
from dart.store.errors import BlobCorrupt, BlobMissing, StoreBusy, StoreUnavailable

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

SHARDS = 256
"""Number of the parts of a store: a blob is in the part of the first byte of its sha256."""

READERS = 16
"""Number of blobs that are read at once from another machine."""

T = TypeVar("T")

SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobKind:
    """What the blobs of one store are."""

    name: str
    """As messages call one of them."""
    folder: str
    """Their place below the folder `blobs` of a run."""
    prefix: str
    """Their place in object storage and in a cache."""
    suffix: str
    without: str
    """What is lost without one of them."""
    is_synced: bool = False
    """Whether a file is written to the disk itself before `put` returns."""


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
    """When it was put last, by the clock of the machine that keeps it."""


class BlobStore(Protocol):
    """Content-addressed bytes of one kind. Any number of processes may share them."""

    is_remote: bool
    """Whether calls wait for another machine, so that an actor makes them in a thread."""

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
        """Where a blob is, for people: a path or an address."""


class FolderBlobs:
    """Files <root>/ab/abcd….png of one machine, whether or not the folder exists yet."""

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

        A blob that is stored already is written again only if its file has another size. A sweep then sees it
        as new: its time is set to now.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        path = self.path(sha256)
        if not self._is_renewed(path, len(content)):
            self._make_folder(path.parent)
            write_whole(path, content, is_synced=self.kind.is_synced)
        return sha256

    def held(self, content: bytes) -> str:
        """The sha256 of bytes that are stored, as a file of their size; empty if they are not."""
        sha256 = hashlib.sha256(content).hexdigest()
        return sha256 if self._is_renewed(self.path(sha256), len(content)) else ""

    def touch(self, sha256: str) -> None:
        """Set the time of a blob to now, if it is stored and the disk lets it."""
        with suppress(OSError):
            os.utime(self.path(sha256))

    def _is_renewed(self, path: Path, size_bytes: int) -> bool:
        """Whether a whole file exists; a crash of the machine can cut a file."""
        try:
            if path.stat().st_size != size_bytes:
                return False
            os.utime(path)
        except FileNotFoundError:
            return False
        except OSError as error:
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
        """Write the name of a new folder to the disk itself, and those of the folders above it."""
        for named_in in (self.root, self.root.parent, self.root.parent.parent):
            sync_folder(named_in)

    def read(self, sha256: str) -> bytes:
        path = self.path(sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise missing(self.kind, sha256, str(path)) from error
        except OSError as error:
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
        for path in (self.root / f"{shard:02x}").glob(f"*{self.kind.suffix}"):
            if SHA256.fullmatch(path.stem):
                try:
                    yield BlobEntry(path.stem, path.stat().st_mtime)
                except FileNotFoundError:
                    continue  # deleted meanwhile

    def remove_leftovers(self) -> None:
        """Remove the temporary files of killed writers. Call it only while no process writes."""
        for left_over in self.root.glob("??/.*.part"):
            left_over.unlink()


def read_each(blobs: BlobStore, read: Callable[[str], T], sha256s: Collection[str]) -> dict[str, T]:
    """What `read` returns for each blob, by its sha256: many at once if they are on another machine."""
    if not blobs.is_remote:
        return {sha256: read(sha256) for sha256 in sha256s}
    from concurrent.futures import ThreadPoolExecutor  # commands of one machine start faster without it

    with ThreadPoolExecutor(READERS) as pool:
        return dict(zip(sha256s, pool.map(read, sha256s), strict=True))


def missing(kind: BlobKind, sha256: str, place: str) -> BlobMissing:
    """The error for a blob that is not where it should be."""
    return BlobMissing(
        sha256,
        f"{kind.name} {place} is missing: restore it from a copy of the run's blobs; "
        f"without it {kind.without}",
    )


def checked(kind: BlobKind, sha256: str, place: str, content: bytes) -> bytes:
    """Return the bytes of a blob. Raises BlobCorrupt if they have another sha256."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise BlobCorrupt(
            sha256,
            f"{kind.name} {place} has {len(content)} bytes with sha256 {found}: delete it and restore a "
            f"copy; without it {kind.without}",
        )
    return content


def write_whole(path: Path, content: bytes, *, is_synced: bool = False) -> None:
    """Write a file so that no reader sees a part of it. Raises StoreUnavailable, leaving nothing behind.

    is_synced   return only when the disk itself has the file and its name
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
            sync_folder(path.parent)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise unavailable(path, error) from error


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk itself. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unavailable(path: Path, error: OSError) -> StoreUnavailable:
    kind = StoreBusy if error.errno in NO_ROOM else StoreUnavailable
    return kind(
        f"{path} cannot be read or written: {error.strerror} (errno {error.errno}): "
        "free space there, or fix the rights of the folder"
    )
