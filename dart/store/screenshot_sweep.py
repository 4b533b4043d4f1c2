"""Deletes the screenshots that are old and that nothing needs any more (`run.screenshots_kept_days`).

A screenshot is old if it was last put more than that many days ago. Every environment step puts the
screenshot that it shows, so a picture that several episodes show has the age of the newest of them. An old
screenshot stays as long as anything that may still be trained or played names it: a live group, a parked
episode, a demonstration in use, or a screen of an exploration.

Rows that are written during a sweep need no protection. They name screenshots that were put lately, or they
take the place of rows that named the same ones. If an environment puts a picture again in the very moment in
which it is deleted, the picture is lost, which costs the group that shows it.

A sweep looks at one shard, in a thread of the store actor. A kill at any moment leaves nothing to repair: the
record has said before which groups may lack screenshots, and the next sweep of the shard deletes the rest.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from dart.store.blobs import READERS, read_each
from dart.store.run_blobs import RunBlobs
from dart.store.serialization import screenshots_in

LONGEST_S = 20.0
"""Seconds after which a sweep begins no further request. The search for the first old screenshots does not
count. A store that is at a sweep for half of `curation.starved_after_s`, 30 s by default, would count as the
cause of a stall."""


@dataclass(frozen=True, slots=True)
class ScreenshotsKept:
    """What a sweep must not delete."""

    since_unix_s: float
    """Screenshots that were put at this moment or later stay."""
    steps: frozenset[str]
    """The sha256 of steps whose screenshots stay."""
    named: frozenset[str]
    """The sha256 of further screenshots that stay."""


class ScreenshotSweeper:
    """Sweeps shards of the screenshots of a run. It remembers what the steps show that are still needed."""

    def __init__(self, blobs: RunBlobs, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._blobs, self._monotonic_s = blobs, monotonic_s
        self._shown: dict[str, frozenset[str]] = {}
        """The screenshots that needed steps show, by the sha256 of the steps."""

    def sweep(self, shard: int, kept: ScreenshotsKept) -> int:
        """Delete the old screenshots of a shard that are not kept; returns how many.

        What takes too long is left for the next sweep. Nothing is deleted before all needed steps were read.
        Raises BlobDamage, ValueError or StoreUnavailable if some of them cannot be read.
        """
        ends_s = self._monotonic_s() + LONGEST_S
        if not self._has_read(kept.steps, ends_s):
            return 0
        old = self._old(shard, kept.since_unix_s, kept.named.union(*self._shown.values()))
        began_s = self._monotonic_s()
        part = list(islice(old, READERS))  # object storage lists the whole shard for them
        ends_s += self._monotonic_s() - began_s
        deleted = 0
        while part and self._monotonic_s() < ends_s:
            deleted += len(read_each(self._blobs.screenshots, self._blobs.screenshots.delete, part))
            part = list(islice(old, READERS))
        return deleted

    def _has_read(self, steps: frozenset[str], ends_s: float) -> bool:
        """Read which screenshots these steps show; returns whether all are read. Each is read only once."""
        self._shown = {sha256: self._shown[sha256] for sha256 in steps & self._shown.keys()}
        unread = iter(steps - self._shown.keys())
        while part := list(islice(unread, READERS)):
            if self._monotonic_s() >= ends_s:
                return False
            read = read_each(self._blobs.steps, self._blobs.steps.read, part)
            self._shown |= {sha256: screenshots_in(packed) for sha256, packed in read.items()}
        return True

    def _old(self, shard: int, since_unix_s: float, named: frozenset[str]) -> Iterator[str]:
        """The screenshots to delete. The age of each is looked at just before the caller takes it."""
        for entry in self._blobs.screenshots.entries(shard):
            if entry.put_unix_s < since_unix_s and entry.sha256 not in named:
                yield entry.sha256
