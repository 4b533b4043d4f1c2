"""Which rollout actor is told to load which policy version, and when. Pure: no actor, no clock.

Two ways through the pool:

    one at a time   a worker is out while it loads, the others go on answering; the oldest version goes first.
                    Of many a share at a time, else a round of n loads would take longer than an update
    all at once     every worker holds, loads, and goes on when the last one is done (the coupled way)

What holds whatever happens, in any order:

* A sync never overlaps another: one at a time has one worker loading, or its share, all at once begins no
  round before the last one ended. So one at a time never takes out the last worker that serves, unless there
  is no other.
* A load that is told is of the newest version then. A newer one supersedes those that wait; it never
  interrupts a worker that is loading.
* A worker that fails is left where it is, tried again after a while that doubles, and at once when there is
  a newer version; nobody waits for it.
* `required` only grows. It is the oldest version among workers that do not fail, so at the moment it grows
  some worker serves it; whoever serves an older one from then on is behind for a reason of its own.

Every event costs O(log n) for n workers, a round O(n log n).
"""

import heapq
import itertools
from collections import defaultdict
from dataclasses import dataclass

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 15.0


@dataclass(frozen=True, slots=True)
class LoadDecision:
    """Tell this worker to take the version over; with `hold`, to answer nothing until `ServeDecision`."""

    worker: str
    version: int
    hold: bool
    number: int
    """Of all loads that were told."""


@dataclass(frozen=True, slots=True)
class ServeDecision:
    """Tell this worker that the round is over."""

    worker: str
    version: int


@dataclass(slots=True)
class _Worker:
    version: int
    ticket: int
    """Of its entry in a heap; an entry with another ticket says what was and counts no more."""
    failures: int = 0
    """In a row."""


