"""What is told at the end of a run."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dart.core.records import Conservation, RunPhase
from dart.core.run_directory import RunPaths
from dart.inspect import learning_curve
from dart.inspect.learning_curve import EpisodePoint
from dart.inspect.report import RunReport, SuccessReport
from dart.inspect.result import (
    Staleness,
    TrainResult,
    books_line,
    curation_lines,
    publish,
    staleness_of,
    success_lines,
    unsolved_lines,
    why_nothing_was_trained,
)
from dart.inspect.snapshot import RunSnapshot, TaskRow
from dart.inspect.success_windows import SuccessWindow

SNAPSHOT = RunSnapshot(
    run_dir="r",
    taken_unix_s=0.0,
    phase=RunPhase.DONE,
    elapsed_s=60.0,
    budget_s=0.0,
    restarts=2,
    drops={"too_few": 1, "no_spread": 20},
    pool_size=12,
    pool_uses=3,
    parkings=5,
    parked_now=1,
    conservation=Conservation(issued=30, trained=8, dropped=21, stored=1),
)
RESULT = TrainResult(
    snapshot=SNAPSHOT,
    report=RunReport(SuccessReport(), SuccessReport()),
    episodes=(),
    seed=0,
    staleness=Staleness(mean=0.75, p95=2.0, most=2.0),
)


def test_the_end_of_a_run_says_what_curation_did() -> None:
    assert curation_lines(RESULT) == [
        "staleness of trained steps: mean 0.75, p95 2 (of the worst update), max 2 versions",
        "rollouts dropped: 20 no_spread, 1 too_few",
        "demonstrations used: 3, of 12 in the pool",
        "episodes parked: 5, taken up again or played anew: 4",
    ]


def test_a_continued_run_says_since_when_its_restarts_are_counted(tmp_path: Path) -> None:
    continued = replace(RESULT, snapshot=replace(SNAPSHOT, used_before_s=451.2))
    publish(continued, Console(file=io.StringIO()), RunPaths(tmp_path))
    report = json.loads((tmp_path / "report.json").read_text())

    assert books_line(continued).endswith("; data sound; restarts 2 since 7:31")
    assert (report["restarts"], report["restarts_since_seconds"]) == (2, 451.2)


@pytest.mark.parametrize(
    ("ended", "completed"),
    [({}, True), ({"stopped_by": 15}, False), ({"failure": "no episode was played"}, False)],
)
def test_a_report_says_whether_the_run_did_all_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: dict[str, object], completed: bool
) -> None:
    monkeypatch.setattr(learning_curve, "write_png", lambda *_: None)
    over = replace(RESULT, **ended)  # type: ignore[arg-type]
    publish(over, Console(file=io.StringIO()), RunPaths(tmp_path))
    report = json.loads((tmp_path / "report.json").read_text())

    assert report["completed"] is completed
    assert (report["parked"], report["parked_now"], report["demonstrations_used"]) == (5, 1, 3)


def test_nothing_is_said_of_what_did_not_happen() -> None:
    quiet = replace(SNAPSHOT, drops={}, pool_uses=0, parkings=0)

    assert curation_lines(replace(RESULT, snapshot=quiet, staleness=None)) == []


def test_the_end_of_a_run_says_which_demonstrations_had_no_thought_and_which_the_policy_played() -> None:
    pool = replace(SNAPSHOT, pool_without_thought=9, pool_self_rolled=3)

    assert curation_lines(replace(RESULT, snapshot=pool))[3:5] == [
        "demonstrations without a thought: 9",
        "demonstrations that the policy played itself: 3",
    ]


def test_the_end_of_a_run_says_how_success_rose_while_it_trained() -> None:
    window = SuccessWindow(begins_s=0.0, ends_s=120.0, successes=3, episodes=4)
    learned = replace(SNAPSHOT, success_windows=(window,))

    assert success_lines(replace(RESULT, snapshot=learned)) == [
        "success: while training (sampled) 0–2 min 75 %"
    ]
    assert success_lines(RESULT) == []


def test_the_end_of_a_run_names_the_tasks_that_never_succeeded_after_enough_episodes() -> None:
    played = {"miniwob/never": 40, "miniwob/once": 64, "miniwob/new": 31}
    episodes = (
        EpisodePoint(elapsed_s=1.0, task_id="miniwob/once", success=True),
        EpisodePoint(elapsed_s=2.0, task_id="miniwob/never", success=False),
    )
    tasks = tuple(
        TaskRow(task_id=task, trajectories=count, recent=20, success_rate=0.0)
        for task, count in played.items()
    )
    (line,) = unsolved_lines(replace(RESULT, snapshot=replace(SNAPSHOT, tasks=tasks), episodes=episodes))

    assert line.startswith("1 of 3 tasks had no success while training: miniwob/never (0 of 40); ")
    assert (
        unsolved_lines(replace(RESULT, snapshot=replace(SNAPSHOT, tasks=tasks[1:]), episodes=episodes)) == []
    )


def test_of_many_tasks_that_never_succeeded_a_few_are_named() -> None:
    tasks = tuple(
        TaskRow(task_id=f"t{number}", trajectories=32, recent=32, success_rate=0.0) for number in range(7)
    )
    (line,) = unsolved_lines(replace(RESULT, snapshot=replace(SNAPSHOT, tasks=tasks)))

    assert "t4 (0 of 32) and 2 more; " in line


def test_a_run_whose_time_ended_before_its_first_update_says_so_with_the_remedy() -> None:
    over = replace(SNAPSHOT, budget_s=60.0, drops={})

    assert why_nothing_was_trained(over).startswith("no update was made: run.minutes = 1 was used up")
    assert "--set run.minutes=N" in why_nothing_was_trained(over)
    assert "dropped" not in why_nothing_was_trained(over)
    assert why_nothing_was_trained(replace(over, updates=1)) == ""
    assert why_nothing_was_trained(SNAPSHOT) == "", "this run has no time limit"


def test_a_run_that_dropped_its_groups_before_the_first_update_says_how_many_and_why() -> None:
    dropped = why_nothing_was_trained(replace(SNAPSHOT, budget_s=60.0))

    assert "(rollouts dropped: 20 no_spread, 1 too_few)" in dropped
    assert "train tasks in which the policy sometimes succeeds" in dropped
    few = why_nothing_was_trained(replace(SNAPSHOT, budget_s=60.0, drops={"too_few": 4}))
    assert "(rollouts dropped: 4 too_few)" in few
    assert "sometimes succeeds" not in few


def test_the_books_say_whether_the_data_is_sound() -> None:
    damaged = replace(RESULT, violations=("rollout 3: is trained twice", "blob x: is missing"))

    assert books_line(RESULT) == (
        "issued 30 = trained 8 + dropped 21 + stored 1 + leased 0; data sound; restarts 2"
    )
    assert "data DAMAGED (2 findings)" in books_line(damaged)


def test_the_books_name_lost_screenshots_which_cost_groups_and_do_not_fail_the_run() -> None:
    lost = replace(RESULT, lost_screenshots=("screenshot x: is missing", "screenshot y: is missing"))

    assert "data sound but for 2 lost screenshots" in books_line(lost)
    assert "data DAMAGED (1 findings)" in books_line(
        replace(lost, violations=("rollout 3: is trained twice",))
    )


def test_the_staleness_of_a_run_is_over_its_updates_and_version_0_has_none() -> None:
    updates = [
        {},
        {"staleness_mean": 0.5, "staleness_p95": 1.0, "staleness_max": 2.0},
        {"staleness_mean": 1.5, "staleness_p95": 3.0, "staleness_max": 3.0},
    ]

    assert staleness_of(updates) == Staleness(mean=1.0, p95=3.0, most=3.0)
    assert staleness_of([{}]) is None
