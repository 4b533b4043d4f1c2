"""The watchdog: what the board and the curator show becomes a notice, and the record hears of its end."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors.board import ActorState, Vitals
from dart.config.config import Config, load_config
from dart.curation.stall_diagnosis import Episodes, Notice, Part, Playing, Stage, Starving
from dart.curation.stall_monitor import RunFacts, StallMonitor, event_of
from dart.environments.osworld.misjudged import MISJUDGED
from dart.store.store import Store
from dart.telemetry.events import KINDS, STARVED
from dart.testing.trajectories import trajectory_for

CONFIG: Config = load_config(None, ["curation.starved_after_s=60.0", "environments.count=2"])
ENGINES = ("rollout-0",)


def row(name: str, **changes: object) -> Vitals:
    vitals = Vitals(
        slot=0,
        name=name,
        parent="root",
        state=ActorState.RUNNING,
        pid=1,
        incarnation=1,
        restarts=0,
        started_unix_s=0.0,
        retry_unix_s=0.0,
        last_reason="",
        pid_start_ticks=0,
        route=0,
        ready=True,
        beat_age_s=0.1,
        busy_s=None,
        handler="",
        messages=0,
        refused=0,
        work_s=None,
        work="",
        gauges=(3, 3, 3, 0),
        progress_age_s=0.1,
        unsent=0,
        uses=0,
        last_error="",
    )
    return replace(vitals, **changes)  # type: ignore[arg-type]


NAMES = ("store", "curator", "rollout-0", "weight_sync", "env-000", "env-001", "trainer")
BOARD = {name: row(name) for name in NAMES}
LOADS = {**BOARD, "rollout-0": row("rollout-0", ready=False, work="load", work_s=58.0)}
PLAYING = tuple(Playing(environment=name, what="rollout 1", for_s=3.0) for name in ("env-000", "env-001"))
BOUND = "9 groups are live"
NO_WORK = RunFacts(environments_wait_because={"env-001": BOUND})
WAITS = RunFacts(trainer_waits_because="1 of 4 groups are ready", playing=PLAYING)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.db") as opened:
        opened.add_version()
        yield opened


@pytest.fixture
def monitor(store: Store) -> StallMonitor:
    return StallMonitor(CONFIG, ENGINES, store, now_s=0.0)


class Shown:
    """A board of these rows, which notes whether all of them were read."""

    def __init__(self, rows: Iterable[Vitals]) -> None:
        self._rows = {row.name: row for row in rows}
        self.are_all_read = False

    def row(self, name: str) -> Vitals | None:
        return self._rows.get(name)

    def rows(self) -> Iterable[Vitals]:
        self.are_all_read = True
        return self._rows.values()


def test_the_rows_of_all_environments_and_all_episodes_are_looked_at_in_a_stall_only(
    monitor: StallMonitor,
) -> None:
    described: list[bool] = []

    def describe() -> tuple[Playing, ...]:
        described.append(True)
        return PLAYING

    waits, board = replace(WAITS, playing=Episodes(len(PLAYING), describe)), Shown(BOARD.values())

    assert monitor.check(board, waits, 0.0) is None
    assert (board.are_all_read, described) == (False, [])
    assert monitor.check(board, waits, 61.0) is not None
    assert (board.are_all_read, described) == (True, [True])


def notices(monitor: StallMonitor, board: dict[str, Vitals], view: RunFacts, *times_s: float) -> list[Notice]:
    due = [monitor.check(Shown(board.values()), view, time_s) for time_s in times_s]
    return [notice for notice in due if notice is not None]


def test_a_waiting_trainer_is_told_with_what_the_board_shows(monitor: StallMonitor) -> None:
    (notice,) = notices(monitor, LOADS, WAITS, 0.0, 30.0, 62.0)

    assert (notice.stage, notice.diagnosis.starving, notice.diagnosis.cause) == (
        Stage.BEGAN,
        Starving.TRAINER,
        Part.ENGINES,
    )
    assert notice.diagnosis.text == (
        "the trainer has waited 62 s for a batch; 1 of 4 groups are ready; "
        "2 of 2 environments wait for an answer; rollout-0 has been loading version 3 for 58 s "
        "(cause: engines)"
    )


def test_all_tasks_are_in_quarantine_also_if_training_leaves_some_out(store: Store) -> None:
    trained = "osworld/os/b6781586-6346-41cd-935a-a6b1487918fc"
    machines = ["environments.kind=osworld", "environments.osworld.provider=docker"]
    tasks = f"tasks.train={[trained, next(iter(MISJUDGED))]}"
    config = load_config(None, [*machines, tasks, "curation.starved_after_s=60.0"])
    resting = replace(WAITS, quarantined_tasks={trained: "5 environments in a row died while playing it"})

    (notice,) = notices(StallMonitor(config, ENGINES, store, now_s=0.0), BOARD, resting, 0.0, 61.0)

    assert f"all 1 tasks are in quarantine: {trained}: 5 environments in a row died" in notice.diagnosis.text


def test_a_batch_in_between_starts_the_time_anew_and_later_ends_the_notice(monitor: StallMonitor) -> None:
    assert notices(monitor, BOARD, WAITS, 0.0, 50.0) == []
    assert notices(monitor, BOARD, RunFacts(playing=PLAYING), 52.0) == []
    assert notices(monitor, BOARD, WAITS, 54.0, 100.0) == []

    (began,) = notices(monitor, BOARD, WAITS, 115.0)
    (ended,) = notices(monitor, BOARD, RunFacts(playing=PLAYING), 130.0)

    assert (began.stage, ended.stage, ended.lasted_s) == (Stage.BEGAN, Stage.ENDED, 15.0)


def test_who_was_told_to_wait_and_is_gone_does_not_wait(monitor: StallMonitor) -> None:
    gone = {**BOARD, "env-001": row("env-001", state=ActorState.BACKOFF), "trainer": row("other")}
    view = RunFacts(
        trainer_waits_because="nothing is ready", environments_wait_because={"env-001": "9 groups are live"}
    )

    assert notices(monitor, gone, view, 0.0, 100.0, 200.0) == []


def test_who_beats_as_seldom_as_it_may_is_up(monitor: StallMonitor) -> None:
    """Everybody beats every few seconds; only engines several times in one."""
    quiet = {name: row(name, beat_age_s=4.0) for name in ("store", "env-000", "env-001")}
    training = {**BOARD, **quiet, "trainer": row("trainer", work="update", work_s=61.0, beat_age_s=4.0)}

    (notice,) = notices(monitor, training, NO_WORK, 0.0, 61.0)

    assert notice.diagnosis.text.endswith("trainer has been at an update for 61 s (cause: trainer)")
    assert "are down" not in notice.diagnosis.text


def test_an_engine_that_stands_still_is_told_long_before_others_would_be(monitor: StallMonitor) -> None:
    still = {**BOARD, "rollout-0": row("rollout-0", beat_age_s=4.0)}

    (notice,) = notices(monitor, still, WAITS, 0.0, 30.0, 62.0)

    assert "rollout-0 has given no sign of life for 4 s (cause: engines)" in notice.diagnosis.text


def test_a_pool_that_was_made_smaller_or_larger_is_counted_as_it_is(monitor: StallMonitor) -> None:
    smaller = {**BOARD, "env-001": row("env-001", state=ActorState.FREE)}
    larger = {**BOARD, "env-002": row("env-002")}

    (first,) = notices(monitor, smaller, replace(WAITS, playing=PLAYING[:1]), 0.0, 62.0)
    (again,) = notices(StallMonitor(CONFIG, ENGINES, monitor._reader, 0.0), larger, WAITS, 0.0, 62.0)

    assert "1 of 1 environments plays" in first.diagnosis.text
    assert "2 of 3 environments play" in again.diagnosis.text


def test_idle_environments_are_told_with_the_word_of_the_curator(monitor: StallMonitor) -> None:
    view = NO_WORK
    training = {**BOARD, "trainer": row("trainer", work="update", work_s=61.0)}

    (notice,) = notices(monitor, training, view, 0.0, 61.0)

    assert notice.diagnosis.cause is Part.TRAINER
    assert notice.diagnosis.text.startswith("env-001 has waited 61 s for work; 9 groups are live;")


def test_an_engine_that_serves_an_old_version_is_the_fault_of_the_sync(monitor: StallMonitor) -> None:
    behind = {**BOARD, "rollout-0": row("rollout-0", gauges=(1, 0, 0, 0))}

    (notice,) = notices(
        monitor, behind, replace(NO_WORK, environments_wait_because={"env-000": BOUND}), 0.0, 61.0
    )

    assert notice.diagnosis.cause is Part.WEIGHT_SYNC
    assert "rollout-0 has served version 1 for 61 s since the trainer made version 3" in notice.diagnosis.text


def test_groups_dropped_while_the_trainer_waits_are_counted_and_earlier_ones_are_not(
    monitor: StallMonitor, store: Store
) -> None:
    def drop() -> None:
        group_id = store.open_group("t", 1, 2, 10, 0)
        for _ in range(2):
            lease = store.lease_rollout(group_id, "env-000", 60.0)
            store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease))
        store.drop_group(group_id, "no_spread")

    drop()
    notices(monitor, BOARD, WAITS, 0.0)
    for _ in range(CONFIG.training.groups_per_update):
        drop()

    (notice,) = notices(monitor, BOARD, WAITS, 61.0)

    assert notice.diagnosis.cause is Part.CURATOR
    assert "since the last batch 4 finished groups were dropped: 4 no_spread" in notice.diagnosis.text


def test_a_restarted_curator_says_the_end_of_what_the_last_one_told(
    monitor: StallMonitor, store: Store
) -> None:
    (began,) = notices(monitor, BOARD, WAITS, 0.0, 61.0)
    store.record_event(STARVED, began.diagnosis.starving, event_of(began))

    again = StallMonitor(CONFIG, ENGINES, store, now_s=70.0)
    (ended,) = notices(again, BOARD, RunFacts(), 72.0)
    store.record_event(STARVED, ended.diagnosis.starving, event_of(ended))

    assert (ended.stage, ended.diagnosis.cause) == (Stage.ENDED, began.diagnosis.cause)
    assert notices(StallMonitor(CONFIG, ENGINES, store, now_s=80.0), BOARD, RunFacts(), 82.0) == []


def test_its_event_has_the_fields_that_are_declared(monitor: StallMonitor) -> None:
    (notice,) = notices(monitor, BOARD, WAITS, 0.0, 61.0)

    assert event_of(notice).keys() == KINDS[STARVED].fields.keys()
