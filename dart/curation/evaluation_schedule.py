"""Which evaluation episodes are missing, who plays the next one, and how often each has failed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dart.core.records import EvaluationPhase
from dart.core.types import FaultKind
from dart.curation.evaluation import EvaluationLease, EvaluationLeases, Lost
from dart.curation.run_phases import EvaluationEpisode, RunPlan, missing, that_count
from dart.curation.stall_diagnosis import Playing
from dart.store.reader import StoreReader

INTERRUPTED = "interrupted"
"""Why an evaluation episode has no result when its environment was asked to stop."""


class EvaluationSchedule:
    """The evaluation episodes of a run, as the record and the leases of this curator show them.

    report   called with the task and the fields of its event when an episode ends without a result
    """

    def __init__(
        self,
        plan: RunPlan,
        reader: StoreReader,
        leases: EvaluationLeases,
        report: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self.leases = leases
        self._plan = plan
        self._reader = reader
        self._report = report
        self.missing = {phase: self._read_missing(phase) for phase in EvaluationPhase}
        """Evaluation episodes still to be played, in order."""
        self._measured_version = self.newest_version()
        """The version whose episodes are missing after training."""

    def lease(
        self,
        phase: EvaluationPhase,
        environment: str,
        incarnation_of: Callable[[str], int | None],
        now_unix_s: float,
    ) -> EvaluationLease | None:
        """The next episode for an environment that asks; None when every one is being played."""
        self._give_up(self.leases.gone(incarnation_of))
        for held in self.leases.held_by(environment):
            self.leases.end(held)  # it asks, so it plays nothing: an answer to it got lost
        incarnation = incarnation_of(environment)
        return self.leases.lease(phase, self.missing[phase], environment, incarnation, now_unix_s)

    def recorded(self, lease: EvaluationLease) -> None:
        """The result of a lease is in the record."""
        self.leases.end(lease)
        self.missing[lease.phase] = self._read_missing(lease.phase)

    def interrupted(self, lease: EvaluationLease, detail: str) -> None:
        """The environment was asked to stop: no attempt is spent."""
        self.leases.end(lease)
        self._report_failure(lease, INTERRUPTED, detail)

    def failed(self, lease: EvaluationLease, kind: str, detail: str) -> None:
        """Spend an attempt: another environment tries, or the episode is left out after too many."""
        attempts = self.leases.fail(lease)
        self._report_failure(lease, kind, detail, attempts)
        if self.leases.is_left_out(lease.phase, lease.episode):
            self.missing[lease.phase].pop(lease.episode, None)

    def give_up_overdue(self, now_unix_s: float) -> None:
        """End the leases whose environments are late."""
        self._give_up(self.leases.overdue(now_unix_s))

    def measure_newest(self) -> None:
        """After training, measure the newest version: if it is another than before, all of it is missing."""
        newest = self.newest_version()
        if newest != self._measured_version:
            self._measured_version = newest
            self.leases.forget_attempts(EvaluationPhase.AFTER)
            self.missing[EvaluationPhase.AFTER] = self._read_missing(EvaluationPhase.AFTER)

    def newest_version(self) -> int | None:
        """The newest policy version in the record."""
        newest = self._reader.latest_version()
        return None if newest is None else newest.version

    def playing(self, now_unix_s: float) -> Iterator[Playing]:
        """The episodes that are leased."""
        for lease in self.leases.current:
            what = f"seed {lease.episode.seed} of {lease.episode.task_id}"
            yield Playing(environment=lease.environment, what=what, for_s=now_unix_s - lease.began_unix_s)

    def _read_missing(self, phase: EvaluationPhase) -> dict[EvaluationEpisode, None]:
        """Episodes that are not in the record and have not failed too often."""
        done = that_count(self._reader.evaluations(phase), phase, self.newest_version())
        return {
            episode: None
            for episode in missing(self._plan, done)
            if not self.leases.is_left_out(phase, episode)
        }

    def _give_up(self, lost: Iterable[Lost]) -> None:
        for one in lost:
            self.failed(one.lease, FaultKind.INFRASTRUCTURE, one.why)

    def _report_failure(self, lease: EvaluationLease, kind: str, detail: str, attempts: int = 0) -> None:
        fields = {
            "phase": lease.phase.value,
            "version": self.newest_version(),
            "seed": lease.episode.seed,
            "is_greedy": lease.episode.is_greedy,
            "kind": str(kind),
            "detail": detail,
            "attempts": attempts,
            "is_left_out": self.leases.is_left_out(lease.phase, lease.episode),
        }
        self._report(lease.episode.task_id, fields)
