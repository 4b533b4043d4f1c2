"""What curation decides about three tasks: one always succeeds, one does half the time, one never."""

from itertools import cycle

from dart.core.records import TaskDecision
from dart.core.types import RolloutLease
from dart.curation.curator import CuratorSettings
from dart.curation.experience_pool import PoolRule
from dart.curation.quota import DynamicQuota, GroupPlan
from dart.curation.service import CurationService, open_service
from dart.curation.step_cap import StepCap
from dart.inspect.task_reports import decision_in_words
from dart.testing.memory_record import MemoryRecord, at_once

SETTINGS = CuratorSettings(
    tasks=("easy", "half", "never"),
    seeds=range(100),
    quota=DynamicQuota(group=GroupPlan(rollouts=8, step_cap=10), minimum=2, threshold=0.6),
    step_cap=StepCap(largest=10, slack=1, probe_share=0.0),
    pool=PoolRule(max_uses=16),
    groups_per_update=4,
    staleness_bound=8,
    max_attempts=3,
    lease_s=60.0,
)


def main() -> None:
    record = MemoryRecord()
    record.add_demonstration("never", seed=1, num_steps=4)
    service = at_once(open_service(SETTINGS, record, lambda: 0.0, show))
    service.serving(0)
    play(service, record, episodes=60)
    (kept,) = record.snapshot().tasks[-1].demonstrations
    print(f"never  its demonstration was added to {kept.uses} groups")
    print(f"dropped: {record.drops}")


def show(decision: TaskDecision) -> None:
    print(f"{decision.task_id:6} {decision_in_words(decision)}")


def play(service: CurationService, record: MemoryRecord, episodes: int) -> None:
    """Each task succeeds in three steps, as often as its name says."""
    coin = cycle([1.0, 0.0])
    for _ in range(episodes):
        lease = at_once(service.work("env-000"))
        assert isinstance(lease, RolloutLease), lease
        reward = {"easy": 1.0, "never": 0.0}.get(lease.task_id)
        reward = next(coin) if reward is None else reward
        record.finish(lease.rollout_id, lease.fence, reward, num_steps=3, oldest_version=0)
        at_once(service.look(lease.rollout_id))


if __name__ == "__main__":
    main()
