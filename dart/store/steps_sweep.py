"""Deletes the blobs of steps that no row of the record names and that no sender can still report.

An environment stores the steps of an episode as a blob and then reports the blob to the store actor. If the
environment is killed in between, or its lease has ended, no row ever names the blob. After a parked episode
is continued, no row names its earlier blob any more. A blob stays as long as the environment that stored it
may still report it: until the leases that were held when the blob was stored have ended, and an hour more.
The hour allows for reports without a lease and for clocks that differ.

One sweep looks at one shard of the blobs, so that its work is bounded. `SHARDS` sweeps look at all blobs.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import chain

from dart.store.blobs import BlobEntry, BlobStore

SPARED_S = 3600.0
"""Age in seconds below which a blob is never deleted."""

MOST_DELETED = 100
"""Largest number of blobs that one sweep deletes: seconds of work with object storage."""

ASKED_AT_ONCE = 1000
"""Largest number of blobs in one query, because a database takes only some thousand values in one."""


def deletes_before_unix_s(now_unix_s: float, oldest_deadline_unix_s: float | None, lease_s: float) -> float:
    """The time before which a blob must have been stored, so that its sender holds no lease any more.

    oldest_deadline_unix_s   the earliest deadline of the leases that are held; None: none is held
    lease_s                  how long a lease lasts: it began this long before its deadline
    """
    if oldest_deadline_unix_s is None:
        return now_unix_s - SPARED_S
    return min(now_unix_s, oldest_deadline_unix_s - lease_s) - SPARED_S


def old_entries(entries: Iterable[BlobEntry], before_unix_s: float) -> list[str]:
    """The sha256 of each blob that was stored before `before_unix_s`."""
    return [entry.sha256 for entry in entries if entry.put_unix_s < before_unix_s]


def sweep(
    blobs: BlobStore,
    shard: int,
    before_unix_s: float,
    unnamed: Callable[[Collection[str]], Collection[str]],
) -> int:
    """Delete the blobs of a shard that were stored before `before_unix_s` and that no row names.

    unnamed   returns those of the given blobs that no row names

    Returns how many blobs were deleted, at most `MOST_DELETED`. The caller must ensure that no row is written
    meanwhile.
    """
    old = old_entries(blobs.entries(shard), before_unix_s)
    parts = (old[start : start + ASKED_AT_ONCE] for start in range(0, len(old), ASKED_AT_ONCE))
    doomed = sorted(chain.from_iterable(map(unnamed, parts)))[:MOST_DELETED]
    for sha256 in doomed:
        blobs.delete(sha256)
    return len(doomed)
