"""Leases and failures of guided episodes, in which the policy sees the actions of a demonstration in its
prompt."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from dart.core.records import DemonstrationSummary
from dart.core.types import FaultKind
from dart.curation.episode_leases import EpisodeLease, EpisodeLeases


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedLease(EpisodeLease):
    """Which environment plays a guided episode, and until when."""

    guide: DemonstrationSummary
    """The demonstration whose actions are the hint."""


class GuidedEpisodes(EpisodeLeases[GuidedLease]):
    """The leases and failures of guided episodes. All of this is lost when the curator restarts.

    A guided episode that failed, was not reported by its deadline, or whose environment ended counts against
    its demonstration. After `max_attempts` of these the demonstration is not played again.

    report         called with a lease and a description when the episode of the lease failed
    max_attempts   number of failures after which a demonstration is given up
    """

    def __init__(
        self,
        report: Callable[[GuidedLease, str], None],
        *,
        lease_s: float,
        max_attempts: int,
        incarnation: int,
    ) -> None:
        super().__init__(lease_s=lease_s, incarnation=incarnation)
        self._report = report
        self._max_attempts = max_attempts
        self._failures: Counter[int] = Counter()
        """Number of failures by the pool id of the demonstration."""

    def lease(
        self,
        environment: str,
        next_guide: Callable[[Collection[int]], DemonstrationSummary | None],
        incarnation_of: Callable[[str], int | None],
        now_unix_s: float,
    ) -> GuidedLease | None:
        """Lease a guided episode to an environment; None if there is none.

        next_guide       function that returns the demonstration to play next, or None. Its argument is the
                         pool ids to leave out: they are being played, or were given up
        incarnation_of   function that returns the incarnation of an environment; None if it does not run
        """
        self._asks(environment, incarnation_of)
        guide = next_guide({*(held.guide.pool_id for held in self._leases.values()), *self._given_up()})
        if guide is None:
            return None
        what = f"a guided episode of {guide.task_id} with demonstration {guide.pool_id}"
        make = partial(GuidedLease, guide=guide, what=what)
        return self._begin(make, environment, incarnation_of(environment), now_unix_s)

    def _given_up(self) -> Iterator[int]:
        return (pool_id for pool_id, count in self._failures.items() if count >= self._max_attempts)

    def failed(self, lease: GuidedLease, kind: FaultKind, detail: str) -> None:
        """End a lease and count the failure. After `max_attempts` of them the demonstration is given up."""
        self.end(lease.fence)
        self._failures[lease.guide.pool_id] += 1
        self._report(lease, detail)
