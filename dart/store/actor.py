"""The store actor: the one process that writes the record.

Receives   the messages of "the record" in `dart.core.messages`, from curator, environments and trainer
Answers    after the transaction is durable (invariant durable-before-ack); Paused while the disk is full or
           the database locked by somebody else: nothing of the call was kept, it is to be asked again
Dies when  the database is damaged, or the disk refuses for any other reason
On restart it opens the database again; nothing else is needed
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors.actor import Actor, Sender, receives
from dart.core import messages as m
from dart.core.run_directory import RunPaths
from dart.core.types import RolloutLease, Step
from dart.store import step_files
from dart.store.errors import StoreBusy, StoreConflict
from dart.store.event_retention import EVERY_S
from dart.store.store import Store
from dart.telemetry.emit import Data, log_event
from dart.telemetry.events import PAUSED

RETRY_S = 1.0
"""While the disk refuses it is tried this often; calls in between are told to wait without another try."""


class StoreActor(Actor):
    """A thin shell: each message is one method of `Store`."""

    def on_start(self) -> None:
        self._path = Path(self.args["store"])
        curation = self.args["config"]["curation"]
        self._max_attempts: int = curation["max_attempts"]
        self._success_above: float = curation["success_above"]
        self._open: Store | None = None
        self._pause: StorePause | None = None
        self._thinned_unix_s: float | None = None
        self._step_files = RunPaths(self.identity.run_dir).step_files
        self.every(EVERY_S, self._thin)
        self.every(EVERY_S, self._sweep)

    def on_stop(self) -> None:
        if self._open is not None:
            self._open.close()

    @receives(m.OpenGroup)
    def open_group(self, call: m.OpenGroup, sender: Sender) -> Any:
        return self._write(
            lambda store: m.Number(
                value=store.open_group(
                    call.task_id,
                    call.seed,
                    call.rollouts_wanted,
                    call.step_cap,
                    call.policy_version,
                    call.probes_length,
                )
            )
        )

    @receives(m.LeaseRollout)
    def lease_rollout(self, call: m.LeaseRollout, sender: Sender) -> Any:
        return self._write(
            lambda store: store.lease_rollout(call.group_id, call.environment, call.deadline_unix_s)
        )

    @receives(m.ReassignRollout)
    def reassign_rollout(self, call: m.ReassignRollout, sender: Sender) -> Any:
        def write(store: Store) -> Any:
            answer = store.reassign_rollout(call.rollout_id, call.environment, call.deadline_unix_s)
            return answer if isinstance(answer, RolloutLease) else m.CallResult(value=answer.value)

        return self._write(write)

    @receives(m.ReleaseRollout)
    def release_rollout(self, call: m.ReleaseRollout, sender: Sender) -> Any:
        return self._write(
            lambda store: m.CallResult(
                value=store.release_rollout(
                    call.rollout_id, call.fence, call.fault_kind, call.detail, call.max_attempts
                ).value
            )
        )

    @receives(m.FinishRollout)
    def finish_rollout(self, call: m.FinishRollout, sender: Sender) -> Any:
        def write(store: Store) -> m.CallResult:
            trajectory = replace(call.trajectory, steps=steps_of(store, call))
            return m.CallResult(value=store.finish_rollout(call.rollout_id, call.fence, trajectory).value)

        return self._write(write)

    @receives(m.ParkRollout)
    def park_rollout(self, call: m.ParkRollout, sender: Sender) -> Any:
        return self._write(
            lambda store: m.CallResult(
                value=store.park_rollout(
                    call.rollout_id,
                    call.fence,
                    steps_of(store, call),
                    call.reason,
                    call.max_resumes,
                    self._max_attempts,
                ).value
            )
        )

    @receives(m.ForgetParked)
    def forget_parked(self, call: m.ForgetParked, sender: Sender) -> Any:
        return self._write(
            lambda store: m.CallResult(
                value=store.forget_parked(call.rollout_id, call.fence, call.detail, self._max_attempts).value
            )
        )

    @receives(m.DropGroup)
    def drop_group(self, call: m.DropGroup, sender: Sender) -> Any:
        return self._write(lambda store: m.Number(value=store.drop_group(call.group_id, call.reason)))

    @receives(m.InjectDemonstration)
    def inject(self, call: m.InjectDemonstration, sender: Sender) -> Any:
        def write(store: Store) -> m.CallResult:
            store.inject(call.group_id, call.pool_id)
            return m.CallResult(value="accepted")

        return self._write(write)

    @receives(m.LeaseBatch)
    def lease_batch(self, call: m.LeaseBatch, sender: Sender) -> Any:
        return self._write(
            lambda store: m.Number(value=store.lease_batch(call.group_ids, call.deadline_unix_s).batch_id)
        )

    @receives(m.ReassignBatch)
    def reassign_batch(self, call: m.ReassignBatch, sender: Sender) -> Any:
        def write(store: Store) -> m.BatchLease:
            batch = store.reassign_batch(call.batch_id, call.deadline_unix_s)
            return m.BatchLease(batch_id=batch.batch_id, group_ids=batch.group_ids, fence=batch.fence)

        return self._write(write)

    @receives(m.CommitUpdate)
    def commit_update(self, call: m.CommitUpdate, sender: Sender) -> Any:
        return self._write(
            lambda store: m.CallResult(
                value=store.commit_update(
                    call.batch_id, call.fence, call.version, call.checkpoint, call.metrics
                ).value
            )
        )

    @receives(m.RefuseBatch)
    def refuse_batch(self, call: m.RefuseBatch, sender: Sender) -> Any:
        return self._write(
            lambda store: m.CallResult(
                value=store.refuse_batch(
                    call.batch_id, call.fence, call.group_ids, call.pool_ids, call.reason, call.detail
                ).value
            )
        )

    @receives(m.RecordEvaluation)
    def record_evaluation(self, call: m.RecordEvaluation, sender: Sender) -> Any:
        def write(store: Store) -> m.CallResult:
            is_new = store.record_evaluation(call.evaluation)
            return m.CallResult(value="accepted" if is_new else "duplicate")

        return self._write(write)

    @receives(m.RecordGuided)
    def record_guided(self, call: m.RecordGuided, sender: Sender) -> Any:
        def write(store: Store) -> m.CallResult:
            verdict = store.record_guided(
                call.guide_id, call.attempt, call.instruction, call.reward, step_files.opened(call.steps)
            )
            return m.CallResult(value=verdict.value)

        return self._write(write)

    @receives(m.RecordDecisions)
    def record_decisions(self, call: m.RecordDecisions, sender: Sender) -> Any:
        return self._write(lambda store: m.Number(value=store.record_decisions(call.decisions)))

    @receives(m.RecordEvents)
    def record_events(self, call: m.RecordEvents, sender: Sender) -> Any:
        return self._write(lambda store: m.Number(value=store.record_events(call.events)))

    def _sweep(self) -> None:
        """Remove step files that no report needs any more: their environment was killed."""
        older_than_unix_s = self.clock.unix_s() - EVERY_S
        removed = self._write(
            lambda store: m.Number(value=step_files.sweep(self._step_files, store.is_held, older_than_unix_s))
        )
        if isinstance(removed, m.Number) and removed.value:
            self.log.info("step_files_swept", removed=removed.value)

    def _thin(self) -> None:
        """What a pause keeps from being deleted is found by the next look."""
        now_unix_s = self.clock.unix_s()
        thinned = self._write(lambda store: m.Number(value=store.thin_events(self._thinned_unix_s)))
        if isinstance(thinned, m.Number):
            self._thinned_unix_s = now_unix_s
            self.log.debug("events_thinned", deleted=thinned.value)

    def _write(self, write: Callable[[Store], Any]) -> Any:
        """One transaction; a contradiction is an answer, not a crash: it is the caller who is wrong."""
        if self._pause is not None and self.clock.monotonic_s() < self._pause.try_again_s:
            return self._pause.answer()
        try:
            store = self._store()
            self._go_on(store)
            return write(store)
        except StoreConflict as conflict:
            return m.Contradiction(text=str(conflict))
        except StoreBusy as busy:
            return self._wait_for_the_disk(str(busy))

    def _store(self) -> Store:
        if self._open is None:
            opened = Store(self._path, create=False, success_above=self._success_above)
            self._open = self.enter_context(opened)
        return self._open

    def _wait_for_the_disk(self, reason: str) -> m.Paused:
        now_s = self.clock.monotonic_s()
        if self._pause is None:
            self._pause = StorePause(reason, began_unix_s=self.clock.unix_s())
            self.log.error("record_paused", reason=reason)
            self.set_ready(False)  # on the board, for whoever looks from outside
        self._pause.try_again_s = now_s + RETRY_S
        return self._pause.answer()

    def _go_on(self, store: Store) -> None:
        """After a pause: if the record takes the event that it was paused, it takes everything else."""
        if self._pause is None:
            return
        paused_s = self.clock.unix_s() - self._pause.began_unix_s
        data: Data = {
            "began_unix_s": self._pause.began_unix_s,
            "paused_s": paused_s,
            "reason": self._pause.reason,
        }
        event = m.EventDraft(kind=PAUSED, subject=self.identity.name, data=data)
        store.record_events((event,))
        log_event(self.log, event)
        self._pause = None
        self.set_ready(True)


def steps_of(store: Store, call: m.FinishRollout | m.ParkRollout) -> tuple[Step, ...]:
    """The steps that come with a report; none where it is late, for then its file may have been swept."""
    return step_files.opened(call.steps) if store.is_held(call.rollout_id, call.fence) else ()


class StorePause:
    """The time during which the disk refuses writes."""

    def __init__(self, reason: str, began_unix_s: float) -> None:
        self.reason = reason
        self.began_unix_s = began_unix_s
        self.try_again_s = 0.0
        """On the monotonic clock."""

    def answer(self) -> m.Paused:
        return m.Paused(reason=self.reason, retry_after_s=RETRY_S)
