"""A folder of one machine in front of blobs that are elsewhere. All processes of the machine share it.

It holds at most so many bytes: a blob is added under a lock, its size is counted before, and the blobs that
were used longest ago are removed if there is no room. A file is used by reading it, which sets its time. A
process that is killed leaves the count too high at worst; the next removal counts anew. A damaged file is
fetched again.
"""

import fcntl
import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dart.core.run_directory import make_private
from dart.store.blobs import BlobEntry, BlobKind, BlobStore, FolderBlobs
from dart.store.errors import BlobDamage, StoreUnavailable

COUNT = struct.Struct("<q")
"""The bytes that are in the cache."""

FILLED_AFTER_REMOVAL = 0.9
"""Share of the bound that stays filled when blobs are removed, so that not every blob removes another."""


class _File(NamedTuple):
    used_unix_s: float
    size_bytes: int
    path: Path


class CacheFolder:
    """A folder with a bound in bytes for all that is below it."""

    def __init__(self, root: Path, most_bytes: int) -> None:
        self.root, self.most_bytes = root, most_bytes

    def add(self, path: Path, size_bytes: int, write: Callable[[], object]) -> None:
        """Have a file written, unless it is there or larger than the cache. Raises OSError.

        write   writes the file; other processes wait meanwhile
        """
        if size_bytes > self.most_bytes:
            return
        with self._locked() as count:
            if path.exists():
                return
            held = _read(count)
            if held + size_bytes > self.most_bytes:
                held = self._remove_down_to(int(FILLED_AFTER_REMOVAL * self.most_bytes) - size_bytes)
            os.pwrite(count, COUNT.pack(held + size_bytes), 0)
            write()

    @contextmanager
    def _locked(self) -> Iterator[int]:
        if not self.root.exists():
            make_private(self.root)
        descriptor = os.open(self.root / "count", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _remove_down_to(self, size_bytes: int) -> int:
        """Remove the files that were used longest ago; returns how many bytes are left."""
        files = sorted(self._files())
        held = sum(file.size_bytes for file in files)
        for file in files:
            if held <= size_bytes:
                break
            file.path.unlink(missing_ok=True)
            held -= file.size_bytes
        return held

    def _files(self) -> Iterator[_File]:
        for path in self.root.glob("*/??/*"):
            with suppress(FileNotFoundError):
                about = path.stat()
                yield _File(about.st_mtime, about.st_size, path)


def _read(count: int) -> int:
    found = os.pread(count, COUNT.size, 0)
    return int(COUNT.unpack(found)[0]) if len(found) == COUNT.size else 0


class CachedBlobs:
    """Blobs of another place, read through a cache folder. Can be pickled."""

    def __init__(self, blobs: BlobStore, folder: CacheFolder, kind: BlobKind, *, puts_once: bool) -> None:
        """
        puts_once   whether a blob that is in the cache and in its place need not be put: nothing deletes
                    blobs of this kind
        """
        self._blobs, self._folder, self._puts_once = blobs, folder, puts_once
        self._kept = FolderBlobs(folder.root / kind.prefix, replace(kind, is_synced=False))
        self.is_remote = blobs.is_remote

    def place(self, sha256: str) -> str:
        return self._blobs.place(sha256)

    def put(self, content: bytes) -> str:
        if self._puts_once and (known := self._held(content)):
            return known
        sha256 = self._blobs.put(content)
        self._keep(content)
        return sha256

    def _held(self, content: bytes) -> str:
        """The sha256 of bytes that need not be put; empty if they must be.

        The cache may be one of an earlier run, whose blobs were elsewhere, so that it alone proves nothing.
        """
        with suppress(StoreUnavailable):
            held = self._kept.held(content)
            return held if held and self._blobs.exists(held) else ""
        return ""

    def read(self, sha256: str) -> bytes:
        with suppress(BlobDamage, StoreUnavailable):  # a cache that fails is as one that is empty
            content = self._kept.read(sha256)
            self._kept.touch(sha256)
            return content
        content = self._blobs.read(sha256)
        self._forget(sha256)  # a damaged one
        self._keep(content)
        return content

    def _keep(self, content: bytes) -> None:
        """Add a blob to the cache, unless the disk has no room for it."""
        path = self._kept.path(hashlib.sha256(content).hexdigest())
        with suppress(StoreUnavailable, OSError):
            self._folder.add(path, len(content), lambda: self._kept.put(content))

    def _forget(self, sha256: str) -> None:
        with suppress(StoreUnavailable):
            self._kept.delete(sha256)

    def exists(self, sha256: str) -> bool:
        return self._blobs.exists(sha256)

    def delete(self, sha256: str) -> None:
        self._blobs.delete(sha256)
        self._forget(sha256)

    def entries(self, shard: int) -> Iterator[BlobEntry]:
        return self._blobs.entries(shard)
