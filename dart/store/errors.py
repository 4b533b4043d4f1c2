"""What can go wrong with the record.

All errors but StoreConflict are also one of the errors of `dart.core.errors` that a person can correct.
"""

from dart.core.errors import DiskError, RunDirectoryError


class StoreError(Exception):
    """The durable record refused or failed; the message names the path and the remedy."""


class StoreUnavailable(StoreError, DiskError):
    """The file cannot be read or written now. Nothing of the failed call was kept."""


class StoreBusy(StoreUnavailable):
    """The disk has no room, or another process holds the lock: worth waiting for."""


class StoreTooOld(StoreError, RunDirectoryError):
    """The database was made before the first migration of this code."""


class StoreTooNew(StoreError, RunDirectoryError):
    """The database was made by a newer version of this code."""


class StoreConflict(StoreError):
    """The call contradicts the record. Nothing was changed."""


class BlobDamage(StoreError, DiskError):
    """A screenshot that the record names cannot be read."""

    def __init__(self, sha256: str, message: str) -> None:
        super().__init__(message)
        self.sha256 = sha256


class BlobMissing(BlobDamage):
    """A screenshot that the record names is not on disk."""


class BlobCorrupt(BlobDamage):
    """A screenshot's bytes do not have the sha256 that is its name."""
