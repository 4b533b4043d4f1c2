"""Which environment plays which evaluation episode. Pure: no actor, no I/O, times come in.

An episode is given out again only when its environment is known to be gone or had it for longer than a lease
lasts, and only the environment that holds it now may report. Which copy counts therefore never depends on how
it ended. If the first of two copies to finish counted, successes would be kept too often: they end first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dart.core.records import EvaluationPhase
from dart.curation.run_phases import EvaluationEpisode

FENCES_PER_INCARNATION = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationLease:
    """Which environment plays an evaluation episode, and until when."""

    phase: EvaluationPhase
    episode: EvaluationEpisode
    environment: str
    incarnation: int | None
    """Of the environment; None if it was not known when it asked."""
    fence: int
    """Repeated in the report of the result; no other lease has it."""
    began_unix_s: float
    deadline_unix_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """A lease without a result, and why."""

    lease: EvaluationLease
    why: str


class EvaluationLeases:
    """Leases and spent attempts of the evaluation episodes of a run."""

    def __init__(self, *, lease_s: float, max_attempts: int, incarnation: int) -> None:
        """incarnation   of the curator: leases of an earlier one are void"""
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._next_fence = incarnation * FENCES_PER_INCARNATION
        self._leases: dict[tuple[EvaluationPhase, EvaluationEpisode], EvaluationLease] = {}
        self._attempts: Counter[tuple[EvaluationPhase, EvaluationEpisode]] = Counter()
        self._being_recorded: set[int] = set()
        """Fences of leases whose result is on its way into the record."""

    @property
    def current(self) -> tuple[EvaluationLease, ...]:
        """Every lease that holds, oldest first."""
        return tuple(self._leases.values())

    def lease(
        self,
        phase: EvaluationPhase,
        missing: Iterable[EvaluationEpisode],
        environment: str,
        incarnation: int | None,
        now_unix_s: float,
    ) -> EvaluationLease | None:
        """Lease the first missing episode that is not being played; None if all are."""
        episode = next((one for one in missing if (phase, one) not in self._leases), None)
        if episode is None:
            return None
        self._next_fence += 1
        lease = EvaluationLease(
            phase=phase,
            episode=episode,
            environment=environment,
            incarnation=incarnation,
            fence=self._next_fence,
            began_unix_s=now_unix_s,
            deadline_unix_s=now_unix_s + self._lease_s,
        )
        self._leases[phase, episode] = lease
        return lease

    def holder(self, fence: int) -> EvaluationLease | None:
        """The lease with this fence; None if it does not hold any more."""
        return next((one for one in self._leases.values() if one.fence == fence), None)

    def held_by(self, environment: str) -> tuple[EvaluationLease, ...]:
        """The leases of an environment; when it asks for work, it plays none of them."""
        return tuple(one for one in self._open() if one.environment == environment)

    def gone(self, incarnation_of: Callable[[str], int | None]) -> tuple[Lost, ...]:
        """Leases whose environment is known to have ended."""
        return tuple(
            Lost(one, f"{one.environment} ended while it played")
            for one in self._open()
            if one.incarnation is not None and incarnation_of(one.environment) != one.incarnation
        )

    def overdue(self, now_unix_s: float) -> tuple[Lost, ...]:
        """Leases whose deadline has passed."""
        return tuple(
            Lost(one, f"{one.environment} did not report within {self._lease_s:g} s (curation.lease_s)")
            for one in self._open()
            if one.deadline_unix_s < now_unix_s
        )

    @contextmanager
    def recording(self, lease: EvaluationLease) -> Iterator[None]:
        """Keep a lease valid while its result is being recorded, even if its environment ends."""
        self._being_recorded.add(lease.fence)
        try:
            yield
        finally:
            self._being_recorded.discard(lease.fence)

    def end(self, lease: EvaluationLease) -> None:
        """End a lease; its episode is free again, or in the record."""
        if self.holder(lease.fence) is not None:
            del self._leases[lease.phase, lease.episode]

    def fail(self, lease: EvaluationLease) -> int:
        """End a lease that spent an attempt; returns how many attempts its episode has spent."""
        self.end(lease)
        self._attempts[lease.phase, lease.episode] += 1
        return self._attempts[lease.phase, lease.episode]

    def is_left_out(self, phase: EvaluationPhase, episode: EvaluationEpisode) -> bool:
        """Whether an episode failed too often to be tried again."""
        return self._attempts[phase, episode] >= self._max_attempts

    def forget_attempts(self, phase: EvaluationPhase) -> None:
        """Every episode of a phase may be tried again: another version is measured."""
        for key in [key for key in self._attempts if key[0] is phase]:
            del self._attempts[key]

    def _open(self) -> list[EvaluationLease]:
        """Leases without a result so far."""
        return [one for one in self._leases.values() if one.fence not in self._being_recorded]
