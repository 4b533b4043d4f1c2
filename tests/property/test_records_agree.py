"""The record in memory answers as the store does, whatever is asked of both in whatever order."""

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from dart.core import messages as m
from dart.core.records import DecisionKind, TaskDecision
from dart.core.types import Demonstration, FaultKind, RolloutLease
from dart.store.errors import StoreConflict
from dart.store.store import Store
from dart.testing.memory_record import MemoryRecord, at_once
from dart.testing.trajectories import step_at, trajectory_for

TASKS = ("click-test", "login-user")
MAX_RESUMES, MAX_ATTEMPTS = 2, 2
Operation = tuple[str, int, int, int]
"""What is asked, and three numbers to make its arguments from."""


@cache
def new_record() -> Path:
    path = Path(tempfile.mkdtemp()) / "store.db"
    with Store(path) as store:
        store.add_version("checkpoints/0")
    return path


def answer_of(call: Callable[[], Any]) -> Any:
    """What a call answers; that it contradicts the record is an answer."""
    try:
        return call()
    except StoreConflict:
        return StoreConflict


class Both:
    """The same calls to both records, by name: every method returns the two answers."""

    def __init__(self, store: Store) -> None:
        self.store, self.memory = store, MemoryRecord()
        self.demonstrations = 0

    def asked(self, call: m.Call[Any]) -> tuple[Any, Any]:
        """One call of the service."""
        return (
            answer_of(lambda: self.store.write(call)),
            answer_of(lambda: at_once(self.memory.write(call))),
        )

    def carry_out(self, operation: Operation) -> tuple[Any, Any]:
        name, a, b, c = operation
        rollout_id, fence, group_id = a % 6 + 1, b % 3 + 1, a % 3 + 1
        match name:
            case "open":
                call: m.Call[Any] = m.OpenGroup(
                    task_id=TASKS[a % 2],
                    seed=b,
                    rollouts_wanted=2 + a % 2,
                    step_cap=5 + c,
                    policy_version=0,
                    probes_length=bool(c % 2),
                )
                return self.asked(call)
            case "lease":
                call = m.LeaseRollout(group_id=group_id, environment=f"env-{b:03d}", deadline_unix_s=float(c))
                return self.asked(call)
            case "reassigned":
                call = m.ReassignRollout(
                    rollout_id=rollout_id, environment=f"env-{b:03d}", deadline_unix_s=float(c)
                )
                return self.asked(call)
            case "release":
                call = m.ReleaseRollout(
                    rollout_id=rollout_id,
                    fence=fence,
                    fault_kind=list(FaultKind)[c % 4],
                    detail="made up",
                    max_attempts=MAX_ATTEMPTS,
                )
                return self.asked(call)
            case "inject":
                return self.asked(m.InjectDemonstration(group_id=group_id, pool_id=b % 2 + 1))
            case "drop":
                return self.asked(m.DropGroup(group_id=group_id, reason="no_spread"))
            case "batch":
                group_ids = tuple(range(group_id, group_id + 1 + b % 2))
                return self.asked(m.LeaseBatch(group_ids=group_ids, deadline_unix_s=float(c)))
            case "reassigned batch":
                return self.asked(m.ReassignBatch(batch_id=b % 2 + 1, deadline_unix_s=float(c)))
            case "give back":
                call = m.RefuseBatch(
                    batch_id=b % 2 + 1,
                    fence=fence,
                    group_ids=(),
                    pool_ids=(),
                    reason="stale",
                    detail="made up",
                )
                return self.asked(call)
            case "decide":
                kind_of = list(DecisionKind)[b % 3]
                return self.decided(TASKS[a % 2], kind_of, str(c))
            case "finish":
                return self.finished(rollout_id, fence, float(c % 2), 1 + c)
            case "park":
                return self.parked(rollout_id, fence, 1 + c)
            case "forget":
                return (
                    answer_of(lambda: self.store.forget_parked(rollout_id, fence, "it looks different")),
                    answer_of(lambda: self.memory.forget_parked(rollout_id, fence)),
                )
            case "commit":
                return self.committed(a % 2 + 1, fence, c % 3 + 1)
            case "guided":
                return self.guided(a % 3 + 1, b % 3 + 1, succeeded=bool(c % 2))
            case "add demonstration":
                return self.demonstration_added(TASKS[a % 2])
            case _:
                return self.demonstration_dropped(b % 2 + 1)

    def decided(self, task_id: str, kind: DecisionKind, after: str) -> tuple[Any, Any]:
        if task_id not in {task.task_id for task in self.store.snapshot().tasks}:
            return None, None  # the curator decides about tasks it has played
        decision = TaskDecision(
            task_id=task_id,
            kind=kind,
            before="",
            after=after,
            reason="made up",
            policy_version=0,
            unix_s=5.0,
        )
        return self.asked(m.RecordDecisions(decisions=(decision,)))

    def finished(self, rollout_id: int, fence: int, reward: float, steps: int) -> tuple[Any, Any]:
        versions = list(range(3, 3 + steps))

        def of_store() -> Any:
            record = self.store.rollout(rollout_id)
            group = self.store.group(record.group_id)
            lease = RolloutLease(
                rollout_id=rollout_id,
                group_id=group.group_id,
                task_id=group.task_id,
                seed=group.seed,
                step_cap=group.step_cap,
                attempt=1,
                fence=fence,
                deadline_unix_s=0.0,
            )
            return self.store.finish_rollout(rollout_id, fence, trajectory_for(lease, reward, versions))

        return (
            answer_of(of_store),
            answer_of(lambda: self.memory.finish(rollout_id, fence, reward, steps, versions[0])),
        )

    def parked(self, rollout_id: int, fence: int, steps: int) -> tuple[Any, Any]:
        played = [step_at(3 + number, number) for number in range(steps)]
        return (
            answer_of(
                lambda: self.store.park_rollout(
                    rollout_id, fence, played, "is stopping", MAX_RESUMES, MAX_ATTEMPTS
                )
            ),
            answer_of(
                lambda: self.memory.park(
                    rollout_id, fence, steps, 3, max_resumes=MAX_RESUMES, max_attempts=MAX_ATTEMPTS
                )
            ),
        )

    def committed(self, batch_id: int, fence: int, version: int) -> tuple[Any, Any]:
        checkpoint = f"checkpoints/{version}"
        return (
            answer_of(lambda: self.store.commit_update(batch_id, fence, version, checkpoint, {})),
            answer_of(lambda: self.memory.commit_update(batch_id, fence, version)),
        )

    def demonstration_added(self, task_id: str) -> tuple[Any, Any]:
        self.demonstrations += 1  # each with a seed of its own: the store knows what it has by its content
        demonstration = Demonstration(
            pool_id=0,
            task_id=task_id,
            seed=self.demonstrations,
            origin="oracle",
            instruction="click",
            reward=1.0,
            steps=(step_at(0),),
        )
        self.store.add_demonstrations([demonstration])
        self.memory.add_demonstration(task_id, self.demonstrations, num_steps=1)
        return None, None

    def guided(self, guide_id: int, attempt: int, *, succeeded: bool) -> tuple[Any, Any]:
        known = {one.pool_id for one in self.store.demonstrations()}
        if guide_id not in known:
            return None, None
        # Each success has a seed of its own only by its guide; a second one has other tokens by its attempt.
        steps = [step_at(10 * guide_id + attempt)]
        verdict = self.store.record_guided(guide_id, attempt, "click", float(succeeded), steps)
        return verdict, self.memory.record_guided(guide_id, attempt, succeeded=succeeded)

    def demonstration_dropped(self, pool_id: int) -> tuple[Any, Any]:
        answer = answer_of(lambda: self.store.drop_demonstration(pool_id))
        if answer is None:
            self.memory.drop_demonstration(pool_id)
        return None, None


