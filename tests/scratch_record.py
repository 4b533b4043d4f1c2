"""A store in a folder of its own, with short forms of what environments, the trainer and people report."""

import tempfile
import weakref
from contextlib import ExitStack
from pathlib import Path

from dart.core.records import Batch, Guided, Park, StoredResult
from dart.core.types import SUCCESS_ABOVE, RolloutLease
from dart.store.store import Store
from dart.store.writer import Clock
from dart.testing.local_record import LocalRecord
from dart.testing.trajectories import demonstration_of, step_at, trajectory_for


class ScratchRecord(LocalRecord):
    """It is closed and its folder is removed when nothing refers to it any more."""

    def __init__(self, clock: Clock, success_above: float = SUCCESS_ABOVE) -> None:
        held = ExitStack()
        folder = held.enter_context(tempfile.TemporaryDirectory())
        super().__init__(
            held.enter_context(Store(Path(folder) / "store.db", clock, success_above=success_above))
        )
        weakref.finalize(self, held.close)
        self.store.add_version()

    @property
    def version(self) -> int:
        found = self.store.latest_version()
        assert found is not None
        return found.version

    @property
    def drops(self) -> dict[str, int]:
        """Rollouts dropped, by reason."""
        return dict(self.store.totals().drops)

    def finish(self, lease: RolloutLease, reward: float, num_steps: int, oldest_version: int) -> StoredResult:
        trajectory = trajectory_for(lease, reward, [oldest_version] * num_steps)
        return self.store.finish_rollout(lease.rollout_id, lease.fence, trajectory)

    def park(
        self, lease: RolloutLease, num_steps: int, oldest_version: int, max_resumes: int, max_attempts: int
    ) -> Park:
        steps = [step_at(oldest_version, number) for number in range(num_steps)]
        return self.store.park_rollout(
            lease.rollout_id, lease.fence, steps, "is stopping", max_resumes, max_attempts
        )

    def commit_update(self, batch: Batch, version: int) -> StoredResult:
        return self.store.commit_update(batch.batch_id, batch.fence, version, {})

    def add_demonstration(self, task_id: str, seed: int, num_steps: int) -> int:
        """Add one to the experience pool; returns its key."""
        steps = tuple(step_at(0, number) for number in range(num_steps))
        self.store.add_demonstrations([demonstration_of(task_id, seed, steps)])
        return self.store.demonstrations()[-1].pool_id

    def record_guided(self, guide_id: int, attempt: int, *, succeeded: bool) -> Guided:
        """An episode under a demonstration's actions; each attempt with tokens of its own."""
        steps = [step_at(0, 10 * guide_id + attempt)]
        return self.store.record_guided(guide_id, attempt, "click", float(succeeded), steps)
