"""A rollout ends once: what the record answers to a report that comes too late or twice."""

import tempfile
from pathlib import Path

from dart.core.types import FaultKind, RolloutLease
from dart.store.store import Store
from dart.testing.trajectories import trajectory_for


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.db") as store:
        store.add_version()
        group = store.open_group("click-tab", seed=7, rollouts_wanted=2, step_cap=10, policy_version=0)
        lost = store.lease_rollout(group, "env-000", deadline_unix_s=0.0)
        print(
            "env-000 does not report:",
            store.release_rollout(
                lost.rollout_id, lost.fence, FaultKind.INFRASTRUCTURE, "past its deadline", max_attempts=5
            ),
        )
        again = store.reassign_rollout(lost.rollout_id, "env-001", deadline_unix_s=60.0)
        assert isinstance(again, RolloutLease)
        print("env-000 reports after all:", report(store, lost))
        print("env-001 reports:", report(store, again))
        print("env-001 repeats it:", report(store, again))
        other = store.lease_rollout(group, "env-002", deadline_unix_s=60.0)
        print("env-002 reports:", report(store, other, reward=0.0))
        train(store, group)
        print(store.conservation())


def report(store: Store, lease: RolloutLease, reward: float = 1.0) -> str:
    return store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))


def train(store: Store, group: int) -> None:
    """Two trainers hold the same batch; the one that was restarted has the newer lease."""
    first = store.lease_batch([group], deadline_unix_s=600.0)
    second = store.reassign_batch(first.batch_id, deadline_unix_s=600.0)
    for who, batch in (("a trainer that was thought dead", first), ("the trainer", second)):
        commit = store.commit_update(batch.batch_id, batch.fence, 1, {})
        print(f"{who} commits version 1:", commit)


if __name__ == "__main__":
    main()
