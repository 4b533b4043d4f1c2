"""The store actor: the one process that writes the record.

Receives   the messages of "the record" in `dart.messages`, from curator, environments and trainer
Answers    after the transaction is durable (invariant durable-before-ack)
Dies when  the disk is full or the database damaged for longer than a short retry
On restart it opens the database again; nothing else is needed
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_exponential

from actors.actor import Actor, Sender, receives
from dart import messages as m
from dart.store.errors import StoreConflict, StoreUnavailable
from dart.store.store import Store
from dart.types import RolloutLease


class StoreActor(Actor):
    """A thin shell: each message is one method of `Store`."""

    def on_start(self) -> None:
        self._store = Store(Path(self.args["store"]))
        # A lock held by a reader's checkpoint passes in moments; a full disk does not and crashes this actor.
        self._retrying = Retrying(
            retry=retry_if_exception_type(StoreUnavailable),
            stop=stop_after_attempt(3) | stop_after_delay(1.0),
            wait=wait_exponential(multiplier=0.05),
            reraise=True,
        )

    def on_stop(self) -> None:
        self._store.close()

    @receives(m.OpenGroup)
    def open_group(self, call: m.OpenGroup, sender: Sender) -> Any:
        return self._write(
            lambda: m.Number(
                value=self._store.open_group(
                    call.task_id, call.seed, call.rollouts_wanted, call.step_cap, call.policy_version
                )
            )
        )

    @receives(m.LeaseRollout)
    def lease_rollout(self, call: m.LeaseRollout, sender: Sender) -> Any:
        return self._write(
            lambda: self._store.lease_rollout(call.group_id, call.environment, call.deadline_unix_s)
        )

    @receives(m.ReletRollout)
    def relet_rollout(self, call: m.ReletRollout, sender: Sender) -> Any:
        def write() -> Any:
            answer = self._store.relet_rollout(call.rollout_id, call.environment, call.deadline_unix_s)
            return answer if isinstance(answer, RolloutLease) else m.Verdict(value=answer.value)

        return self._write(write)

    @receives(m.ReleaseRollout)
    def release_rollout(self, call: m.ReleaseRollout, sender: Sender) -> Any:
        return self._write(
            lambda: m.Verdict(
                value=self._store.release_rollout(
                    call.rollout_id, call.fence, call.fault_kind, call.detail, call.max_attempts
                ).value
            )
        )

    @receives(m.FinishRollout)
    def finish_rollout(self, call: m.FinishRollout, sender: Sender) -> Any:
        return self._write(
            lambda: m.Verdict(
                value=self._store.finish_rollout(call.rollout_id, call.fence, call.trajectory).value
            )
        )

    @receives(m.DropGroup)
    def drop_group(self, call: m.DropGroup, sender: Sender) -> Any:
        return self._write(lambda: m.Number(value=self._store.drop_group(call.group_id, call.reason)))

    @receives(m.LeaseBatch)
    def lease_batch(self, call: m.LeaseBatch, sender: Sender) -> Any:
        return self._write(lambda: m.Number(value=self._store.lease_batch(call.group_ids)))

    @receives(m.CommitUpdate)
    def commit_update(self, call: m.CommitUpdate, sender: Sender) -> Any:
        return self._write(
            lambda: m.Verdict(
                value=self._store.commit_update(
                    call.batch_id, call.version, call.checkpoint, call.metrics
                ).value
            )
        )

    @receives(m.RecordEvaluation)
    def record_evaluation(self, call: m.RecordEvaluation, sender: Sender) -> Any:
        def write() -> m.Verdict:
            is_new = self._store.record_evaluation(call.evaluation)
            return m.Verdict(value="accepted" if is_new else "duplicate")

        return self._write(write)

    def _write(self, write: Callable[[], Any]) -> Any:
        """One transaction; a contradiction is an answer, not a crash: it is the caller who is wrong."""
        try:
            return self._retrying(write)
        except StoreConflict as conflict:
            return m.Contradiction(text=str(conflict))
