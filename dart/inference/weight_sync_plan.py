"""Which rollout actor loads which policy version, and when. Pure: no actor, no clock.

Two ways through the pool:

    one at a time   a worker is out while it loads, the others answer; the oldest version goes first.
                    In a large pool a share at a time: else n loads would take longer than an update
    all at once     every worker holds, loads, and resumes when the last one is done (the coupled way)

Invariants, for any order of events:

* A sync never overlaps another: one at a time has one worker loading, or its share, all at once begins no
  round before the last one ended. So one at a time never takes out the last worker that serves, unless there
  is no other.
* A load decision is for the newest version at that moment. A newer version supersedes loads that wait; it
  never interrupts a worker that is loading.
* A worker that fails keeps its version. It is tried again after a wait that doubles, and at once when there
  is a newer version; no other worker waits for it.
* `required` only grows. It is the oldest version among workers that do not fail, so at the moment it grows
  some worker serves it; a worker with an older version is behind for a reason of its own.

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
    """This worker is to load the version; with `hold`, to answer nothing until a `ServeDecision`."""

    worker: str
    version: int
    hold: bool
    number: int
    """Counts all load decisions."""


@dataclass(frozen=True, slots=True)
class ServeDecision:
    """The round is over: this worker is to answer again."""

    worker: str
    version: int


@dataclass(slots=True)
class _Worker:
    version: int
    ticket: int
    """The number of its valid heap entry; entries with other numbers are out of date."""
    failures: int = 0
    """In a row."""


class SyncPlan:
    """The state of the workers, and the decisions that follow from it.

    Call a method for each event, carry out what `next_actions` returns, and report how the loads ended.
    """

    def __init__(self, *, all_at_once: bool = False, share: float = 0.0, version: int = -1) -> None:
        """share     of the workers that may load at a time, at least one
        version   the newest one that is published"""
        self._share = share
        self.target = version
        self.required = -1
        """The oldest version that may be served; -1 before any worker was seen."""
        self._is_all_at_once = all_at_once
        self._workers: dict[str, _Worker] = {}
        self._loading: dict[str, LoadDecision] = {}
        """The load that each worker is at: the sync in progress."""
        self._held: dict[str, bool] = {}
        """Workers that hold, in the order in which they will resume; True: loaded in this round."""
        self._idle: list[tuple[int, int, str]] = []
        """Heap of (version, ticket, worker)."""
        self._waiting_workers: list[tuple[float, int, str]] = []
        """Heap of (try again at, ticket, worker)."""
        self._tickets = itertools.count()
        self._healthy = _Tally()
        """Versions served by workers that do not fail."""

    # ---- what happened ----

    def published(self, version: int) -> None:
        """There is a new version; an older one changes nothing. Workers that failed may try it at once."""
        if version <= self.target:
            return
        self.target = version
        while self._waiting_workers:
            self._wake()

    def up(self, worker: str, version: int) -> None:
        """A worker runs and serves this version. No change for one that is known to, or that is loading."""
        known = self._workers.get(worker)
        if worker in self._loading or (known is not None and known.version == version):
            return
        if known is not None:
            self.down(worker)
        self._workers[worker] = _Worker(version, next(self._tickets))
        self._healthy.add(version)
        self._wait_idle(worker)
        if self._is_all_at_once:
            self._held[worker] = False  # it may hold since before a restart of weight_sync
        self._raise_required()

    def down(self, worker: str) -> None:
        """A worker does not run, or is silent: no other one waits for it any more."""
        self._not_loading(worker)
        self._workers.pop(worker, None)
        self._held.pop(worker, None)
        self._raise_required()

    def loaded(self, worker: str, version: int) -> None:
        """A worker has loaded this version and proved it, also after it was counted as down."""
        known = self._not_loading(worker)
        if known is None:
            return
        known.version, known.failures = version, 0
        self._healthy.add(version)
        self._wait_idle(worker)
        if self._is_all_at_once:
            self._held[worker] = True
        self._raise_required()

    def failed(self, load: LoadDecision, now_s: float) -> None:
        """A worker could not load the version and serves its old one; it is tried again later.

        The failure of an earlier load changes nothing: the worker has died or was taken for dead since.
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
        """The decisions that are due, in order; none while the limit of loads is reached."""
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
        return self._healthy.least()

    # ---- how ----

    @property
    def _most_at_once(self) -> int:
        """How many workers may load at a time; a round of all at once counts as one."""
        return 1 if self._is_all_at_once else max(1, int(self._share * len(self._workers)))

    def _not_loading(self, worker: str) -> _Worker | None:
        """End the load of a worker; it counts as healthy again when its version is known."""
        self._loading.pop(worker, None)
        known = self._workers.get(worker)
        if known is not None and not known.failures:
            self._healthy.remove(known.version)
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
        """Remove the idle worker with the oldest version from the heap, if that is not the newest version."""
        while self._idle and self._idle[0][0] < self.target:
            _, ticket, worker = heapq.heappop(self._idle)
            if self._is_current(ticket, worker):
                return worker
        return None

    def _raise_required(self) -> None:
        least = self._healthy.least()
        if least is not None:
            self.required = max(self.required, least)


class _Tally:
    """How many workers serve each version, and the oldest of these versions."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = defaultdict(int)
        self._versions: list[int] = []
        """Heap; versions without workers are removed when they come to the top."""

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
