"""Which evaluation episodes are missing, and which environment plays each of them.

Only the environment that holds the lease of an episode may send a result. So the outcome of an episode never
decides which of its plays counts. If two environments played the same episode and the first result counted,
successes would be counted too often, because they end sooner than failures.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from dart.core.records import Evaluation, EvaluationPhase
from dart.curation.episode_leases import EpisodeLease, EpisodeLeases
from dart.curation.indexed_heap import IndexedHeap
from dart.curation.run_phases import EvaluationEpisode, RunPlan, still_to_play, that_count, turn
from dart.store.reader import StoreReader

INTERRUPTED = "interrupted"
"""Value of `kind` in the event about an evaluation episode whose environment was asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationLease(EpisodeLease):
    """Which environment plays an evaluation episode, and until when."""

    phase: EvaluationPhase
    episode: EvaluationEpisode


class EvaluationSchedule(EpisodeLeases[EvaluationLease]):
    """The evaluation episodes of a run: which are missing, and which are leased by this curator.

    report         called with the task id and the fields of an event when an episode ends without a result
    max_attempts   number of failures after which an episode is left out
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
        super().__init__(lease_s=lease_s, incarnation=incarnation)
        self._plan = plan
        self._reader = reader
        self._report = report
        self._max_attempts = max_attempts
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
        self._asks(environment, incarnation_of)
        episode = self._free[phase].first()
        if episode is None:
            return None
        self._free[phase].discard(episode)
        what = f"seed {episode.seed} of {episode.task_id}"
        make = partial(EvaluationLease, phase=phase, episode=episode, what=what)
        return self._begin(make, environment, incarnation_of(environment), now_unix_s)

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
        self.end(lease.fence)
        if that_count([result], lease.phase, self._measured_version):
            self._take_out(lease)

    def interrupted(self, lease: EvaluationLease, detail: str) -> None:
        super().interrupted(lease, detail)
        self._report_failure(lease, INTERRUPTED, detail, attempts=0)

    def failed(self, lease: EvaluationLease, kind: str, detail: str) -> None:
        """End a lease and spend an attempt. After `max_attempts` of them the episode is left out."""
        self.end(lease.fence)
        self._attempts[lease.phase, lease.episode] += 1
        self._report_failure(lease, kind, detail, self._attempts[lease.phase, lease.episode])
        if self._is_left_out(lease.phase, lease.episode):
            self._take_out(lease)

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

    def end(self, fence: int) -> EvaluationLease | None:
        """End a lease. Its episode can be leased again unless its result is in the record."""
        lease = super().end(fence)
        if lease is not None and lease.episode in self.missing[lease.phase]:
            self._free[lease.phase].put(lease.episode, turn(lease.episode))
        return lease

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
        """Return the episodes of a phase that are still to be played and are not left out."""
        done = self._reader.evaluations(phase)
        left = still_to_play(self._plan, done, phase, self.newest_version())
        return dict.fromkeys(one for one in left if not self._is_left_out(phase, one))

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
