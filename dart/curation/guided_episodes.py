"""Leases and failures of guided episodes, in which the policy sees the actions of a demonstration in its
prompt."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from dart.core.records import DemonstrationSummary
from dart.curation.stall_diagnosis import Playing


@dataclass(frozen=True, slots=True)
class GuidedLease:
    """Which environment plays a guided episode, and until when."""

    environment: str
    task_id: str
    deadline_unix_s: float


class GuidedEpisodes:
    """The leases and failures of guided episodes, by the pool id of their demonstrations.

    Overdue leases end at the next call of `lease`. All of this is lost when the curator restarts.
    """

    def __init__(self, *, lease_s: float, max_attempts: int) -> None:
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._leases: dict[int, GuidedLease] = {}
        self._failures: Counter[int] = Counter()

    def lease(
        self,
        environment: str,
        next_guide: Callable[[Collection[int]], DemonstrationSummary | None],
        now_unix_s: float,
    ) -> DemonstrationSummary | None:
        """Lease a guided episode to an environment and return its demonstration; None if there is none.

        next_guide   function that returns the demonstration to play next, or None. Its argument is the pool
                     ids to leave out: they are being played, or their guided episodes failed too often
        """
        self._leases = {
            pool_id: lease
            for pool_id, lease in self._leases.items()
            if lease.environment != environment and lease.deadline_unix_s >= now_unix_s
        }
        given_up = {pool_id for pool_id, failures in self._failures.items() if failures >= self._max_attempts}
        guide = next_guide({*self._leases, *given_up})
        if guide is not None:
            deadline_unix_s = now_unix_s + self._lease_s
            self._leases[guide.pool_id] = GuidedLease(environment, guide.task_id, deadline_unix_s)
        return guide

    def end(self, pool_id: int) -> None:
        """End the lease of an episode that was stored or interrupted."""
        self._leases.pop(pool_id, None)

    def fail(self, pool_id: int) -> None:
        """End the lease of an episode that failed. After `max_attempts` failures its demonstration is not
        played again."""
        self.end(pool_id)
        self._failures[pool_id] += 1

    @property
    def num_playing(self) -> int:
        """The number of guided episodes that are leased."""
        return len(self._leases)

    def playing(self, now_unix_s: float) -> Iterator[Playing]:
        """Yield a description of each guided episode that is leased."""
        for pool_id, lease in self._leases.items():
            yield Playing(
                environment=lease.environment,
                what=f"a guided episode of {lease.task_id} with demonstration {pool_id}",
                for_s=self._lease_s - (lease.deadline_unix_s - now_unix_s),
            )
