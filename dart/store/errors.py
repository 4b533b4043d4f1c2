"""What can go wrong with the record.

    StoreError
    ├── StoreUnavailable   the file cannot be read or written now (disk full, locked, damaged)
    │   └── StoreBusy      the disk is full or the lock is held: it passes, wait and try again
    ├── StoreTooOld        the database was made before the first migration of this code
    ├── StoreTooNew        the database was made by a newer version of this code
    ├── StoreConflict      the call contradicts the record: a defect, or a second writer
    └── BlobDamage         a screenshot that the record names cannot be read
        ├── BlobMissing    it is not on disk
        └── BlobCorrupt    its bytes are not those its name promises

All but StoreConflict are also one of the errors of `dart.core.errors` that a person can do something about.
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
