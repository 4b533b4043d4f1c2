"""What can go wrong with the record.

All errors but StoreConflict are also one of the errors of `dart.core.errors` that a person can correct.
"""

from dart.core.errors import DiskError, RunDirectoryError


class StoreError(Exception):
    """Base class of the errors of the record. The message names the path and the remedy."""


class StoreUnavailable(StoreError, DiskError):
    """A file cannot be read or written: disk full, locked, damaged. Nothing of the call was kept."""


class StoreBusy(StoreUnavailable):
    """The disk is full, another process holds the lock, or the server is away. This passes: try again."""


class StoreTooOld(StoreError, RunDirectoryError):
    """The database was made by a version of dartrl that is too old for this one to read."""


class StoreTooNew(StoreError, RunDirectoryError):
    """The database was made by a newer version of dartrl than this one."""


class StoreTakenOver(StoreError, RunDirectoryError):
    """Another process has become the writer of the record. Nothing of the call was kept."""


class StoreConflict(StoreError):
    """The call contradicts the record, because of a defect or a second writer. Nothing was changed."""


class BlobDamage(StoreError, DiskError):
    """A screenshot that the record names cannot be read."""

    def __init__(self, sha256: str, message: str) -> None:
        super().__init__(message)
        self.sha256 = sha256


class BlobMissing(BlobDamage):
    """A screenshot that the record names is not on disk."""


class BlobCorrupt(BlobDamage):
    """A screenshot's bytes do not have the sha256 that is its name."""