OFTEN = ("open", "lease", "lease", "finish", "finish", "reassigned", "release", "park")
SELDOM = (
    "inject",
    "drop",
    "batch",
    "reassigned batch",
    "give back",
    "decide",
    "forget",
    "commit",
    "add demonstration",
    "guided",
    "other",
)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(OFTEN + SELDOM), *[st.integers(0, 5)] * 3), min_size=10, max_size=60
)
WHOLE_LIFE: list[Operation] = [
    ("open", 0, 1, 2),
    ("lease", 0, 0, 0),
    ("lease", 0, 1, 0),
    ("park", 0, 0, 2),
    ("reassigned", 0, 2, 1),
    ("finish", 0, 1, 1),
    ("finish", 1, 0, 0),
    ("batch", 0, 0, 5),
    ("reassigned batch", 0, 0, 9),
    ("commit", 0, 0, 0),
    ("commit", 0, 1, 0),
    ("commit", 0, 1, 0),
]
BATCH_GIVEN_BACK: list[Operation] = [
    *WHOLE_LIFE[:9],
    ("give back", 0, 0, 0),
    ("give back", 0, 1, 0),
    ("give back", 0, 1, 0),
    ("reassigned batch", 0, 0, 9),
    ("batch", 0, 0, 5),
    ("give back", 0, 1, 0),
]


@example(WHOLE_LIFE)
@example(BATCH_GIVEN_BACK)
@given(OPERATIONS)
@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
def test_both_records_give_the_same_answers_and_end_with_the_same_rows(operations: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = shutil.copy(new_record(), Path(folder) / "store.db")
        with Store(path, clock=lambda: 5.0) as store:
            both = Both(store)
            for operation in operations:
                of_store, of_memory = both.carry_out(operation)
                assert of_store == of_memory, operation
            assert store.snapshot() == both.memory.snapshot()
            assert store.conservation() == both.memory.conservation()


def test_the_whole_life_of_a_batch_is_among_what_is_compared() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = shutil.copy(new_record(), Path(folder) / "store.db")
        with Store(path, clock=lambda: 5.0) as store:
            both = Both(store)
            answers = [both.carry_out(operation)[0] for operation in WHOLE_LIFE]
            assert [str(answer) for answer in answers[-3:]] == ["fenced", "committed", "duplicate"]


def test_a_record_that_forgets_keeps_only_what_is_live() -> None:
    record = MemoryRecord(forgets=True)
    for number in range(50):
        group_id = record.open_group("click-test", number, 2, 10, 0, False)
        for environment, reward in (("env-000", 0.0), ("env-001", 1.0)):
            lease = record.lease_rollout(group_id, environment, 60.0)
            record.finish(lease.rollout_id, lease.fence, reward, 3, 0)
        if number % 2:
            record.drop_group(group_id, "stale")
        else:
            batch = record.lease_batch((group_id,), 600.0)
            record.commit_update(batch.batch_id, batch.fence, number // 2 + 1)
    assert record.conservation().holds
    assert (record.conservation().trained, record.conservation().dropped) == (50, 50)
    assert record.snapshot().groups == ()
    assert not record._group_of
