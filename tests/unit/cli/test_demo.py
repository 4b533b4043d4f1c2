"""What `dartrl demo` chooses and prints, without a run."""

import os
import shlex
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from dart.cli.demo import free_directory
from dart.cli.demo_view import DemoListener, Example, bar, open_page, step_lines, typical, verdict_lines
from dart.cli.main import app
from dart.core.records import Conservation, RunPhase
from dart.core.run_directory import RunPaths
from dart.core.statistics import Score
from dart.inspect.report import EvaluationResult, RunReport, SuccessReport
from dart.inspect.result import TrainResult
from dart.inspect.screen_change import ChangedArea, changed_area
from dart.inspect.snapshot import RunSnapshot
from dart.store.blobs import FolderBlobs
from dart.store.browse_queries import TrajectorySummary
from dart.testing.trajectories import step_at
from dart.web.step_views import views
from tests.patience import slowness
from tests.pictures import png, png_of


def played(rollout_id: int, reward: float) -> TrajectorySummary:
    return TrajectorySummary(
        rollout_id=rollout_id,
        group_id=1,
        task_id="a",
        seed=1,
        environment="env-000",
        outcome="terminated",
        reward=reward,
        num_steps=1,
        oldest_version=0,
        stored_unix_s=0.0,
        duration_s=1.0,
        state="stored",
        drop_reason=None,
    )


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ((1.0, 0.0, 0.0), Example(rollout_id=2, is_success=False, alike=2, among=3)),
        ((0.0, 1.0, 1.0), Example(rollout_id=2, is_success=True, alike=2, among=3)),
        ((1.0, 0.0), Example(rollout_id=2, is_success=False, alike=1, among=2)),
        ((), None),
    ],
)
def test_the_rollout_that_is_shown_has_the_result_of_most(
    rewards: tuple[float, ...], expected: Example | None
) -> None:
    rows = [played(number, reward) for number, reward in enumerate(rewards, start=1)]

    assert typical(rows, success_above=0.5) == expected


def test_a_bar_is_as_long_as_the_rate() -> None:
    assert (bar(0.5, width=4), bar(1.0, width=4), bar(None, width=4)) == ("██░░", "████", "░░░░")


@pytest.fixture
def picture() -> Callable[[tuple[int, int, int, int] | None], bytes]:
    def screen(filled: tuple[int, int, int, int] | None) -> bytes:
        image = Image.new("RGB", (40, 30), "white")
        if filled:
            ImageDraw.Draw(image).rectangle(filled, fill="black")
        return png_of(image)

    return screen


def test_the_change_of_a_screen_is_the_rectangle_of_all_changed_pixels(
    picture: Callable[[tuple[int, int, int, int] | None], bytes],
) -> None:
    assert changed_area(picture(None), picture((5, 6, 9, 7))) == ChangedArea(5, 6, 10, 8)
    assert changed_area(picture(None), picture(None)) is None
    with pytest.raises(ValueError, match="expected two screenshots of one size"):
        changed_area(picture(None), png(1, 1))


def test_each_step_says_what_it_did_and_changed_and_the_last_how_the_episode_ended(
    tmp_path: Path, picture: Callable[[tuple[int, int, int, int] | None], bytes]
) -> None:
    blobs = FolderBlobs(tmp_path)
    screens = [picture(None), picture(None), picture((5, 6, 9, 7))]
    answers = ["click(start_box='(3,4)')", "type(content='Ann')", "not an action: <click> <eos>"]
    steps = [
        replace(step_at(0, number), screenshot_sha256=blobs.put(screen), answer=answer)
        for number, (screen, answer) in enumerate(zip(screens, answers, strict=True))
    ]
    lines = list(step_lines(views(steps, lambda _: (40, 30), {}, None), blobs, "the episode ended"))

    assert [" ".join(line.split()) for line in lines] == [
        "1 click at 3, 4 nothing changed on the screen",
        "2 type “Ann” the screen changed from 5, 6 to 10, 8",
        "3 not an action: <click> <eos> the episode ended",
    ]


def test_a_screenshot_that_is_lost_is_said_and_ends_nothing(tmp_path: Path) -> None:
    steps = views([step_at(0, 0), step_at(0, 1)], lambda _: None, {}, None)

    first, _ = step_lines(steps, FolderBlobs(tmp_path), "the end")

    assert "(no comparison: " in first


def test_the_run_directory_is_the_first_free_number(tmp_path: Path) -> None:
    assert free_directory(tmp_path) == tmp_path / "demo"
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo-2").mkdir()
    assert free_directory(tmp_path) == tmp_path / "demo-3"


def test_the_browser_is_opened_only_where_there_is_a_display(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener, opened = tmp_path / "xdg-open", tmp_path / "opened"
    opener.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    opener.chmod(opener.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    assert open_page("http://127.0.0.1:1/", {}) is None
    running = open_page("http://127.0.0.1:2/", {"DISPLAY": ":0"})

    assert running is not None
    assert running.wait(timeout=30 * slowness()) == 0
    assert opened.read_text() == "http://127.0.0.1:2/\n"


def result(before: int, after: int, updates: int = 20) -> TrainResult:
    """A run after which so many of 24 held-out episodes succeed."""
    report = SuccessReport(
        EvaluationResult({"a": Score(before, 24)}), EvaluationResult({"a": Score(after, 24)}), "greedy"
    )
    snapshot = RunSnapshot(
        run_dir="r",
        taken_unix_s=0.0,
        phase=RunPhase.DONE,
        elapsed_s=60.0,
        budget_s=90.0,
        updates=updates,
        conservation=Conservation(),
    )
    return TrainResult(snapshot=snapshot, report=RunReport(report, SuccessReport()), episodes=(), seed=0)


def test_the_verdict_is_that_of_the_held_out_episodes() -> None:
    assert list(verdict_lines(result(7, 22))) == ["held-out seeds, greedy: 29 % -> 92 % (improved)"]

    said, advice = verdict_lines(result(10, 12))
    assert said.endswith("(within noise)")
    assert "--set training.updates=40" in advice
    assert list(verdict_lines(result(10, 10, updates=0))) == [
        "no update was made in this time; give it more with --set run.minutes=10"
    ]


def test_the_commands_that_come_next_can_be_pasted_whatever_the_run_directory_is_called(
    tmp_path: Path,
) -> None:
    paths = RunPaths(tmp_path / f"a run of {'many words ' * 5}")
    paths.root.mkdir()
    lines: list[str] = []
    DemoListener(paths, lines.append, lambda _: None).concluded(result(7, 22))

    words = [shlex.split(line) for line in lines if "dartrl" in line]

    assert [found[:4] for found in words[:2]] == [
        ["dartrl", "web", "--run-dir", str(paths.root)],
        ["dartrl", "trajectories", "list", "--run-dir"],
    ]
    assert words[2][:3] == ["dartrl", "eval", str(paths.checkpoints / "v000000")]


def test_without_a_browser_the_command_says_what_to_install_and_makes_no_directory(tmp_path: Path) -> None:
    place = tmp_path / "demo"

    ended = CliRunner().invoke(
        app,
        ["demo", "--run-dir", str(place), "--set", "environments.executable=/no/chromium"],
    )

    assert ended.exit_code == 69
    assert "/no/chromium" in ended.output
    assert not place.exists()
