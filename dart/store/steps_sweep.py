"""Which blobs of steps can go: those that no row names and no sender can still report. Pure.

A sender stores the steps of an episode and then reports them. If it is killed in between, or its lease has
ended, no row ever names the blob. The same holds for steps of a parked episode that was continued. A blob
stays as long as an environment that stored it may still report it: until the leases that were held when it
was stored have ended, and an hour more, for reports without a lease and for clocks that differ.

One sweep looks at one shard of the blobs, so that its work is bounded; a round takes `SHARDS` sweeps.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import chain

from dart.store.blobs import BlobEntry, BlobStore

SPARED_S = 3600.0
"""Age of a blob before which it is never deleted, whoever stored it."""

MOST_DELETED = 100
"""Largest number of blobs that one sweep deletes: seconds of work with object storage."""

ASKED_AT_ONCE = 1000
"""Largest number of blobs in one question to the record, which takes no more than some thousand values."""


def deletes_before_unix_s(now_unix_s: float, oldest_deadline_unix_s: float | None, lease_s: float) -> float:
    """The time before which a blob without a row was stored by no one who still holds a lease.

    oldest_deadline_unix_s   the earliest deadline of the leases that are held; None: none is held
    lease_s                  how long a lease lasts, so that its beginning is known
    """
    if oldest_deadline_unix_s is None:
        return now_unix_s - SPARED_S
    return min(now_unix_s, oldest_deadline_unix_s - lease_s) - SPARED_S


def old_entries(entries: Iterable[BlobEntry], before_unix_s: float) -> list[str]:
    """sha256 of the blobs that were stored before a moment."""
    return [entry.sha256 for entry in entries if entry.put_unix_s < before_unix_s]


def sweep(
    blobs: BlobStore,
    shard: int,
    before_unix_s: float,
    unnamed: Callable[[Collection[str]], Collection[str]],
) -> int:
    """Delete the blobs of a shard that are older than a moment and that no row names; returns how many.

    unnamed   returns those of some blobs that no row names; the caller sees to it that no row is written
              meanwhile
    """
    old = old_entries(blobs.entries(shard), before_unix_s)
    parts = (old[start : start + ASKED_AT_ONCE] for start in range(0, len(old), ASKED_AT_ONCE))
    doomed = sorted(chain.from_iterable(map(unnamed, parts)))[:MOST_DELETED]
    for sha256 in doomed:
        blobs.delete(sha256)
    return len(doomed)