class SyncPlan:
    """What is known of the workers, and what follows from it.

    Tell it what happens, then ask `next_actions`; carry those out and tell it how they ended.
    """

    def __init__(self, *, all_at_once: bool = False, share: float = 0.0, version: int = -1) -> None:
        """share     of the workers that may load at a time, at least one
        version   the newest one that is published"""
        self._share = share
        self.target = version
        self.required = -1
        """Nothing older may be served any more; -1 before any worker was seen."""
        self._is_all_at_once = all_at_once
        self._workers: dict[str, _Worker] = {}
        self._loading: dict[str, LoadDecision] = {}
        """What each worker was told to load: the sync in progress."""
        self._held: dict[str, bool] = {}
        """To be told to go on, in this order, when nobody is loading any more; whether it loaded just now."""
        self._idle: list[tuple[int, int, str]] = []
        """Heap of (version, ticket, worker)."""
        self._waiting_workers: list[tuple[float, int, str]] = []
        """Heap of (try again at, ticket, worker)."""
        self._tickets = itertools.count()
        self._well = _Tally()
        """Versions served by workers that do not fail."""

    # ---- what happened ----

    def published(self, version: int) -> None:
        """There is a new version; an older one changes nothing. Who failed at the last may try at once."""
        if version <= self.target:
            return
        self.target = version
        while self._waiting_workers:
            self._wake()

    def up(self, worker: str, version: int) -> None:
        """It runs and serves this version. Says nothing new of one that is known to, or that is loading."""
        known = self._workers.get(worker)
        if worker in self._loading or (known is not None and known.version == version):
            return
        if known is not None:
            self.down(worker)
        self._workers[worker] = _Worker(version, next(self._tickets))
        self._well.add(version)
        self._wait_idle(worker)
        if self._is_all_at_once:
            self._held[worker] = False  # it may hold since a round nobody remembers
        self._raise_required()

    def down(self, worker: str) -> None:
        """It does not run, or gives no sign of life. Nobody waits for it any more."""
        self._not_loading(worker)
        self._workers.pop(worker, None)
        self._held.pop(worker, None)
        self._raise_required()

    def loaded(self, worker: str, version: int) -> None:
        """It took this version over and proved it, even if nobody waited for that any more."""
        known = self._not_loading(worker)
        if known is None:
            return
        known.version, known.failures = version, 0
        self._well.add(version)
        self._wait_idle(worker)
        if self._is_all_at_once:
            self._held[worker] = True
        self._raise_required()

    def failed(self, load: LoadDecision, now_s: float) -> None:
        """The worker could not take the version over and serves what it did; it is tried again later.

        The failure of an earlier load, of a worker that died or was taken for dead since, changes nothing.
        """
        if self._loading.get(load.worker) != load:
            return
        worker, known = load.worker, self._not_loading(load.worker)
        assert known is not None, "who is loading is known"
        known.failures += 1
        known.ticket = next(self._tickets)
        rest_s = min(FIRST_RETRY_S * 2.0 ** min(known.failures - 1, 10), LONGEST_RETRY_S)
        heapq.heappush(self._waiting_workers, (now_s + rest_s, known.ticket, worker))
        self._raise_required()

    # ---- what to do ----

    def next_actions(self, now_s: float) -> list[LoadDecision | ServeDecision]:
        """What to do now, in this order; nothing while as many load as may."""
        while self._waiting_workers and self._waiting_workers[0][0] <= now_s:
            self._wake()
        if len(self._loading) >= self._most_at_once:
            return []
        actions: list[LoadDecision | ServeDecision] = [
            ServeDecision(worker, self._workers[worker].version) for worker in self._held
        ]
        self._held.clear()
        while (worker := self._pop_stale()) is not None:
            load = LoadDecision(worker, self.target, hold=self._is_all_at_once, number=next(self._tickets))
            self._loading[worker] = load
            actions.append(load)
            if not self._is_all_at_once and len(self._loading) >= self._most_at_once:
                break
        return actions

    def updating(self, worker: str) -> int | None:
        """The version it is loading, or has loaded and holds for the others; None when it does neither."""
        if self._loading and self._held.get(worker):
            return self._workers[worker].version
        load = self._loading.get(worker)
        return None if load is None else load.version

    @property
    def oldest_served(self) -> int | None:
        """The oldest version of workers that do not fail; None when there is none."""
        return self._well.least()

    # ---- how ----

    @property
    def _most_at_once(self) -> int:
        """How many may be loading before the next one has to wait; a round of all is one whole."""
        return 1 if self._is_all_at_once else max(1, int(self._share * len(self._workers)))

    def _not_loading(self, worker: str) -> _Worker | None:
        """Its load is over; until it is said what it serves now, it does not count among the well."""
        self._loading.pop(worker, None)
        known = self._workers.get(worker)
        if known is not None and not known.failures:
            self._well.remove(known.version)
        return known

    def _is_current(self, ticket: int, worker: str) -> bool:
        known = self._workers.get(worker)
        return known is not None and known.ticket == ticket

    def _wait_idle(self, worker: str) -> None:
        known = self._workers[worker]
        known.ticket = next(self._tickets)
        heapq.heappush(self._idle, (known.version, known.ticket, worker))

    def _wake(self) -> None:
        _, ticket, worker = heapq.heappop(self._waiting_workers)
        if self._is_current(ticket, worker):
            self._wait_idle(worker)

    def _pop_stale(self) -> str | None:
        """The worker with the oldest version that is older than the newest one, out of the idle ones."""
        while self._idle and self._idle[0][0] < self.target:
            _, ticket, worker = heapq.heappop(self._idle)
            if self._is_current(ticket, worker):
                return worker
        return None

    def _raise_required(self) -> None:
        least = self._well.least()
        if least is not None:
            self.required = max(self.required, least)


class _Tally:
    """How many workers serve each version, and the least of them."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = defaultdict(int)
        self._versions: list[int] = []
        """Heap; versions nobody serves any more leave it when they come to the top."""

    def add(self, version: int) -> None:
        if not self._counts[version]:
            heapq.heappush(self._versions, version)
        self._counts[version] += 1

    def remove(self, version: int) -> None:
        self._counts[version] -= 1

    def least(self) -> int | None:
        while self._versions and not self._counts[self._versions[0]]:
            self._counts.pop(heapq.heappop(self._versions), None)
        return self._versions[0] if self._versions else None
