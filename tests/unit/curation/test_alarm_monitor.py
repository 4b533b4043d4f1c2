"""The alarm monitor: it measures the record window by window, and a new one goes on where another ended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dart.config.alarm_names import LearningAlarm
from dart.config.config import Config
from dart.core.types import Step
from dart.curation.alarm_monitor import AlarmMonitor, event_of, raised_alarms
from dart.curation.learning_alarms import AlarmChange
from dart.store.errors import StoreUnavailable
from dart.store.reader import StoreReader, Unpack
from dart.store.serialization import unpack_steps
from dart.store.store import Store
from dart.telemetry.events import ALARM, KINDS
from dart.testing.trajectories import trajectory_for

EPISODES, ROLLOUTS = 16, 4
TASK = Config().tasks.train[0]


def config(**alarms: object) -> Config:
    return Config.model_validate({"alarms": {"episodes": EPISODES} | alarms})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.db") as opened:
        opened.add_version()
        yield opened


def monitor(store: Store, **alarms: object) -> AlarmMonitor:
    assert isinstance(store.address, Path)
    path = store.address
    return AlarmMonitor(config(**alarms), lambda: StoreReader(path))


def play(store: Store, windows: int, *, spread: bool, rollouts: int = ROLLOUTS) -> None:
    """Play windows of groups with and without different rewards."""
    for number in range(windows * EPISODES // rollouts):
        group_id = store.open_group(TASK, number, rollouts, 10, 0)
        for index in range(rollouts):
            lease = store.lease_rollout(group_id, "env-000", 2e9)
            reward = float(index % 2) if spread else 0.0
            store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))


def seen(changes: list[AlarmChange]) -> list[tuple[LearningAlarm, bool]]:
    return [(change.rule.alarm, change.is_raised) for change in changes]


def record(store: Store, changes: list[AlarmChange]) -> None:
    for change in changes:
        store.record_event(ALARM, change.rule.alarm.value, event_of(change))


STUCK, EQUAL = LearningAlarm.EVALUATOR_STUCK, LearningAlarm.EQUAL_REWARDS
OFF = ["one_action", "success_falls", "task_unlearned"]
"""The episodes here all have the same actions."""


def test_only_whole_windows_are_measured_and_each_of_them_once(store: Store) -> None:
    watching = monitor(store, off=OFF)
    assert not watching.has_news(store)
    play(store, 3, spread=True)
    assert watching.has_news(store)
    assert watching.look() == []
    assert not watching.has_news(store), "each of them is measured"
    play(store, 2, spread=False)
    lease = store.lease_rollout(store.open_group(TASK, 0, 1, 10, 0), "env-000", 2e9)
    store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease))
    assert seen(watching.look()) == [(STUCK, True)]
    assert not watching.has_news(store), "no whole window is new"
    assert watching.look() == []


def test_a_new_monitor_neither_repeats_nor_forgets(store: Store) -> None:
    play(store, 4, spread=True)
    play(store, 2, spread=False)
    first = monitor(store, off=OFF)
    changes = first.look()
    assert seen(changes) == [(STUCK, True)]
    record(store, changes)

    second = monitor(store, off=OFF)
    assert second.look() == []
    play(store, 1, spread=False)
    changes = second.look()
    assert seen(changes) == [(EQUAL, True)], "the two windows before it count"
    record(store, changes)

    third = monitor(store, off=OFF)
    play(store, 3, spread=True)
    changes = third.look()
    assert seen(changes) == [(STUCK, False), (EQUAL, False)]
    record(store, changes)
    assert raised_alarms(store) == {}


def test_a_new_monitor_repeats_no_change_of_its_last_windows(store: Store) -> None:
    def new() -> AlarmMonitor:
        return monitor(store, off=[*OFF, EQUAL.value])

    play(store, 4, spread=True, rollouts=2)
    play(store, 1, spread=False, rollouts=2)
    changes = new().look()
    assert seen(changes) == [(STUCK, True)]
    record(store, changes)

    second = new()
    assert second.look() == [], "the good windows before the bad one do not clear it"
    play(store, 2, spread=True, rollouts=2)
    changes = second.look()
    assert seen(changes) == [(STUCK, False)]
    record(store, changes)
    assert new().look() == [], "the bad window before the good ones does not raise it"


def test_updates_are_measured_by_their_metrics_without_any_episode(store: Store) -> None:
    watching = monitor(store)
    for version in (1, 2):
        group_id = store.open_group(TASK, version, 2, 10, 0)
        for reward in (0.0, 1.0):
            lease = store.lease_rollout(group_id, "env-000", 2e9)
            store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))
        batch = store.lease_batch([group_id], 2e9)
        store.commit_update(batch.batch_id, batch.fence, version, {"kl": 5.0, "mismatch_engine": 0.0})
    changes = watching.look()
    assert seen(changes) == [(LearningAlarm.KL_RUNAWAY, True)]
    record(store, changes)
    (raised,) = raised_alarms(store).items()
    assert raised[0] == LearningAlarm.KL_RUNAWAY
    assert str(raised[1]["text"]).startswith("KL divergence to the base policy 5 nats")


def test_an_alarm_that_is_switched_off_later_is_cleared(store: Store) -> None:
    data = {"stage": "raised", "text": "t", "value": 1.0, "threshold": 1.0, "remedy": "r"}
    store.record_event(ALARM, STUCK.value, data)
    assert monitor(store, enabled=False).has_news(store)
    assert seen(monitor(store, enabled=False).look()) == [(STUCK, False)]
    assert seen(monitor(store, off=[STUCK.value]).look()) == [(STUCK, False)]
    assert monitor(store).look() == []


def test_a_run_without_kl_term_does_not_measure_its_kl_and_clears_the_alarm_of_before(store: Store) -> None:
    data = {"stage": "raised", "text": "t", "value": 5.0, "threshold": 2.0, "remedy": "r"}
    store.record_event(ALARM, LearningAlarm.KL_RUNAWAY.value, data)
    without = config().model_copy(update={"training": config().training.model_copy(update={"kl_beta": 0.0})})
    (change,) = AlarmMonitor(without, lambda: StoreReader(store.address)).look()
    assert (change.rule.alarm, change.is_raised) == (LearningAlarm.KL_RUNAWAY, False)
    assert change.measured.text == "it is not measured any more"


def test_the_event_of_a_change_has_the_declared_fields(store: Store) -> None:
    play(store, 4, spread=True)
    play(store, 2, spread=False)
    (change,) = monitor(store, off=OFF).look()
    assert event_of(change).keys() == KINDS[ALARM].fields.keys()
    assert "every reward is 0" in change.measured.text


class FailsOnce(StoreReader):
    """A reader whose storage does not answer at one of its reads of steps."""

    reads, fails_at = 0, 0

    def steps(self, sha256: str, unpack: Unpack = unpack_steps) -> tuple[Step, ...]:
        type(self).reads += 1
        if self.reads == self.fails_at:
            raise StoreUnavailable("it does not answer")
        return super().steps(sha256, unpack)


@pytest.mark.parametrize("at", [1, EPISODES, 2 * EPISODES + 5, 4 * EPISODES])
def test_a_storage_that_does_not_answer_in_between_changes_no_alarm(
    store: Store, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    play(store, 5, spread=True)
    play(store, 4, spread=False)
    undisturbed = seen(monitor(store, off=OFF).look())
    monkeypatch.setattr(FailsOnce, "reads", 0)
    monkeypatch.setattr(FailsOnce, "fails_at", at)
    path = store.address
    watching = AlarmMonitor(config(off=OFF), lambda: FailsOnce(path))
    with pytest.raises(StoreUnavailable):
        watching.look()
    assert watching.has_news(store)
    assert seen(watching.look()) == undisturbed


def test_the_steps_of_a_damaged_blob_are_left_out(store: Store, tmp_path: Path) -> None:
    play(store, 1, spread=True)
    for blob in (tmp_path / "blobs" / "steps").rglob("*"):
        if blob.is_file():
            blob.write_bytes(b"damaged")
    watching = monitor(store)
    assert watching.look() == []
    assert not watching.has_news(store), "it is measured without these steps"
