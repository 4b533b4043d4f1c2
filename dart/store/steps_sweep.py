"""Deletes the blobs of steps that no row of the record names and that no sender can still report.

An environment stores the steps of an episode as a blob and then reports the blob to the store actor. If the
environment is killed in between, or its lease has ended, no row ever names the blob. After a parked episode
is continued, no row names its earlier blob any more. A blob stays as long as the environment that stored it
may still report it: until the leases that were held when the blob was stored have ended, and an hour more.
The hour allows for reports without a lease and for clocks that differ.

One sweep looks at one shard of the blobs, so that its work is bounded. `SHARDS` sweeps look at all blobs.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain

from dart.store.blobs import READERS, BlobEntry, BlobStore, read_each

SPARED_S = 3600.0
"""Age in seconds below which a blob is never deleted."""

SWEEP_S = 0.5
"""Seconds after which a sweep begins no further deletion. The store actor sweeps in a message handler: with
the 7.4 s that one request to object storage may take, this is less than its hang deadline, 8 s."""

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
    monotonic_s: Callable[[], float] = time.monotonic,
) -> int:
    """Delete the blobs of a shard that were stored before `before_unix_s` and that no row names.

    What is not deleted within `SWEEP_S` is left for the next sweep of the shard.

    unnamed   returns those of the given blobs that no row names

    Returns how many blobs were deleted. The caller must ensure that no row is written meanwhile.
    """
    ends_s = monotonic_s() + SWEEP_S
    old = old_entries(blobs.entries(shard), before_unix_s)
    doomed = sorted(chain.from_iterable(map(unnamed, _parts(old, ASKED_AT_ONCE))))
    deleted = 0
    for part in _parts(doomed, READERS):
        if monotonic_s() >= ends_s:
            break
        deleted += len(read_each(blobs, blobs.delete, part))
    return deleted


def _parts(whole: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The parts of a sequence with `size` items each; the last part may have less."""
    return (whole[start : start + size] for start in range(0, len(whole), size))
