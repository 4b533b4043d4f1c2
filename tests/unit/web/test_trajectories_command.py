"""`dartrl trajectories` over a recorded run."""

import fcntl
import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from dart.cli.main import app
from dart.core.run_directory import RunPaths
from dart.core.types import Step, Trajectory
from dart.inspect.formatting import counted
from dart.store.browse_queries import RunBrowser
from dart.store.errors import BlobMissing
from dart.web import trajectory_pages
from dart.web.app import web_app
from dart.web.auth import access_for
from examples import exported_episodes
from tests.recorded_run import HOSTILE, record_run


def trajectories(recorded: RunPaths, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["trajectories", *arguments, "--run-dir", str(recorded.root)])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((), [7, 6, 5, 4, 3, 2, 1]),
        (("--task", "enter-text"), [7, 4, 3]),
        (("--result", "success", "--before", "6"), [4, 2]),
        (("--outcome", "step_cap", "--limit", "1"), [7]),
        (("--before", "0"), []),
    ],
)
def test_the_list_is_narrowed_as_asked(
    recorded: RunPaths, asked: tuple[str, ...], expected: list[int]
) -> None:
    ended = trajectories(recorded, "list", "-o", "json", *asked)

    assert [row["rollout_id"] for row in json.loads(ended.stdout)] == expected


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("list",), 0, "click-test-2"),
        (("list", "--task", "click-test"), 2, "did you mean"),
        (("list", "--outcome", "good"), 2, "there is no outcome 'good'"),
        (("list", "--result", "good"), 2, "expected success or failure for the result, got 'good'"),
        (("show", "3"), 0, "attempt 1  infrastructure: the browser died"),
        (("show", "2"), 0, "click(start_box='(80,60)')  (click at 80, 60)  p 0.07  version 0, 0 old"),
        (("show", "8"), 0, "leased"),
        (("list", "--evaluation"), 0, "e2"),
        (("show", "e2"), 0, "e2  miniwob/click-test-2  seed 1  before training, sampled answers"),
        (("show", "e1"), 0, "parse_error, reward 0.00: Click"),
        (("show", "e3"), 2, "the run has no evaluation episode e3 with steps"),
        (("show", "twelve"), 2, "expected the id of an episode: the number of a rollout, or e12"),
        (("list", "--before", "e12"), 2, "e12 is the id of an evaluation episode: add --evaluation"),
        (("list", "--before", "e"), 2, "or e12 for evaluation episode 12; got 'e'"),
        (("show", "99"), 2, "the run has no rollout 99"),
        (("show", "9" * 30), 2, "9" * 18),
    ],
)
def test_people_are_told_in_words(
    recorded: RunPaths, arguments: tuple[str, ...], code: int, told: str
) -> None:
    ended = trajectories(recorded, *arguments)

    assert ended.exit_code == code
    assert told in ended.output


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((), [2, 1]),
        (("--result", "success"), [2]),
        (("--before", "e2"), [1]),
        (("--limit", "1"), [2]),
        (("--task", "enter-text"), []),
        (("--outcome", "parse_error"), [1]),
    ],
)
def test_the_list_of_evaluation_episodes_has_those_with_steps_and_is_narrowed_as_asked(
    recorded: RunPaths, asked: tuple[str, ...], expected: list[int]
) -> None:
    ended = trajectories(recorded, "list", "--evaluation", "-o", "json", *asked)

    assert [row["evaluation_id"] for row in json.loads(ended.stdout)] == expected


def test_evaluation_episodes_are_exported_as_they_are_shown_to_programs(
    recorded: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectory_pages, "PAGE", 1)
    file = tmp_path / "evaluated.jsonl"

    ended = trajectories(recorded, "export", "--evaluation", "--jsonl", str(file))

    assert ended.stdout == f"{file}: 2 episodes\n"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [len(line["steps"]) for line in lines] == [2, 1]
    for id_, line in zip(("e2", "e1"), lines, strict=True):
        assert line == json.loads(trajectories(recorded, "show", id_, "--json").stdout)


