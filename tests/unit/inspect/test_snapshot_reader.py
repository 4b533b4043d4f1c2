"""What is read off the board and the record: engines, and what is wrong now."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from actors.board import ActorState, Board
from dart.config.config import Config, load_config
from dart.core import records
from dart.core.records import DemonstrationSummary, EvaluationPhase, RunPhase
from dart.core.run_directory import RunPaths
from dart.core.statistics import Score
from dart.core.types import FaultKind
from dart.inspect import signals
from dart.inspect.evaluation_scores import failures, final_report
from dart.inspect.formatting import clock
from dart.inspect.metrics import exposition
from dart.inspect.processes import write_table
from dart.inspect.report import EvaluationResult, left_out_text
from dart.inspect.snapshot_reader import SnapshotReader, engine_rows
from dart.store.store import Store
from dart.telemetry.board_gauges import Gauge
from dart.telemetry.events import (
    ALARM,
    CHECKPOINT_RESTORED,
    EVALUATION_FAILED,
    LOG_CUT,
    STARVED,
    WORK_HELD,
)
from dart.testing.trajectories import trajectory_for

CONFIG: Config = load_config(None, ["evaluation.before=false"])
SESSION = {"elapsed_s": 11.0, "budget_s": 60.0, "training_ends_unix_s": 1050.0}
SESSION |= {"started_unix_s": 1000.0, "used_before_s": 1.0}


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    (tmp_path / "session.json").write_text(json.dumps(SESSION))
    (tmp_path / "lock").touch()
    return RunPaths(tmp_path)


@pytest.fixture
def store(paths: RunPaths) -> Iterator[Store]:
    with Store(paths.store) as opened:
        opened.add_version()
        yield opened


@pytest.fixture
def board(paths: RunPaths) -> Iterator[Board]:
    opened = Board.create(paths.board)
    for name in ("store", "rollout-0", "rollout-1", "weight_sync", "trainer"):
        show(opened, name)
    yield opened
    opened.close()


def show(board: Board, name: str, state: ActorState = ActorState.RUNNING, **fields: object) -> None:
    """The row of an actor that is up and beat just now, but for what is said."""
    slot = board.find(name)
    slot = board.claim(name, "root") if slot is None else slot
    board.set_state(slot, state, **{"ready": 1, "beat_ns": board.now_ns(), **fields})


def show_gauge(board: Board, name: str, gauge: Gauge, value: int) -> None:
    show(board, name)
    slot = board.find(name)
    assert slot is not None
    board.set_gauges(slot, {gauge: value})


def notices(paths: RunPaths, board: Board) -> tuple[str, ...]:
    with SnapshotReader(paths, CONFIG) as reader:
        return reader.read().notices


def test_engines_are_judged_by_the_board(board: Board) -> None:
    show_gauge(board, "trainer", Gauge.TRAINED_VERSION, 12)
    show_gauge(board, "weight_sync", Gauge.REQUIRED_VERSION, 11)
    for name, version in (("rollout-1", 12), ("rollout-0", 10), ("rollout-2", 11), ("rollout-4", 12)):
        show_gauge(board, name, Gauge.SERVED_VERSION, version)
    show(board, "rollout-2", ready=0, work="load", work_since_ns=1)
    show(board, "rollout-3", ActorState.BACKOFF)
    show(board, "rollout-4", beat_ns=1)

    rows = {row.name: row for row in engine_rows(board.rows())}

    assert {name: row.state for name, row in rows.items()} == {
        "rollout-0": "stale",
        "rollout-1": "healthy",
        "rollout-2": "updating",
        "rollout-3": "dead",
        "rollout-4": "suspect",
    }
    assert rows["rollout-0"].reason == "it serves version 10, 11 is required"
    assert rows["rollout-2"].reason == "it is loading version 12"


def test_a_snapshot_says_whether_the_run_runs_and_what_is_wrong_with_its_main_process(
    paths: RunPaths, store: Store, board: Board
) -> None:
    with SnapshotReader(paths, CONFIG) as reader, paths.lock.open("w") as lock:
        ended = reader.read()
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        well = reader.read()
        write_table(paths.root, "suspended", {})  # as a mirror has it
        suspended = reader.read()

    assert (ended.is_running, ended.is_healthy) == (False, False)
    assert (well.is_running, well.main_is, well.is_healthy) == (True, "", True)
    assert (suspended.is_running, suspended.main_is, suspended.is_healthy) == (True, "suspended", False)


def test_restarts_are_those_of_the_actors_and_no_free_row_counts(
    paths: RunPaths, store: Store, board: Board
) -> None:
    show(board, "env-000", restarts=3)
    show(board, "env-001", restarts=1)
    show(board, "env-002", ActorState.FREE, restarts=5)
    with SnapshotReader(paths, CONFIG) as reader:
        assert reader.read().restarts == 4


def test_the_figures_of_a_snapshot_are_of_one_moment_although_the_run_goes_on(
    paths: RunPaths, store: Store, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = store.lease_rollout(store.open_group(CONFIG.tasks.train[0], 1, 1, 10, 0), "env-000", 9999.0)
    with SnapshotReader(paths, CONFIG) as reader:
        read = reader.store.latest_version

        def meanwhile() -> records.Version | None:
            store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, 1.0))
            return read()

        monkeypatch.setattr(reader.store, "latest_version", meanwhile)
        before = reader.read()
        monkeypatch.undo()
        after = reader.read()

    assert [
        (one.trajectories, one.conservation.stored, one.tasks[0].trajectories) for one in (before, after)
    ] == [
        (0, 0, 0),
        (1, 1, 1),
    ]


def test_of_a_run_that_has_ended_the_phase_is_the_one_it_ended_in(
    paths: RunPaths, store: Store, board: Board
) -> None:
    with SnapshotReader(paths, CONFIG) as reader:
        assert reader.read().phase is RunPhase.TRAINING, "it ended ten seconds after its start, long ago"
        (paths.root / "session.json").write_text(json.dumps(SESSION | {"elapsed_s": 60.0}))
        assert reader.read().phase is RunPhase.FINAL_EVALUATION


def test_the_time_of_earlier_starts_is_no_time_of_the_phase_of_a_continued_run(
    paths: RunPaths, store: Store, board: Board
) -> None:
    continued = SESSION | {"elapsed_s": 1011.0, "used_before_s": 1000.0}
    (paths.root / "session.json").write_text(json.dumps(continued))
    with SnapshotReader(paths, CONFIG) as reader:
        assert reader.read().phase is RunPhase.TRAINING


def test_success_while_training_is_read_in_windows_and_an_old_window_once(
    paths: RunPaths, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_unix_s, asked = [1000.0], []
    with ExitStack() as opened:
        store = opened.enter_context(Store(paths.store, clock=lambda: now_unix_s[0]))
        store.add_version()
        reader = opened.enter_context(SnapshotReader(paths, CONFIG))
        group = store.open_group(CONFIG.tasks.train[0], 1, 3, 10, 0)
        for ended_s, reward in ((3.0, 0.0), (8.0, 1.0), (14.0, 1.0)):
            now_unix_s[0] = 999.0 + ended_s  # one second of the run was used before 1000
            lease = store.lease_rollout(group, "env-000", 9999.0)
            store.finish_rollout(lease.rollout_id, lease.fence, trajectory_for(lease, reward))
        (paths.root / "session.json").write_text(json.dumps(SESSION | {"elapsed_s": 29.0}))

        found = reader.read().success_windows
        monkeypatch.setattr(reader.store, "success_within", lambda *window: asked.append(window) or (0, 0))
        again = reader.read().success_windows

    assert [(one.begins_s, one.ends_s, one.successes, one.episodes) for one in found] == [
        (1.0, 10.0, 1, 2),
        (10.0, 20.0, 1, 1),
    ]
    assert again == found
    assert [window[:2] for window in asked] == [(1019.0, 1029.0)], "only the window that is not over"


def test_an_engine_serves_only_while_there_is_a_process(paths: RunPaths, store: Store, board: Board) -> None:
    show_gauge(board, "rollout-0", Gauge.SERVED_VERSION, 7)
    show_gauge(board, "rollout-1", Gauge.SERVED_VERSION, 6)
    show(board, "rollout-1", pid=os.getpid(), pid_start_ticks=1)
    with SnapshotReader(paths, CONFIG) as reader:
        assert reader.read().serving_versions == (7,)


def test_an_engine_that_is_not_ready_or_is_being_stopped_serves_nothing(
    paths: RunPaths, store: Store, board: Board
) -> None:
    for name, version in (("rollout-0", 7), ("rollout-1", 6), ("rollout-2", 5)):
        show_gauge(board, name, Gauge.SERVED_VERSION, version)
    show(board, "rollout-1", ready=0)
    show(board, "rollout-2", ActorState.STOPPING)
    with SnapshotReader(paths, CONFIG) as reader:
        assert reader.read().serving_versions == (7,)


def test_the_figures_of_a_snapshot_are_those_of_the_newest_update(
    paths: RunPaths, store: Store, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"staleness_mean": 0.5, "staleness_p50": 1.0, "staleness_p95": 3.0, "staleness_max": 4.0}
    newest = records.Version(version=7, metrics=figures, created_unix_s=1000.0)
    with SnapshotReader(paths, CONFIG) as reader:
        monkeypatch.setattr(reader.store, "latest_version", lambda: newest)
        shown = reader.read()

    assert (shown.updates, shown.policy_version, shown.update) == (7, 7, figures)
    assert (shown.staleness_mean, shown.staleness_p50) == (0.5, 1.0)
    assert (shown.staleness_p95, shown.staleness_max) == (3.0, 4)


def test_a_demonstration_that_is_out_of_use_counts_for_nothing_but_its_uses(
    paths: RunPaths, store: Store, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = DemonstrationSummary(
        pool_id=1, task_id="t", seed=1, origin="oracle", reward=1.0, num_steps=2, uses=2, dropped=False
    )
    pool = (
        replace(one, lacks_thought=True),
        replace(one, uses=3, guide_id=1),
        replace(one, uses=4, dropped=True, lacks_thought=True, guide_id=1),
    )
    with SnapshotReader(paths, CONFIG) as reader:
        monkeypatch.setattr(reader.store, "demonstrations", lambda: pool)
        shown = reader.read()

    assert (shown.pool_size, shown.pool_uses) == (2, 2 + 3 + 4)
    assert (shown.pool_without_thought, shown.pool_self_rolled) == (1, 1)


def test_nothing_is_told_of_a_run_in_which_nobody_starves(
    paths: RunPaths, store: Store, board: Board
) -> None:
    assert notices(paths, board) == ()


def test_who_starves_is_told_until_an_event_says_that_it_is_over(
    paths: RunPaths, store: Store, board: Board
) -> None:
    for stage in ("began", "lasts"):
        data = {"stage": stage, "cause": "engines", "text": "the trainer has waited", "lasted_s": 0.0}
        store.record_event(STARVED, "trainer", data)
    with paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (told,) = notices(paths, board)
        store.record_event(STARVED, "trainer", data | {"stage": "ended"})
        assert notices(paths, board) == ()

    assert told.startswith("since ")
    assert told.endswith(": the trainer has waited")


def test_a_stall_is_told_since_the_time_at_which_it_began_and_of_an_ended_run_as_its_end(
    paths: RunPaths, board: Board
) -> None:
    with Store(paths.store, clock=lambda: 5000.0) as store:
        store.add_version()
        data = {"stage": "lasts", "cause": "engines", "text": "the trainer has waited", "lasted_s": 240.0}
        store.record_event(STARVED, "trainer", data)
        said = f"since {clock(4760.0)}: the trainer has waited"
        with paths.lock.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert notices(paths, board) == (said,)
        assert notices(paths, board) == (f"when the run ended, {said}",)


def test_the_first_failure_is_shown_with_its_message_until_an_episode_is_played(
    paths: RunPaths, store: Store, board: Board
) -> None:
    no_core = {"phase": "before", "version": 0, "is_greedy": False, "kind": "infrastructure"}
    for seed, detail in enumerate(("core is not defined", "the browser died")):
        told = {**no_core, "seed": seed, "detail": detail, "attempts": 1, "is_left_out": False}
        store.record_event(EVALUATION_FAILED, TASK, told)

    assert notices(paths, board) == (
        "no episode has ended with a reward yet; the first failure (infrastructure): core is not defined; "
        f"`dartrl events --for {TASK}` shows more",
    )
    evaluated(store, FIRST_SEED, 0.0, after=False)
    assert notices(paths, board) == ()


def test_without_an_evaluation_the_first_failure_is_that_of_a_rollout(
    paths: RunPaths, store: Store, board: Board
) -> None:
    lease = store.lease_rollout(store.open_group(TASK, 1, 1, 4, 0), "env-001", 9999.0)
    store.release_rollout(lease.rollout_id, lease.fence, FaultKind.SYSTEM, "the browser\ndied", 3)

    (notice,) = notices(paths, board)

    assert notice.endswith("(system): the browser⏎died; `dartrl trajectories show 1` shows more")


def test_the_first_failure_is_the_earlier_one_of_training_and_of_an_evaluation(
    paths: RunPaths, board: Board
) -> None:
    now_unix_s = [1000.0]
    with Store(paths.store, clock=lambda: now_unix_s[0]) as store:
        store.add_version()
        lease = store.lease_rollout(store.open_group(TASK, 1, 1, 4, 0), "env-001", 9999.0)
        store.release_rollout(lease.rollout_id, lease.fence, FaultKind.SYSTEM, "no engine answers", 3)
        now_unix_s[0] = 2000.0
        failed(store, FIRST_SEED, is_left_out=False)
        (notice,) = notices(paths, board)

    assert "the first failure (system): no engine answers; `dartrl trajectories show 1`" in notice


def test_an_interrupted_episode_is_no_failure(paths: RunPaths, store: Store, board: Board) -> None:
    asked = {"phase": "before", "version": 0, "seed": 1, "is_greedy": False, "kind": "interrupted"}
    store.record_event(EVALUATION_FAILED, TASK, {**asked, "detail": "", "attempts": 0, "is_left_out": False})

    assert notices(paths, board) == ()


RAISED = {"stage": "raised", "text": "KL divergence 5", "value": 5.0, "threshold": 2.0, "remedy": "Stop"}


def test_a_raised_alarm_is_told_with_its_remedy_until_it_is_cleared(
    paths: RunPaths, store: Store, board: Board
) -> None:
    store.record_event(ALARM, "kl_runaway", RAISED)
    store.record_event(WORK_HELD, "curator", {"is_held": True, "alarm": "kl_runaway"})
    with paths.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with SnapshotReader(paths, CONFIG) as reader:
            raised = reader.read()
    store.record_event(ALARM, "kl_runaway", RAISED | {"stage": "cleared"})
    store.record_event(WORK_HELD, "curator", {"is_held": False, "alarm": ""})

    paused, told = raised.notices
    assert paused.startswith("the run has been paused by the alarm kl_runaway since ")
    assert told.startswith("since ")
    assert told.endswith(": alarm kl_runaway: KL divergence 5. Stop")
    assert (raised.alarms["kl_runaway"], raised.alarms["one_action"]) == (True, False)
    assert 'dartrl_alarm{alarm="kl_runaway"} 1.0' in exposition(raised)
    assert notices(paths, board) == ()


def test_a_pause_and_an_alarm_of_an_ended_run_are_told_as_those_of_its_end(
    paths: RunPaths, board: Board
) -> None:
    with Store(paths.store, clock=lambda: 5000.0) as store:
        store.add_version()
        store.record_event(ALARM, "kl_runaway", RAISED)
        store.record_event(WORK_HELD, "curator", {"is_held": True, "alarm": ""})
    since = clock(5000.0)
    assert notices(paths, board) == (
        f"when the run ended, it had been paused by an operator since {since}; when it is started again, no "
        "episode and no update begins until `dartrl resume`",
        f"when the run ended, since {since}: alarm kl_runaway: KL divergence 5. Stop",
    )


def test_a_store_that_takes_no_writes_is_told_although_nothing_can_be_recorded(
    paths: RunPaths, store: Store, board: Board
) -> None:
    show(board, "store", ready=0)

    (told,) = notices(paths, board)

    assert told.startswith("the store takes no writes now: the disk is full, another process")
    assert f" are free at {paths.root}" in told


def test_a_trainer_that_waits_names_every_possible_cause_and_the_run_is_not_healthy(
    paths: RunPaths, store: Store, board: Board
) -> None:
    show(board, "trainer", ready=0)
    with SnapshotReader(paths, CONFIG) as reader:
        snapshot = reader.read()
    (told,) = snapshot.notices
    causes = "the disk is full, another process has locked the record, or its server or the object storage"
    assert told.startswith(f"the trainer waits: {causes} does not answer (")
    assert told.endswith(f" are free at {paths.root}); it continues by itself")
    assert not snapshot.is_healthy


def test_from_another_machine_no_notice_tells_the_free_space_of_that_machine(
    paths: RunPaths, store: Store, board: Board
) -> None:
    paths.mirror_of.write_text("postgresql://db.example/run")
    show(board, "trainer", ready=0)

    (told,) = notices(paths, board)

    assert told.endswith(" or its server or the object storage does not answer; it continues by itself")
    assert str(paths.root) not in told


def test_a_trainer_that_stops_when_all_is_done_waits_for_no_room(
    paths: RunPaths, store: Store, board: Board
) -> None:
    (paths.root / "session.json").write_text(json.dumps(SESSION | {"training_ends_unix_s": 1.0}))
    show(board, "trainer", ready=0)
    config = load_config(None, ["evaluation.before=false", "evaluation.after=false"])
    with SnapshotReader(paths, config) as reader:
        snapshot = reader.read()
    assert (snapshot.phase, snapshot.notices) == (RunPhase.DONE, ())


def test_a_checkpoint_that_was_made_anew_is_told_until_the_damaged_folder_is_removed(
    paths: RunPaths, store: Store, board: Board
) -> None:
    damaged = paths.checkpoints / "v000003.damaged"
    damaged.mkdir(parents=True)
    data = {"version": 3, "from_version": 2, "damage": "model.safetensors is corrupt"}
    store.record_event(
        CHECKPOINT_RESTORED, "trainer", {**data, "damaged_folder": "checkpoints/v000003.damaged"}
    )
    (told,) = notices(paths, board)
    assert told == (
        "the checkpoint of version 3 was damaged (model.safetensors is corrupt) and is now a copy of version "
        "2: the updates between the two are lost. The damaged checkpoint is in "
        f"{damaged}; remove that folder to end this notice"
    )
    damaged.rmdir()
    assert notices(paths, board) == ()


def test_a_log_that_was_cut_is_told_until_its_copy_is_removed(
    paths: RunPaths, store: Store, board: Board
) -> None:
    copy = paths.root / "store.db-wal.damaged"
    copy.touch()
    damage = "frame 7 is damaged, which loses 3 transactions from there on"
    store.record_event(LOG_CUT, "store", {"damage": damage, "copy": copy.name})
    (told,) = notices(paths, board)
    assert told == (
        f"the write-ahead log of the record was damaged ({damage}), and the run continued without the lost "
        f"transactions. The damaged log is {copy}; remove that file to end this notice"
    )
    copy.unlink()
    assert notices(paths, board) == ()


def test_a_run_that_was_told_to_end_says_so_while_it_runs(
    paths: RunPaths, store: Store, board: Board
) -> None:
    signals.prepare(paths)
    assert notices(paths, board) == ()
    signals.note(paths, 15, 1000.0)
    signals.note(paths, 2, 1001.0)

    (told,) = notices(paths, board)
    assert told.startswith("the run ends: it received SIGTERM at ")
    assert "Episodes and updates continue" in told
    taken = signals.read(paths)
    assert taken is not None
    assert (taken.count, taken.since_unix_s) == (2, 1000.0)
    signals.forget(paths)
    assert notices(paths, board) == ()
    (paths.root / "signals").write_text("1 1 15 1000.0\n")  # of a process that is none of this run any more
    assert notices(paths, board) == ()


MEASURED: Config = load_config(
    None,
    [
        "tasks.train=['miniwob/click-test-2']",
        "evaluation.seeds_per_task=3",
        "evaluation.greedy_seeds_per_task=1",
    ],
)
TASK, FIRST_SEED = "miniwob/click-test-2", 1_000_000


def evaluated(
    store: Store,
    seed: int,
    reward: float,
    *,
    task: str = TASK,
    is_greedy: bool = False,
    after: bool = True,
) -> None:
    phase = EvaluationPhase.AFTER if after else EvaluationPhase.BEFORE
    store.record_evaluation(
        records.Evaluation(
            phase=phase, policy_version=0, task_id=task, seed=seed, reward=reward, is_greedy=is_greedy
        )
    )


def failed(store: Store, seed: int, *, is_left_out: bool) -> None:
    told = {"phase": "after", "version": 0, "seed": seed, "is_greedy": False, "detail": "made up"}
    rest = {"kind": "evaluator", "attempts": 3, "is_left_out": is_left_out}
    store.record_event(EVALUATION_FAILED, TASK, {**told, **rest})


def test_success_after_training_is_shown_when_its_evaluation_is_complete(
    paths: RunPaths, store: Store, board: Board
) -> None:
    (paths.root / "session.json").write_text(json.dumps(SESSION | {"training_ends_unix_s": 1.0}))
    with SnapshotReader(paths, MEASURED) as reader:
        for is_greedy, seeds in ((True, 1), (False, 3)):
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                assert reader.read().final_success_rate is None
                evaluated(store, seed, 0.0, is_greedy=is_greedy, after=False)
                evaluated(store, seed, float(seed > FIRST_SEED), is_greedy=is_greedy)
        snapshot = reader.read()
    assert snapshot.phase is RunPhase.DONE
    assert (snapshot.base_success_rate, snapshot.final_success_rate) == (0.0, pytest.approx(2 / 3))
    assert snapshot.final_verdict == "within noise"


def test_an_evaluation_says_how_far_it_is_and_its_mean_only_once_every_task_has_a_result(
    paths: RunPaths, store: Store, board: Board
) -> None:
    tasks = (TASK, "miniwob/enter-text")
    sizes = ("evaluation.seeds_per_task=2", "evaluation.greedy_seeds_per_task=0")
    with SnapshotReader(paths, load_config(None, [f"tasks.train={list(tasks)}", *sizes])) as reader:
        evaluated(store, FIRST_SEED, 1.0, after=False)
        first = reader.read()
        evaluated(store, FIRST_SEED, 0.0, task=tasks[1], after=False)
        second = reader.read()

    assert (first.phase, first.evaluation_done, first.evaluation_total) == (RunPhase.BASE_EVALUATION, 1, 4)
    assert (first.base_success_rate, second.base_success_rate) == (None, 0.5)


def test_an_evaluation_episode_is_a_success_only_above_the_threshold(store: Store) -> None:
    for seed, reward in enumerate((0.5, 0.6), FIRST_SEED):
        evaluated(store, seed, reward)

    assert final_report(store, MEASURED).sampled.after.scores == {TASK: Score(1, 2)}


def test_answers_of_a_report_without_a_temperature_are_called_greedy(store: Store) -> None:
    evaluation = MEASURED.evaluation.model_copy(update={"temperature": 0.0})

    report = final_report(store, MEASURED.model_copy(update={"evaluation": evaluation}))

    assert report.sampled.answers == "greedy"


@pytest.mark.parametrize(
    ("phase", "version", "counts"),
    [(EvaluationPhase.AFTER, 0, True), (EvaluationPhase.AFTER, 3, False), (EvaluationPhase.BEFORE, 3, True)],
)
def test_after_training_only_failures_of_the_newest_version_count(
    store: Store, phase: EvaluationPhase, version: int, counts: bool
) -> None:
    """One that was left out of the evaluation of an earlier version is played again with this one."""
    told = {"phase": phase.value, "version": version, "seed": FIRST_SEED, "is_greedy": False}
    rest = {"kind": "evaluator", "detail": "made up", "attempts": 3, "is_left_out": True}
    store.record_event(EVALUATION_FAILED, TASK, {**told, **rest})

    assert bool(failures(store, phase)) is counts


def test_the_report_holds_sampled_and_greedy_success_before_and_after(store: Store) -> None:
    for seed, sampled in enumerate((1.0, 0.0, 0.0), FIRST_SEED):
        evaluated(store, seed, sampled, after=False)
        evaluated(store, seed, 1.0)
    evaluated(store, FIRST_SEED, 1.0, is_greedy=True, after=False)
    evaluated(store, FIRST_SEED, 0.0, is_greedy=True)

    report = final_report(store, MEASURED)

    assert (report.sampled.before.scores, report.sampled.after.scores) == (
        {TASK: Score(1, 3)},
        {TASK: Score(3, 3)},
    )
    assert (report.greedy.before.scores, report.greedy.after.scores) == (
        {TASK: Score(1, 1)},
        {TASK: Score(0, 1)},
    )
    assert report.sampled.answers == "sampled at temperature 1"
    assert report.sampled.after.episodes_left_out == 0


def test_the_report_says_which_episodes_have_no_result_and_why(store: Store) -> None:
    failed(store, FIRST_SEED, is_left_out=False)
    evaluated(store, FIRST_SEED, 1.0)
    failed(store, FIRST_SEED + 1, is_left_out=True)

    sampled = final_report(store, MEASURED).sampled

    assert sampled.after == EvaluationResult(
        {TASK: Score(1, 1)},
        left_out={TASK: 2},
        reasons={"evaluator": 1, "not played": 1},
        played_again=1,
        commonest_failure="made up",
    )
    assert "1 not played, mostly: made up; mean with" in left_out_text(sampled)
    assert sampled.after.rate_if_failed == 1 / 3
    assert sampled.before == EvaluationResult(), "it was never begun"


def test_a_run_that_left_an_episode_out_is_done_without_it(
    paths: RunPaths, store: Store, board: Board
) -> None:
    ended = MEASURED.model_copy(update={"training": MEASURED.training.model_copy(update={"updates": 0})})
    config = ended.model_copy(update={"evaluation": ended.evaluation.model_copy(update={"before": False})})
    (paths.root / "session.json").write_text(json.dumps(SESSION | {"training_ends_unix_s": 1.0}))
    evaluated(store, FIRST_SEED, 1.0)
    evaluated(store, FIRST_SEED, 1.0, is_greedy=True)
    evaluated(store, FIRST_SEED + 1, 1.0)
    with SnapshotReader(paths, config) as reader:
        assert reader.read().phase is RunPhase.FINAL_EVALUATION
        failed(store, FIRST_SEED + 2, is_left_out=True)
        assert reader.read().phase is RunPhase.DONE
