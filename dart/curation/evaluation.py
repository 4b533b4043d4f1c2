"""Which evaluation episodes are missing, and which environment plays each of them.

An episode is leased again only after its lease has ended: the environment died, failed or took longer than a
lease lasts. Only the environment that holds the lease may send a result. So the outcome of an episode never
decides which of its plays counts. If two environments played the same episode and the first result counted,
successes would be counted too often, because they end sooner than failures.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dart.core.records import Evaluation, EvaluationPhase
from dart.core.types import FaultKind
from dart.curation.indexed_heap import IndexedHeap
from dart.curation.lease_deadline import is_overdue
from dart.curation.run_phases import EvaluationEpisode, RunPlan, missing, that_count, turn
from dart.curation.stall_diagnosis import Playing
from dart.store.reader import StoreReader

FENCES_PER_INCARNATION = 2**32

LOOKS_PER_REQUEST = 64
"""Number of leases whose holders are checked at each request for work, in turn. So the time of a request does
not grow with the number of leases."""

INTERRUPTED = "interrupted"
"""Value of `kind` in the event about an evaluation episode whose environment was asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationLease:
    """Which environment plays an evaluation episode, and until when."""

    phase: EvaluationPhase
    episode: EvaluationEpisode
    environment: str
    incarnation: int | None
    """Incarnation of the environment; None if it was not known when the environment asked."""
    fence: int
    """Number of the lease, which no other lease has. The environment sends it back with the result."""
    began_unix_s: float
    deadline_unix_s: float