def test_one_evaluation_episode_is_exported_as_a_page(recorded: RunPaths, tmp_path: Path) -> None:
    trajectories(recorded, "export", "e2", "--html", str(tmp_path / "e2.html"))

    page = (tmp_path / "e2.html").read_text()
    assert "before training, sampled answers of version 0" in page
    assert HOSTILE not in page


@pytest.fixture
def evaluated(tmp_path: Path) -> RunPaths:
    """A recorded run whose configuration is that of an evaluation without training."""
    paths = record_run(tmp_path / "evaluated")
    paths.config.write_text(paths.config.read_text().replace('learner = "grpo"', 'learner = "none"'))
    return paths


def test_an_evaluation_without_training_says_nothing_of_before_or_after_it(evaluated: RunPaths) -> None:
    listed = trajectories(evaluated, "list", "--evaluation").output
    shown = trajectories(evaluated, "show", "e2").output
    site = web_app(evaluated, access_for("127.0.0.1", None))
    with TestClient(site, base_url="http://localhost") as client:
        pages = client.get("/trajectories?of=evaluation").text + client.get("/trajectory?id=e2").text

    assert "sampled" in listed
    assert "seed 1  sampled answers" in shown
    assert "<dd>sampled answers of version 0</dd>" in pages
    for text in (listed, shown):
        assert "before" not in text
        assert "training" not in text
    assert "before training" not in pages
    assert "<th>training</th>" not in pages


def test_the_page_of_an_evaluation_lists_its_episodes_at_once(evaluated: RunPaths) -> None:
    site = web_app(evaluated, access_for("127.0.0.1", None))
    with TestClient(site, base_url="http://localhost") as client:
        page = client.get("/trajectories").text

    assert "/trajectory?id=e2" in page
    assert "Which episodes" not in page


def test_the_list_of_an_evaluation_names_the_option_that_shows_its_episodes(evaluated: RunPaths) -> None:
    listed = trajectories(evaluated, "list", "--task", "enter-text", "--before", "0").output

    assert "no finished episode matches; --evaluation lists the episodes of an evaluation" in listed


def test_programs_get_every_field(recorded: RunPaths) -> None:
    shown = json.loads(trajectories(recorded, "show", "2", "--json").stdout)

    assert shown["fate"]["trained_version"] == 1
    assert len(shown["trajectory"]["steps"]) == 3


def test_an_export_that_cannot_be_written_says_where_and_why(recorded: RunPaths, tmp_path: Path) -> None:
    ended = trajectories(recorded, "export", "2", "--html", str(tmp_path / "none" / "two.html"))

    assert ended.exit_code == 74
    assert "two.html cannot be written: No such file or directory" in ended.output


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((), [7, 6, 5, 4, 3, 2, 1]),
        (("--task", "enter-text", "--result", "success"), [4]),
        (("--outcome", "parse_error", "--result", "success"), []),
    ],
)
def test_many_episodes_are_exported_as_lines_with_their_steps(
    recorded: RunPaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[str, ...],
    expected: list[int],
) -> None:
    monkeypatch.setattr(trajectory_pages, "PAGE", 2)
    file = tmp_path / "episodes.jsonl"

    ended = trajectories(recorded, "export", "--jsonl", str(file), *asked)

    assert ended.stdout == f"{file}: {counted(len(expected), 'episode')}\n"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["trajectory"]["rollout_id"] for line in lines] == expected
    for line in lines:
        shown = trajectories(recorded, "show", str(line["trajectory"]["rollout_id"]), "--json")
        assert line == json.loads(shown.stdout)


