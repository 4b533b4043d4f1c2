"""The errors of the record and its blobs.

All but StoreError and StoreConflict also derive from an error of `dart.core.errors`, because a person can
correct them.
"""

from collections.abc import Iterable

from dart.core.errors import DiskError, RunDirectoryError


class StoreError(Exception):
    """Base class of the errors of the record. The message names the path and the remedy."""


class StoreUnavailable(StoreError, DiskError):
    """The record or a blob cannot be read or written: the disk is full, a file is locked or damaged, or a
    server refuses. Unless the message says otherwise, nothing of the call was kept."""


class StoreBusy(StoreUnavailable):
    """The disk is full, another process holds the lock, or a server does not answer.

    The cause is temporary: repeat the call.
    """


class BlobsBusy(StoreBusy):
    """The object storage of the blobs does not answer. This is temporary unless its address is wrong."""


class BlobsUnavailable(StoreUnavailable):
    """The disk or the object storage refuses a request for blobs until a person corrects the cause."""


class StoreTooOld(StoreError, RunDirectoryError):
    """The database was made by a version of dartrl that is too old for this one to read."""


class StoreTooNew(StoreError, RunDirectoryError):
    """The database was made by a newer version of dartrl than this one."""


class StoreTakenOver(StoreError, RunDirectoryError):
    """Another process has become the writer of the record. Nothing of the call was kept."""


class StoreConflict(StoreError):
    """The call contradicts the record, because of a defect or a second writer. Nothing was changed."""


class BlobDamage(StoreError, DiskError):
    """A screenshot, or the steps of an episode, that the record names cannot be read."""

    def __init__(self, sha256: str, message: str) -> None:
        super().__init__(message)
        self.sha256 = sha256


class BlobMissing(BlobDamage):
    """A blob that the record names is not stored."""


class BlobCorrupt(BlobDamage):
    """A blob's bytes do not have the sha256 that is its name."""


class BlobUnreadable(BlobCorrupt):
    """The disk fails to read a blob's bytes (EIO)."""


class StepsLost(StoreError, DiskError):
    """The steps of some episodes or demonstrations cannot be read; the attributes name their groups."""

    def __init__(self, group_ids: Iterable[int], pool_ids: Iterable[int], why: Iterable[BlobDamage]) -> None:
        """
        group_ids   the groups of these episodes and demonstrations
        pool_ids    the demonstrations among them
        why         the damaged blobs
        """
        super().__init__("; ".join(map(str, why)))
        self.group_ids, self.pool_ids = tuple(sorted(group_ids)), tuple(sorted(pool_ids))
