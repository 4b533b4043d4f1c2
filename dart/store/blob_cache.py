"""A cache folder on one machine for blobs that are kept elsewhere. All processes of the machine share it.

The cache has an upper bound in bytes. A process adds a blob under a lock and counts its size before it writes
the blob. If there is no room, it first removes blobs that were used longest ago. Reading a file counts as
using it and sets its modification time. If a process is killed, the count is at worst too high by one blob. A
damaged file is fetched again.

The store actor uses the cache in message handlers, so no call takes long. A process that finds the lock held
leaves its blob out of the cache. A removal looks at `LOOKED_AT` files at most. In a larger cache these are
files of random folders, and the oldest of them go. The count of such a cache is not made anew: if a person
deletes a part of it, what is left is smaller than the bound from then on.
"""

import fcntl
import hashlib
import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from dart.core.run_directory import make_private
from dart.store.blobs import BlobEntry, BlobKind, BlobStore, FolderBlobs
from dart.store.errors import BlobDamage, StoreUnavailable

COUNT = struct.Struct("<q")
"""Format of the file `count`, which holds the number of bytes in the cache."""

LOOKED_AT = 10_000
"""Largest number of files that a removal looks at, which takes some 0.2 s."""

REMOVED = 0.1
"""Share of the looked-at bytes that a removal removes, so that not every further blob causes a removal."""


class _File(NamedTuple):
    used_unix_s: float
    size_bytes: int
    path: Path


class CacheFolder:
    """A folder whose files have at most `most_bytes` bytes together."""

    def __init__(self, root: Path, most_bytes: int) -> None:
        self.root, self.most_bytes = root, most_bytes

    def add(self, path: Path, size_bytes: int, write: Callable[[], object]) -> None:
        """Make room for the file `path` of `size_bytes` and call `write`, which writes the file.

        Does nothing if the file exists, or if no room could be made. Raises BlockingIOError if another
        process adds or removes a file at the moment, and other kinds of OSError.
        """
        if size_bytes > self.most_bytes:
            return
        with self._locked() as count:
            if path.exists():
                return
            if _read(count) + size_bytes > self.most_bytes:
                self._make_room(count, size_bytes)
            if (held := _read(count) + size_bytes) <= self.most_bytes:
                _write(count, held)
                write()

    def remove(self, path: Path) -> None:
        """Remove a file. Its size stays counted if another process adds or removes a file at the moment.

        Raises OSError, also if the file does not exist.
        """
        size_bytes = path.stat().st_size
        path.unlink()
        with self._locked() as count:
            _write(count, max(0, _read(count) - size_bytes))

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock of the cache and open its count. Raises BlockingIOError if the lock is held."""
        if not self.root.exists():
            make_private(self.root)
        descriptor = os.open(self.root / "count", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        finally:
            os.close(descriptor)

    def _make_room(self, count: int, size_bytes: int) -> None:
        """Remove those of `LOOKED_AT` files that were used longest ago: a share, or more to fit `size_bytes`.

        If the cache has fewer files, they are also counted anew.
        """
        files = list(islice(self._files(), LOOKED_AT))
        looked_at = sum(file.size_bytes for file in files)
        held = _read(count) if len(files) == LOOKED_AT else looked_at
        left = min(self.most_bytes - size_bytes, held - int(REMOVED * looked_at))
        _write(count, held)
        for file in sorted(files):
            if held <= left:
                break
            file.path.unlink(missing_ok=True)
            held -= file.size_bytes
            _write(count, held)

    def _files(self) -> Iterator[_File]:
        """The files of the cache, one random folder after the other."""
        folders = list(self.root.glob("*/??"))
        random.shuffle(folders)
        for folder in folders:
            for path in folder.iterdir():
                with suppress(FileNotFoundError):
                    about = path.stat()
                    yield _File(about.st_mtime, about.st_size, path)


def _write(count: int, held_bytes: int) -> None:
    os.pwrite(count, COUNT.pack(held_bytes), 0)


def _read(count: int) -> int:
    found = os.pread(count, COUNT.size, 0)
    return int(COUNT.unpack(found)[0]) if len(found) == COUNT.size else 0


class CachedBlobs:
    """Blobs that are kept elsewhere, read through a cache folder of this machine. Can be pickled."""

    def __init__(self, blobs: BlobStore, folder: CacheFolder, kind: BlobKind, *, puts_once: bool) -> None:
        """
        blobs       the store that keeps the blobs
        folder      the cache
        puts_once   whether `put` skips a blob that is both in the cache and in `blobs`. True only where no
                    blob of the kind is ever deleted
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
        """The sha256 of `content` if the cache and the store both have it; else empty.

        The cache alone proves nothing: an earlier run, whose blobs were kept elsewhere, may have filled it.
        """
        with suppress(StoreUnavailable):
            held = self._kept.held(content)
            return held if held and self._blobs.exists(held) else ""
        return ""

    def read(self, sha256: str) -> bytes:
        with suppress(BlobDamage, StoreUnavailable):  # a cache that fails counts as an empty one
            content = self._kept.read(sha256)
            self._kept.touch(sha256)
            return content
        content = self._blobs.read(sha256)
        self._forget(sha256)  # a damaged copy
        self._keep(content)
        return content

    def _keep(self, content: bytes) -> None:
        """Add a blob to the cache, unless another process uses the cache or the disk has no room."""
        path = self._kept.path(hashlib.sha256(content).hexdigest())
        with suppress(StoreUnavailable, OSError):
            self._folder.add(path, len(content), lambda: self._kept.put(content))

    def _forget(self, sha256: str) -> None:
        with suppress(OSError):
            self._folder.remove(self._kept.path(sha256))

    def exists(self, sha256: str) -> bool:
        return self._blobs.exists(sha256)

    def delete(self, sha256: str) -> None:
        self._blobs.delete(sha256)
        self._forget(sha256)

    def entries(self, shard: int) -> Iterator[BlobEntry]:
        return self._blobs.entries(shard)