@pytest.mark.parametrize(
    "asked",
    [
        (),
        ("2",),
        ("--html", "a.html"),
        ("2", "--jsonl", "a.jsonl"),
        ("2", "--html", "a.html", "--task", "enter-text"),
        ("e2", "--html", "a.html", "--evaluation"),
        ("2", "--html", "a.html", "--jsonl", "a.jsonl"),
    ],
)
def test_an_export_is_one_page_or_many_lines(recorded: RunPaths, asked: tuple[str, ...]) -> None:
    ended = trajectories(recorded, "export", *asked)

    assert ended.exit_code == 2
    assert "name either an episode and the file of its page (ID --html FILE)" in ended.output


def test_lines_that_cannot_be_written_say_where_and_why(recorded: RunPaths, tmp_path: Path) -> None:
    ended = trajectories(recorded, "export", "--jsonl", str(tmp_path / "none" / "all.jsonl"))

    assert ended.exit_code == 74
    assert (
        "all.jsonl cannot be written: No such file or directory; name another file with --jsonl"
        in ended.output
    )


def test_an_episode_whose_steps_are_damaged_is_left_out_of_the_lines_and_named(
    recorded: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RunBrowser.trajectory

    def damaged(store: RunBrowser, rollout_id: int) -> Trajectory | None:
        if rollout_id == 4:
            raise BlobMissing("abc", "it is missing")
        return whole(store, rollout_id)

    monkeypatch.setattr(RunBrowser, "trajectory", damaged)
    file = tmp_path / "episodes.jsonl"
    ended = trajectories(recorded, "export", "--jsonl", str(file))

    assert ended.exit_code == 0, ended.output
    assert "left out, because their steps are damaged: 4" in ended.output
    ids = [json.loads(line)["trajectory"]["rollout_id"] for line in file.read_text().splitlines()]
    assert ids == [7, 6, 5, 3, 2, 1]


def test_an_evaluation_episode_that_is_left_out_is_named_by_its_id(
    recorded: RunPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(store: RunBrowser, sha256: str) -> tuple[Step, ...]:
        raise BlobMissing("abc", "it is missing")

    monkeypatch.setattr(RunBrowser, "steps", damaged)
    ended = trajectories(recorded, "export", "--evaluation", "--jsonl", str(tmp_path / "evaluated.jsonl"))

    assert "left out, because their steps are damaged: e2, e1" in ended.output


def test_the_program_of_the_guide_reads_what_was_exported(
    recorded: RunPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "episodes.jsonl"
    trajectories(recorded, "export", "--jsonl", str(file))
    capsys.readouterr()

    exported_episodes.main(str(file))

    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in printed] == ["miniwob/click-test-2", "miniwob/enter-text"]
    assert "3 episodes, mean reward 0.33" in printed[1]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_record_that_an_ended_run_has_lost_is_not_expected_to_appear(
    tmp_path: Path, is_running: bool
) -> None:
    paths = record_run(tmp_path / "run")
    for file in paths.record_files:
        file.unlink(missing_ok=True)
    with (
        paths.lock.open() as lock,
        TestClient(web_app(paths, access_for("127.0.0.1", None)), base_url="http://localhost") as client,
    ):
        if is_running:
            fcntl.flock(lock, fcntl.LOCK_EX)
        listed, page, scraped = trajectories(paths, "list"), client.get("/"), client.get("/metrics")

    lost = "store.db does not exist: put a copy of it back"
    assert listed.exit_code == (4 if is_running else 74), listed.output
    assert (lost in listed.output) != is_running
    assert (page.status_code, scraped.status_code) == (200, 503)
    told = "has no store.db yet; it appears when the run starts" if is_running else lost
    assert told in page.text
    assert told in scraped.text


@pytest.mark.parametrize("kind", [(), ("--evaluation",)])
def test_the_part_that_all_tasks_begin_with_is_in_the_header_alone(
    recorded: RunPaths, kind: tuple[str, ...]
) -> None:
    header, *rows = trajectories(recorded, "list", *kind).output.splitlines()

    assert "miniwob task" in header
    assert any("click-test-2" in row for row in rows)
    assert not any("miniwob/" in row for row in rows)
