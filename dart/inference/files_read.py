"""Reads the weight files of a checkpoint ahead, so that loading them later finds them in memory."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dart.core.errors import DiskError
from dart.inference.tensor_layout import weight_files
from dart.store.checkpoints import HASHERS

Identity = tuple[int, int, int, int]
"""Device, inode, size in bytes and time of the last change (nanoseconds) of a file."""


class FilesChanged(DiskError):
    """A weight file was changed or replaced after it was read and hashed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRead:
    """Weight files that were read and hashed once. The operating system then has them in its page cache."""

    files: tuple[Path, ...]
    hashes: Mapping[str, str]
    """The sha256 of each file, by the name of the file."""
    identities: Mapping[Path, Identity]

    @classmethod
    def of(cls, folder: Path) -> "FilesRead":
        """Read and hash the weight files of a folder, several at a time. Raises OSError or OtherLayout."""
        files = weight_files(folder)
        with ThreadPoolExecutor(max_workers=HASHERS) as readers:
            found = list(readers.map(_read, files))
        return cls(
            files=files,
            hashes={file.name: sha256 for file, (sha256, _) in zip(files, found, strict=True)},
            identities={file: identity for file, (_, identity) in zip(files, found, strict=True)},
        )

    def refuse_changes(self) -> None:
        """Raise FilesChanged if a file is no longer the one that was hashed."""
        changed = [*_changed(self.identities)]
        if changed:
            raise FilesChanged(
                f"{changed[0]} was changed or replaced after it was read and checked; a published version "
                "must not be changed: find out which other program writes there"
            )


def _changed(identities: Mapping[Path, Identity]) -> Iterable[Path]:
    for file, before in identities.items():
        try:
            now = _identity(file.stat())
        except FileNotFoundError:
            yield file
        else:
            if now != before:
                yield file


def _read(path: Path) -> tuple[str, Identity]:
    with path.open("rb") as file:
        identity = _identity(os.fstat(file.fileno()))
        return hashlib.file_digest(file, "sha256").hexdigest(), identity


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
