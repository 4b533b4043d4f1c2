"""Decides which engine loads which policy version, and when. Pure: no actor, no clock.

There are two ways to update the engines (`rollout.sync`):

    one at a time   one engine loads, while the others answer; the engine with the oldest version loads first.
                    If there are many engines, a share of them (`rollout.sync_share`) loads at the same time,
                    because loads one after the other would take longer than an update
    all at once     every engine stops answering, loads, and resumes when all have loaded. This is one round;
                    a coupled loop updates in rounds

Invariants, for any order of events:

* One at a time: at most one engine, or the share of the engines, is loading. So the last engine that serves
  never stops, unless it is the only one. All at once: a round begins only after the last one has ended.
* A load decision is for the version that is the newest when it is made. A newer version replaces loads that
  have not begun; it never interrupts an engine that is loading.
* An engine whose load failed keeps its version. It loads again after a wait that doubles with each failure,
  or at once when there is a newer version. No other engine waits for it.
* `required` only grows. It grows to the oldest version among the engines whose last load did not fail, so
  some engine serves it at that moment. An engine with an older version has failed to load, or was down.
"""

import itertools
import math
from dataclasses import dataclass

from supervision.backoff import backoff_s
from supervision.child_spec import Backoff

BACKOFF = Backoff(initial_s=0.5, max_s=15.0, jitter=0.0)
"""Waits before an engine loads again a version that it could not load."""


@dataclass(frozen=True, slots=True)
class LoadDecision:
    """The decision that an engine loads a version. With `hold`, it answers no request until a
    `ServeDecision`."""

    engine: str
    version: int
    hold: bool
    number: int
    """Number of this load decision, counted over all engines."""


@dataclass(frozen=True, slots=True)
class ServeDecision:
    """The decision that an engine that holds answers again, because the round is over."""

    engine: str


@dataclass(slots=True)
class _Engine:
    version: int
    failures: int = 0
    """Number of loads in a row that failed."""
    retry_at_s: float = -math.inf


class SyncPlan:
    """The versions and loads of the engines, and the decisions that follow from them.

    Call a method for each event, carry out what `next_actions` returns, and report how the loads ended.
    """

    def __init__(self, *, all_at_once: bool = False, share: float = 0.0, version: int = -1) -> None:
        """
        all_at_once   whether all engines load together, in rounds
        share         otherwise, the share of the engines that may load at the same time; at least one may
        version       the newest published version; -1: none yet
        """
        self._share = share
        self.target = version
        self.required = -1
        """The oldest version that may be served; -1 before any engine was seen."""
        self._is_all_at_once = all_at_once
        self._engines: dict[str, _Engine] = {}
        """The engines that are up, by name, in the order of their last change of state. Of engines with equal
        versions, the first one loads first."""
        self._loading: dict[str, LoadDecision] = {}
        """The loads in progress, by engine."""
        self._held: dict[str, bool] = {}
        """The engines that hold, in the order in which they will resume; True: has loaded in this round."""
        self._numbers = itertools.count()

    # ---- events ----

    def published(self, version: int) -> None:
        """Note a published version; an older one changes nothing. Engines that failed may load it at once."""
        if version > self.target:
            self.target = version
            for known in self._engines.values():
                known.retry_at_s = -math.inf

    def up(self, engine: str, version: int) -> None:
        """Note that an engine serves this version. Changes nothing if it is known or the engine loads."""
        known = self._engines.get(engine)
        if engine not in self._loading and (known is None or known.version != version):
            # This engine may hold because of a decision that weight_sync made before its restart.
            self._serves(engine, version, is_of_round=False)

    def down(self, engine: str) -> None:
        """Note that an engine does not run or is silent, so that no other engine waits for it."""
        if engine in self._engines:
            self._forget(engine)
            self._raise_required()

    def loaded(self, engine: str, version: int) -> None:
        """Note that an engine has loaded and proved this version. Changes nothing if the engine is down."""
        if engine in self._engines:
            self._serves(engine, version, is_of_round=True)

    def failed(self, load: LoadDecision, now_s: float) -> None:
        """Note that an engine could not load a version and still serves its old one. It loads again later.

        This changes nothing if the engine went down after the decision.
        """
        if self._loading.get(load.engine) != load:
            return
        known = self._engines[load.engine]
        self._forget(load.engine)
        failures = known.failures + 1
        retry_at_s = now_s + backoff_s(BACKOFF, failures, draw=0.5)
        self._engines[load.engine] = _Engine(known.version, failures, retry_at_s)
        self._raise_required()

    # ---- decisions ----

    def next_actions(self, now_s: float) -> list[LoadDecision | ServeDecision]:
        """Return the decisions that are due, in order; none while as many engines load as are allowed."""
        free = self._most_at_once - len(self._loading)
        if free <= 0:
            return []
        serves = [ServeDecision(engine) for engine in self._held]
        self._held.clear()
        stale = sorted(
            (name for name, known in self._engines.items() if self._is_due(name, known, now_s)),
            key=lambda name: self._engines[name].version,
        )
        chosen = stale if self._is_all_at_once else stale[:free]
        loads = {
            name: LoadDecision(name, self.target, hold=self._is_all_at_once, number=next(self._numbers))
            for name in chosen
        }
        self._loading |= loads
        return [*serves, *loads.values()]

    def updating(self, engine: str) -> int | None:
        """Return the version that an engine loads, or has loaded and holds until the round ends; or None."""
        if self._loading and self._held.get(engine):
            return self._engines[engine].version
        load = self._loading.get(engine)
        return None if load is None else load.version

    @property
    def oldest_served(self) -> int | None:
        """Oldest version of the engines that are up and did not fail their last load; None without any."""
        return min((known.version for known in self._engines.values() if not known.failures), default=None)

    # ---- internal ----

    @property
    def _most_at_once(self) -> int:
        """Largest number of loads in progress. All loads of one round count as a single load."""
        return 1 if self._is_all_at_once else max(1, int(self._share * len(self._engines)))

    def _is_due(self, name: str, known: _Engine, now_s: float) -> bool:
        return name not in self._loading and known.version < self.target and known.retry_at_s <= now_s

    def _serves(self, engine: str, version: int, *, is_of_round: bool) -> None:
        self._forget(engine)
        self._engines[engine] = _Engine(version)
        if self._is_all_at_once:
            self._held[engine] = is_of_round
        self._raise_required()

    def _forget(self, engine: str) -> None:
        self._loading.pop(engine, None)
        self._engines.pop(engine, None)
        self._held.pop(engine, None)

    def _raise_required(self) -> None:
        if (oldest := self.oldest_served) is not None:
            self.required = max(self.required, oldest)