class EvaluationSchedule:
    """The evaluation episodes of a run: which are missing, and which are leased by this curator.

    report         called with the task id and the fields of an event when an episode ends without a result
    lease_s        length of a lease
    max_attempts   number of failures after which an episode is left out
    incarnation    incarnation of the curator; leases of an earlier curator are void
    """

    def __init__(
        self,
        plan: RunPlan,
        reader: StoreReader,
        report: Callable[[str, Mapping[str, Any]], None],
        *,
        lease_s: float,
        max_attempts: int,
        incarnation: int,
    ) -> None:
        self._plan = plan
        self._reader = reader
        self._report = report
        self._lease_s = lease_s
        self._max_attempts = max_attempts
        self._next_fence = incarnation * FENCES_PER_INCARNATION
        self._leases: dict[int, EvaluationLease] = {}
        """The leases that have not ended, by fence, the oldest first."""
        self._fences_of: dict[str, set[int]] = {}
        """The fences of each environment's leases."""
        self._to_look_at: deque[int] = deque()
        """The fences of the leases, in the order in which their holders are checked next."""
        self._being_recorded: set[int] = set()
        """Fences of leases whose result is being written to the record."""
        self._attempts: Counter[tuple[EvaluationPhase, EvaluationEpisode]] = Counter()
        """Number of failed attempts of each episode."""
        self.missing = {phase: self._read_missing(phase) for phase in EvaluationPhase}
        """Evaluation episodes of each phase without a result, in the order in which they are leased."""
        self._free = {phase: self._not_leased(phase) for phase in EvaluationPhase}
        """The missing episodes of each phase that no environment has leased, in the same order."""
        self._measured_version = self.newest_version()
        """The version that the evaluation after training measures."""

    def lease(
        self,
        phase: EvaluationPhase,
        environment: str,
        incarnation_of: Callable[[str], int | None],
        now_unix_s: float,
    ) -> EvaluationLease | None:
        """Lease the next episode of a phase to an environment; None if no episode is free.

        The environment asks for work, so its own earlier leases end. `incarnation_of` returns the incarnation
        of an environment by name, None if it does not run.
        """
        for held in self._open(sorted(self._fences_of.get(environment, ()))):
            if not self._fail_if_ended(held, incarnation_of):
                self._end(held)  # it asks, so it plays nothing: the reply with this lease got lost
        self._look_at_holders(incarnation_of)
        episode = self._free[phase].first()
        if episode is None:
            return None
        self._free[phase].discard(episode)
        self._next_fence += 1
        self._fences_of.setdefault(environment, set()).add(self._next_fence)
        self._to_look_at.append(self._next_fence)
        lease = self._leases[self._next_fence] = EvaluationLease(
            phase=phase,
            episode=episode,
            environment=environment,
            incarnation=incarnation_of(environment),
            fence=self._next_fence,
            began_unix_s=now_unix_s,
            deadline_unix_s=now_unix_s + self._lease_s,
        )
        return lease

    def _look_at_holders(self, incarnation_of: Callable[[str], int | None]) -> None:
        """Check the holders of the next `LOOKS_PER_REQUEST` leases, and fail the leases of dead processes."""
        for _ in range(min(LOOKS_PER_REQUEST, len(self._to_look_at))):
            fence = self._to_look_at.popleft()
            held = self._leases.get(fence)
            is_open = held is not None and fence not in self._being_recorded
            if held is not None and not (is_open and self._fail_if_ended(held, incarnation_of)):
                self._to_look_at.append(fence)

    def _fail_if_ended(self, held: EvaluationLease, incarnation_of: Callable[[str], int | None]) -> bool:
        """Fail a lease if the process that got it has ended; return whether it has."""
        is_ended = held.incarnation is not None and incarnation_of(held.environment) != held.incarnation
        if is_ended:
            self.failed(held, FaultKind.INFRASTRUCTURE, f"{held.environment} ended while it played")
        return is_ended

    def holder(self, fence: int) -> EvaluationLease | None:
        """Return the lease with this fence; None if this lease has ended."""
        return self._leases.get(fence)

    @contextmanager
    def recording(self, lease: EvaluationLease) -> Iterator[None]:
        """Keep a lease valid while its result is being recorded, even if its environment ends."""
        self._being_recorded.add(lease.fence)
        try:
            yield
        finally:
            self._being_recorded.discard(lease.fence)

    def recorded(self, lease: EvaluationLease, result: Evaluation) -> None:
        """End a lease whose result is in the record. If the result does not count, its episode is played
        again."""
        self._end(lease)
        if that_count([result], lease.phase, self._measured_version):
            self._take_out(lease)

    def interrupted(self, lease: EvaluationLease, detail: str) -> None:
        """End the lease of an environment that was asked to stop; no attempt is spent."""
        self._end(lease)
        self._report_failure(lease, INTERRUPTED, detail, attempts=0)

    def failed(self, lease: EvaluationLease, kind: str, detail: str) -> None:
        """End a lease and spend an attempt. After `max_attempts` of them the episode is left out."""
        self._end(lease)
        self._attempts[lease.phase, lease.episode] += 1
        self._report_failure(lease, kind, detail, self._attempts[lease.phase, lease.episode])
        if self._is_left_out(lease.phase, lease.episode):
            self._take_out(lease)

    def give_up_overdue(self, now_unix_s: float, waited_unix_s: Callable[[str], float]) -> None:
        """End the leases whose deadlines have passed; each spends an attempt of its episode.

        waited_unix_s   function that returns when an environment last could not store what it played
        """
        for lease in self._open():
            waited_s = waited_unix_s(lease.environment)
            if is_overdue(lease.deadline_unix_s, waited_s, self._lease_s, now_unix_s):
                detail = f"{lease.environment} did not report within {self._lease_s:g} s (curation.lease_s)"
                self.failed(lease, FaultKind.INFRASTRUCTURE, detail)

    def measure_newest(self) -> None:
        """Let the evaluation after training measure the newest version.

        If this is another version than before, the episodes of that evaluation are played again.
        """
        newest, after = self.newest_version(), EvaluationPhase.AFTER
        if newest != self._measured_version:
            self._measured_version = newest
            self._attempts = Counter({key: spent for key, spent in self._attempts.items() if key[0] != after})
            self.missing[after] = self._read_missing(after)
            self._free[after] = self._not_leased(after)

    def newest_version(self) -> int | None:
        """Return the newest policy version in the record; None if there is none."""
        newest = self._reader.latest_version()
        return None if newest is None else newest.version

    @property
    def num_playing(self) -> int:
        """The number of episodes that are leased."""
        return len(self._leases)

    def playing(self, now_unix_s: float) -> Iterator[Playing]:
        """Yield a description of each episode that is leased."""
        for lease in self._leases.values():
            what = f"seed {lease.episode.seed} of {lease.episode.task_id}"
            yield Playing(environment=lease.environment, what=what, for_s=now_unix_s - lease.began_unix_s)

    def _open(self, fences: Iterable[int] | None = None) -> list[EvaluationLease]:
        """Return the leases with these fences (None: all leases), except leases whose result is being
        recorded."""
        asked = list(self._leases) if fences is None else fences
        return [self._leases[fence] for fence in asked if fence not in self._being_recorded]

    def _end(self, lease: EvaluationLease) -> None:
        """End a lease. Its episode can be leased again unless its result is in the record."""
        if self._leases.pop(lease.fence, None) is None:
            return
        fences = self._fences_of[lease.environment]
        fences.discard(lease.fence)
        if not fences:
            del self._fences_of[lease.environment]
        if lease.episode in self.missing[lease.phase]:
            self._free[lease.phase].put(lease.episode, turn(lease.episode))

    def _take_out(self, lease: EvaluationLease) -> None:
        """Remove the episode of a lease from those that are still to be played."""
        self.missing[lease.phase].pop(lease.episode, None)
        self._free[lease.phase].discard(lease.episode)

    def _not_leased(self, phase: EvaluationPhase) -> IndexedHeap[EvaluationEpisode]:
        """Return the missing episodes of a phase that no environment has leased, in the order of leasing."""
        leased = {one.episode for one in self._leases.values() if one.phase is phase}
        free: IndexedHeap[EvaluationEpisode] = IndexedHeap()
        for episode in self.missing[phase]:
            if episode not in leased:
                free.put(episode, turn(episode))
        return free

    def _is_left_out(self, phase: EvaluationPhase, episode: EvaluationEpisode) -> bool:
        """Whether an episode has failed `max_attempts` times, so that it is not played again."""
        return self._attempts[phase, episode] >= self._max_attempts

    def _read_missing(self, phase: EvaluationPhase) -> dict[EvaluationEpisode, None]:
        """Return the episodes of a phase that have no result in the record and are not left out."""
        done = that_count(self._reader.evaluations(phase), phase, self.newest_version())
        left = (one for one in missing(self._plan, done) if not self._is_left_out(phase, one))
        return dict.fromkeys(left)

    def _report_failure(self, lease: EvaluationLease, kind: str, detail: str, attempts: int) -> None:
        fields = {
            "phase": lease.phase.value,
            "version": self.newest_version(),
            "seed": lease.episode.seed,
            "is_greedy": lease.episode.is_greedy,
            "kind": str(kind),
            "detail": detail,
            "attempts": attempts,
            "is_left_out": self._is_left_out(lease.phase, lease.episode),
        }
        self._report(lease.episode.task_id, fields)
