"""What curation decides about three tasks: one always succeeds, one does half the time, one never."""

import tempfile
from itertools import cycle
from pathlib import Path

from dart.core.records import TaskDecision
from dart.core.types import RolloutLease
from dart.curation.experience_pool import PoolRule
from dart.curation.quota import Quota
from dart.curation.service import CurationService, open_service
from dart.curation.settings import CuratorSettings
from dart.curation.step_cap import StepCap
from dart.inspect.task_reports import decision_text
from dart.store.store import Store
from dart.testing.local_record import LocalRecord, at_once
from dart.testing.trajectories import demonstration_of, step_at, trajectory_for

SETTINGS = CuratorSettings(
    tasks=("easy", "half", "never"),
    seeds=range(100),
    quota=Quota(most=8, minimum=2, threshold=0.6),
    largest_step_cap=10,
    step_cap=StepCap(largest=10, slack=1, probe_share=0.0),
    pool=PoolRule(max_uses=16),
    groups_per_update=4,
    staleness_bound=8,
    max_attempts=3,
    lease_s=60.0,
)
DEMONSTRATION = demonstration_of("never", 1, [step_at(0, number) for number in range(4)])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.db") as store:
        store.add_version()
        store.add_demonstrations([DEMONSTRATION])
        service = at_once(open_service(SETTINGS, LocalRecord(store), on_decision=show))
        service.serving(0)
        play(service, store, episodes=60)
        (kept,) = store.demonstrations()
        print(f"never  its demonstration was added to {kept.uses} groups")
        print(f"dropped: {store.totals().drops}")


def show(decision: TaskDecision) -> None:
    print(f"{decision.task_id:6} {decision_text(decision)}")


def play(service: CurationService, store: Store, episodes: int) -> None:
    """Each task succeeds in three steps, as often as its name says."""
    coin = cycle([1.0, 0.0])
    for _ in range(episodes):
        lease = at_once(service.work("env-000"))
        assert isinstance(lease, RolloutLease), lease
        reward = {"easy": 1.0, "never": 0.0}.get(lease.task_id)
        reward = next(coin) if reward is None else reward
        store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward, (0, 0, 0)))
        at_once(service.look(lease.rollout_id))


if __name__ == "__main__":
    main()
