"""Leases and failures of guided episodes, in which the policy sees the actions of a demonstration in its
prompt."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from dart.core.records import DemonstrationSummary
from dart.curation.evaluation import FENCES_PER_INCARNATION
from dart.curation.lease_deadline import is_overdue
from dart.curation.stall_diagnosis import Playing


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedLease:
    """Which environment plays a guided episode, and until when."""

    guide: DemonstrationSummary
    """The demonstration whose actions are the hint."""
    environment: str
    incarnation: int | None
    """Incarnation of the environment; None if it was not known when the environment asked."""
    fence: int
    """Number of the lease, which no other lease has. The environment sends it back with its report."""
    deadline_unix_s: float


class GuidedEpisodes:
    """The leases and failures of guided episodes. All of this is lost when the curator restarts.

    A guided episode that failed, was not reported by its deadline, or whose environment ended counts against
    its demonstration. After `max_attempts` of these the demonstration is not played again.

    report         called with a lease and a description when the episode of the lease failed
    lease_s        length of a lease
    max_attempts   number of failures after which a demonstration is given up
    incarnation    incarnation of the curator; reports about leases of an earlier curator are ignored
    """

    def __init__(
        self,
        report: Callable[[GuidedLease, str], None],
        *,
        lease_s: float,
        max_attempts: int,
        incarnation: int,
    ) -> None:
        self._report = report
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._next_fence = incarnation * FENCES_PER_INCARNATION
        self._leases: dict[int, GuidedLease] = {}
        """The leases that have not ended, by fence."""
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
        incarnation = incarnation_of(environment)
        self._end_leases_of(environment, incarnation)
        guide = next_guide({*(held.guide.pool_id for held in self._leases.values()), *self._given_up()})
        if guide is None:
            return None
        self._next_fence += 1
        lease = self._leases[self._next_fence] = GuidedLease(
            guide=guide,
            environment=environment,
            incarnation=incarnation,
            fence=self._next_fence,
            deadline_unix_s=now_unix_s + self._lease_s,
        )
        return lease

    def _end_leases_of(self, environment: str, incarnation: int | None) -> None:
        """End the leases of an environment that asks for work.

        If another process of this name got the lease, that process ended while it played. If the same process
        asks again, the reply with the lease was lost, which is no failure.
        """
        for held in [held for held in self._leases.values() if held.environment == environment]:
            if held.incarnation in (None, incarnation):
                self.end(held.fence)
            else:
                self.fail(held.fence, f"{environment} ended while it played")

    def _given_up(self) -> Iterator[int]:
        return (pool_id for pool_id, count in self._failures.items() if count >= self._max_attempts)

    def end(self, fence: int) -> None:
        """End the lease of an episode that was stored or interrupted, unless the lease has ended already."""
        self._leases.pop(fence, None)

    def fail(self, fence: int, detail: str) -> None:
        """End the lease of an episode that failed, and count the failure, unless the lease has ended
        already."""
        lease = self._leases.pop(fence, None)
        if lease is not None:
            self._failures[lease.guide.pool_id] += 1
            self._report(lease, detail)

    def give_up_overdue(self, now_unix_s: float, waited_unix_s: Callable[[str], float]) -> None:
        """End the leases whose deadlines have passed; each is a failure.

        waited_unix_s   function that returns when an environment last could not store what it played
        """
        for held in list(self._leases.values()):
            waited_s = waited_unix_s(held.environment)
            if is_overdue(held.deadline_unix_s, waited_s, self._lease_s, now_unix_s):
                detail = f"{held.environment} did not report within {self._lease_s:g} s (curation.lease_s)"
                self.fail(held.fence, detail)

    @property
    def num_playing(self) -> int:
        """The number of guided episodes that are leased."""
        return len(self._leases)

    def playing(self, now_unix_s: float) -> Iterator[Playing]:
        """Yield a description of each guided episode that is leased."""
        for held in self._leases.values():
            yield Playing(
                environment=held.environment,
                what=f"a guided episode of {held.guide.task_id} with demonstration {held.guide.pool_id}",
                for_s=self._lease_s - (held.deadline_unix_s - now_unix_s),
            )
