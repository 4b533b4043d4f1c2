"""Which engine loads which policy version, and when. Pure: no actor, no clock.

There are two ways to update the engines (`rollout.sync`):

    one at a time   one engine loads and answers nothing, while the others answer; the engine with the oldest
                    version loads first. Of many engines a share loads at a time, because the loads one after
                    the other would take longer than an update
    all at once     every engine stops answering, loads, and resumes when all have loaded (the coupled way)

Invariants, for any order of events:

* Syncs do not overlap: one at a time, no more than one engine, or the share, is loading; all at once, no
  round begins before the last one ended. So one at a time never stops the last engine that serves, unless
  there is only one.
* A load decision is for the newest version at that moment. A newer version replaces loads that have not
  begun; it never interrupts an engine that is loading.
* An engine whose load failed keeps its version. It loads again after a wait that doubles with each failure,
  and at once when there is a newer version; no other engine waits for it.
* `required` only grows. It is the oldest version among the engines whose last load did not fail, so at the
  moment it grows some engine serves it; an engine with an older version has failed, or was away.
"""

import itertools
import math
from dataclasses import dataclass

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 15.0


@dataclass(frozen=True, slots=True)
class LoadDecision:
    """An engine is to load a version; with `hold`, it answers nothing until a `ServeDecision`."""

    engine: str
    version: int
    hold: bool
    number: int
    """Number of this load decision, counted over all engines."""


@dataclass(frozen=True, slots=True)
class ServeDecision:
    """An engine that was told to hold is to answer again, because the round is over."""

    engine: str
    version: int


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
        """share     share of the engines that may load at a time; at least one engine may
        version   the newest version that is published
        """
        self._share = share
        self.target = version
        self.required = -1
        """The oldest version that may be served; -1 before any engine was seen."""
        self._is_all_at_once = all_at_once
        self._engines: dict[str, _Engine] = {}
        """The engines by name, those whose state changed last at the end. Of engines with equal versions, the
        first one loads first."""
        self._loading: dict[str, LoadDecision] = {}
        """The loads in progress, by engine."""
        self._held: dict[str, bool] = {}
        """Engines that hold, in the order in which they will resume; True: loaded in this round."""
        self._numbers = itertools.count()

    # ---- events ----

    def published(self, version: int) -> None:
        """Note a new version; an older one changes nothing. Engines whose load failed may load it at once."""
        if version > self.target:
            self.target = version
            for known in self._engines.values():
                known.retry_at_s = -math.inf

    def up(self, engine: str, version: int) -> None:
        """Note that an engine serves this version. Changes nothing if the plan knows that, or while the
        engine loads.
        """
        known = self._engines.get(engine)
        if engine not in self._loading and (known is None or known.version != version):
            # An engine that was not loading may hold since before a restart of weight_sync.
            self._serves(engine, version, is_of_round=False)

    def down(self, engine: str) -> None:
        """Note that an engine does not run, or is silent: the sync does not wait for it any more."""
        if engine in self._engines:
            self._forget(engine)
            self._raise_required()

    def loaded(self, engine: str, version: int) -> None:
        """Note that an engine has loaded and proved this version; if it is down by now, do nothing."""
        if engine in self._engines:
            self._serves(engine, version, is_of_round=True)

    def failed(self, load: LoadDecision, now_s: float) -> None:
        """Note that an engine could not load a version and serves its old one; it loads again later.

        A load that the plan has given up changes nothing: the engine ended or counted as down meanwhile.
        """
        if self._loading.get(load.engine) != load:
            return
        known = self._engines[load.engine]
        self._forget(load.engine)
        wait_s = min(FIRST_RETRY_S * 2.0 ** min(known.failures, 10), LONGEST_RETRY_S)
        self._engines[load.engine] = _Engine(known.version, known.failures + 1, now_s + wait_s)
        self._raise_required()

    # ---- decisions ----

    def next_actions(self, now_s: float) -> list[LoadDecision | ServeDecision]:
        """The decisions that are due, in order; none while the limit of loads is reached."""
        free = self._most_at_once - len(self._loading)
        if free <= 0:
            return []
        serves = [ServeDecision(engine, self._engines[engine].version) for engine in self._held]
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
        """The version that an engine is loading, or holds until the round is over; else None."""
        if self._loading and self._held.get(engine):
            return self._engines[engine].version
        load = self._loading.get(engine)
        return None if load is None else load.version

    @property
    def oldest_served(self) -> int | None:
        """The oldest version of the engines whose last load did not fail; None if there are none."""
        return min((known.version for known in self._engines.values() if not known.failures), default=None)

    # ---- internal ----

    @property
    def _most_at_once(self) -> int:
        """How many loads may be in progress; a round of all at once counts as one load."""
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
