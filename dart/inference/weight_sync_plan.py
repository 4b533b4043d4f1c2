"""Which engine loads which policy version, and when. Pure: no actor, no clock.

Two ways through the engines (`rollout.sync`):

    one at a time   an engine answers nothing while it loads, the others do; the oldest version goes first.
                    Of many engines a share loads at a time: else n loads would take longer than an update
    all at once     every engine holds, loads, and resumes when the last one is done (the coupled way)

Invariants, for any order of events:

* A sync never overlaps another: one at a time has one engine loading, or its share; all at once begins no
  round before the last one ended. So one at a time never takes out the last engine that serves, unless there
  is no other.
* A load decision is for the newest version at that moment. A newer version supersedes loads that wait; it
  never interrupts an engine that is loading.
* An engine that fails keeps its version. It is tried again after a wait that doubles, and at once when there
  is a newer version; no other engine waits for it.
* `required` only grows. It is the oldest version among engines that do not fail, so at the moment it grows
  some engine serves it; an engine with an older version is behind for a reason of its own.
"""

import itertools
import math
from dataclasses import dataclass

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 15.0


@dataclass(frozen=True, slots=True)
class LoadDecision:
    """This engine is to load the version; with `hold`, to answer nothing until a `ServeDecision`."""

    engine: str
    version: int
    hold: bool
    number: int
    """Counts all load decisions."""


@dataclass(frozen=True, slots=True)
class ServeDecision:
    """The round is over: this engine is to answer again."""

    engine: str
    version: int


@dataclass(slots=True)
class _Engine:
    version: int
    failures: int = 0
    """In a row."""
    retry_at_s: float = -math.inf


class SyncPlan:
    """The versions and loads of the engines, and the decisions that follow from them.

    Call a method for each event, carry out what `next_actions` returns, and report how the loads ended.
    """

    def __init__(self, *, all_at_once: bool = False, share: float = 0.0, version: int = -1) -> None:
        """share     of the engines that may load at a time, at least one
        version   the newest one that is published"""
        self._share = share
        self.target = version
        self.required = -1
        """The oldest version that may be served; -1 before any engine was seen."""
        self._is_all_at_once = all_at_once
        self._engines: dict[str, _Engine] = {}
        """The engine whose state changed last is at the end: of equal versions the first loads first."""
        self._loading: dict[str, LoadDecision] = {}
        """The load that each engine is at: the sync in progress."""
        self._held: dict[str, bool] = {}
        """Engines that hold, in the order in which they will resume; True: loaded in this round."""
        self._numbers = itertools.count()

    # ---- events ----

    def published(self, version: int) -> None:
        """There is a new version; an older one changes nothing. Engines that failed may try it at once."""
        if version > self.target:
            self.target = version
            for known in self._engines.values():
                known.retry_at_s = -math.inf

    def up(self, engine: str, version: int) -> None:
        """An engine runs and serves this version. Nothing changes if that is known, or while it loads."""
        known = self._engines.get(engine)
        if engine not in self._loading and (known is None or known.version != version):
            # An engine that was not loading may hold since before a restart of weight_sync.
            self._serves(engine, version, is_of_round=False)

    def down(self, engine: str) -> None:
        """An engine does not run, or is silent: no other one waits for it any more."""
        if engine in self._engines:
            self._forget(engine)
            self._raise_required()

    def loaded(self, engine: str, version: int) -> None:
        """An engine has loaded this version and proved it. Nothing changes if it is down by now."""
        if engine in self._engines:
            self._serves(engine, version, is_of_round=True)

    def failed(self, load: LoadDecision, now_s: float) -> None:
        """An engine could not load the version and serves its old one; it is tried again later.

        The failure of an earlier load changes nothing: the engine has ended, or counted as down, since.
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
        """The version it is loading, or has loaded and holds for the others; None when it does neither."""
        if self._loading and self._held.get(engine):
            return self._engines[engine].version
        load = self._loading.get(engine)
        return None if load is None else load.version

    @property
    def oldest_served(self) -> int | None:
        """The oldest version of engines that do not fail; None when there is none."""
        return min((known.version for known in self._engines.values() if not known.failures), default=None)

    # ---- internal ----

    @property
    def _most_at_once(self) -> int:
        """How many engines may load at a time; a round of all at once counts as one."""
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
